//! PVM's daemon. Each user has one daemon per host; it connects the tasks of that host.
//!
//! [`daemon`] holds the state of a pure state machine, which makes no system calls. `dispatch`
//! has its transitions, and [`event`] its inputs and outputs. `request` handles requests from
//! tasks; [`errand`] defines requests between daemons. [`tasks`] lists the tasks of this host.
//! [`machine`] is the state that all hosts replicate; [`order`] gives its changes a total order.
//! [`groups`] holds the part of that state that concerns groups.
//!
//! The other modules make the system calls. `running` has the resources of the process, and
//! [`run`] the event loop; `remote` is the part of the loop for other hosts.

// Constants keep the names that pvm3.h gives them.
#![allow(non_upper_case_globals)]

mod addresses;
mod call;
mod callers;
mod child;
mod connection;
mod contexts;
pub mod daemon;
mod delivery;
mod dispatch;
pub mod errand;
pub mod event;
mod frames;
#[doc(hidden)]
pub mod fuzz;
pub mod groups;
pub mod hostfile;
mod hosting;
mod hosts;
mod identity;
pub mod invitation;
pub mod join;
pub mod launched;
pub mod libraries;
mod log;
pub mod machine;
pub mod mailboxes;
mod network;
mod notice;
pub mod options;
pub mod order;
mod output;
mod pattern;
pub mod peers;
mod plugin;
mod poll;
mod pressure;
mod processes;
pub mod program;
mod remote;
mod request;
pub mod run;
mod running;
mod slots;
pub mod socket;
mod source;
mod space;
pub mod spawn;
pub mod start;
pub mod starting;
pub mod task_message;
pub mod tasks;
mod timed_read;
mod tracer;
