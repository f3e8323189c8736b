//! PVM's daemon: one a user and host, the switchboard of a host's tasks.
//!
//! [`daemon`] is the daemon as a pure machine, without a system call: what happens to it and
//! what it then does are [`event`]s; [`request`] is what tasks ask for, [`errand`] what daemons
//! ask of each other, [`tasks`] who is here. What all hosts know alike is [`machine`], which
//! changes in one [`order`] everywhere; of it, [`groups`] are the groups.
//!
//! Around it, what touches the system: [`run`] is its loop.

mod connection;
pub mod daemon;
pub mod errand;
pub mod event;
mod frames;
pub mod groups;
pub mod hosts;
pub mod invitation;
pub mod join;
pub mod machine;
mod network;
pub mod order;
mod parcel;
pub mod peers;
mod post;
mod request;
pub mod run;
mod slots;
pub mod socket;
pub mod start;
pub mod tasks;
