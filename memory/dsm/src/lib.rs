//! Software distributed shared memory: drives the protocol of the crate `coherence` over the
//! memory of the crate `pager` and the network of the crate `net`.
//!
//! A *node* is an address space. Each node has an [`agent`] with the protocol's state, the memory
//! and the network. It handles page faults, messages of other nodes, and requests of the node's
//! tasks in the [`request_table`], and carries out the protocol's actions. It waits for none of
//! them, and touches no shared page through the programs' view. A dedicated thread drives it, or a
//! task that waits.
//!
//! A program joins by [`task::Task::join`], and then uses the methods of [`Task`](task::Task).
//!
//! | module | topic |
//! |---|---|
//! | [`launch`] | how tasks find each other, by a launcher or `nagaya run` |
//! | [`world`], [`neighbours`] | the tasks and nodes of a job, and the tasks of one address space |
//! | [`settings`] | environment variables |
//! | [`frame`] | messages between agents, besides those of the protocol |
//! | [`mailbox`] | messages between tasks |
//! | [`ledger`] | the allocations of all nodes |
//! | [`load`] | the division of iterations |
//! | [`report`] | counts and reports |
//!
//! # Errors
//! Invalid calls are errors of the caller, and change nothing. A job that cannot continue ends on
//! all nodes, with one line: a node is lost or silent, there is no memory for a page, or a message
//! violates the protocol.

pub mod agent;
mod caller;
pub mod error;
pub mod frame;
#[doc(hidden)]
pub mod fuzz;
pub mod launch;
pub mod ledger;
mod limits;
pub mod load;
pub mod mailbox;
pub mod neighbours;
pub mod report;
pub mod request_table;
pub mod settings;
mod signals;
pub mod task;
pub mod world;
