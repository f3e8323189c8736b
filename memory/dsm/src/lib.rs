//! Software distributed shared memory: drives the protocol of the crate `coherence` over the
//! memory of the crate `pager` and the network of the crate `net`.
//!
//! A *node* is an address space. In each, the [`agent`] holds the protocol's state, the memory and
//! the network; it is told of faults by the pager, of messages by the fabric, and of requests by
//! the node's tasks over the [`request_table`], and carries out what the protocol wants done. It
//! blocks on none of them, and touches no shared page through the programs' view. A thread of its
//! own drives it, or a task that waits.
//!
//! A program joins by [`task::Task::join`], and what it can do then are the methods of
//! [`Task`](task::Task). How tasks find each other is in [`launch`], which of them are nodes
//! together in [`world`]; [`settings`] are environment variables.
//!
//! Below: [`frame`] is what agents say to each other besides the protocol's messages, [`mailbox`]
//! what tasks do, [`ledger`] what all have allocated, [`rendezvous`] how those of `nagaya run`
//! meet, [`neighbours`] how those of one address space do, [`report`] what was counted,
//! [`load`] how iterations are divided.
//!
//! # When something fails
//! Calls that make no sense are errors of the caller, and change nothing. What leaves the job
//! without a way to go on ends it, on all nodes, with one line: a node that is lost or silent,
//! no memory for a page, a message that makes no sense.

pub mod agent;
mod caller;
pub mod error;
pub mod frame;
pub mod launch;
pub mod ledger;
mod limits;
pub mod load;
pub mod mailbox;
pub mod neighbours;
pub mod rendezvous;
pub mod report;
pub mod request_table;
pub mod settings;
mod signals;
pub mod task;
pub mod world;
