//! PVM's daemon: one a user and host, the switchboard of a host's tasks.
//!
//! [`daemon`] is the daemon as a pure machine, without a system call: what happens to it and
//! what it then does are [`event`]s; `request` is what tasks ask for, [`errand`] what daemons
//! ask of each other, [`tasks`] who is here. What all hosts know alike is [`machine`], which
//! changes in one [`order`] everywhere; of it, [`groups`] are the groups.
//!
//! Around it, what touches the system: [`run`] is its loop.

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
