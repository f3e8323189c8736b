//! Home-based scope consistency.
//!
//! Every page has a home node, which collects all changes of the page. Other nodes fetch copies
//! from it. A node that writes a copy first makes a twin. A scope closes when a lock is released or
//! a barrier is reached. The node then sends the differences between its copies and their twins to
//! the homes, so several nodes may write one page concurrently. It also sends the list of these
//! pages to the manager of the lock or barrier. The next node that opens the scope drops its copies
//! of them.
//!
//! (Iftode, Singh, Li, *Scope consistency*, 1996; Hu, Shi, Tang, *JIAJIA*, 1999.)
//!
//! The guarantee: a task that opens a scope sees all writes in that scope before it was last
//! closed. A barrier closes and opens a scope that holds all writes. Setting a condition variable
//! closes its scope; returning from a wait opens it.
//!
//! A node is one address space, whose tasks share the copy and the state of a page. A write
//! therefore belongs to all scopes that any task of the node has open. Tasks of a node pass a lock
//! to each other without a message, at most [`HANDOVERS`] times in a row.
//!
//! Grants may carry further pages that the receiver is predicted to use, and pages may be sent
//! ahead of a barrier. `rides` and `ahead` decide which pages are allowed; [`ride`](crate::ride)
//! predicts them.
//!
//! [`page`] has the states of a page. A driver uses [`node`], with the events and actions of
//! [`event`]. `step` handles events, `pages` applies the rules of pages, and `send` sends messages.
//! `lock`, `barrier` and `condition` each hold the task's side and the manager's side; `state` has
//! their data. `list` splits lists that are longer than a message. [`homes`] places the pages'
//! homes; `table` holds the pages of a node.
//!
//! From the arrival of its last task at a barrier until the grant, a node starts nothing: faults of
//! other threads wait. So no fetch and no change crosses a barrier, and homes may move there.

mod ahead;
mod barrier;
mod condition;
pub mod event;
pub mod homes;
mod list;
mod lock;
pub mod node;
pub mod page;
mod pages;
mod prefetch;
mod rides;
mod send;
mod state;
pub mod statistics;
mod step;
mod table;
pub mod tree;

pub use event::{Action, Event, Misuse, Options};
pub use lock::HANDOVERS;
pub use node::Node;
