//! PVM's daemon. Each user has one daemon per host; it connects the tasks of that host.
//!
//! [`daemon`] is a pure state machine without system calls. Its inputs and outputs are in
//! [`event`]. `request` handles requests from tasks, and [`errand`] defines requests between
//! daemons. [`tasks`] lists the tasks of this host. [`machine`] is the state that all hosts
//! replicate; [`order`] gives its changes a total order. [`groups`] holds the part of that state
//! that concerns groups.
//!
//! The other modules do the system calls; [`run`] is the event loop.

// Constants keep the names that pvm3.h gives them.
#![allow(non_upper_case_globals)]

mod addresses;
mod call;
mod child;
mod connection;
mod contexts;
pub mod daemon;
pub mod errand;
pub mod event;
mod frames;
pub mod groups;
pub mod hostfile;
mod hosts;
pub mod invitation;
pub mod join;
pub mod launched;
pub mod libraries;
pub mod load;
mod log;
pub mod machine;
pub mod mailboxes;
mod network;
mod notice;
pub mod order;
mod output;
mod patience;
mod pattern;
pub mod peers;
mod plugin;
mod poll;
mod post;
mod pressure;
mod processes;
pub mod program;
mod request;
pub mod run;
mod slots;
pub mod socket;
mod space;
pub mod spawn;
pub mod start;
pub mod tasks;
mod tracer;
