//! Home-based scope consistency.
//!
//! Every page has a home, where all changes of it come together. Others fetch copies from
//! there. A node that writes a copy makes a twin first; when a scope in which it wrote is
//! closed (a lock is released, a barrier reached), it sends homes what differs from the twins
//! (several nodes may write one page at once), and names the pages to the manager of the lock
//! or barrier; who opens the scope next drops its copies of them. (Iftode, Singh, Li, *Scope
//! consistency*, 1996; Hu, Shi, Tang, *JIAJIA*, 1999.)
//!
//! What is consistent: who opens a scope sees all that was written in that scope before it was
//! last closed. A barrier closes and opens a scope that holds all writes. A condition variable
//! is closed by being set, and opened by who has waited for it.
//!
//! A node is an address space: its tasks share one copy of a page, and one state. A write
//! therefore belongs to all scopes that any task of the node has open. Locks pass between
//! tasks of a node without a message, [`HANDOVERS`] times in a row.
//!
//! With a grant other pages may ride along, which the node that gets it will want, and pages may
//! go ahead of a barrier: `rides` and `ahead` say which may, [`ride`](crate::ride) which do.
//!
//! [`page`] has the states of a page. A driver uses [`node`], with the events and actions of
//! [`event`]. `lock`, `barrier` and `condition` hold both sides of each, the task's and the
//! manager's. `list` splits lists that are longer than a message. [`homes`] places the pages'
//! homes; `table` holds the pages of a node.
//!
//! From the time that all its tasks have reached a barrier until the barrier is granted, a
//! node lets nothing begin: faults of other threads wait. So no fetch and no change ever
//! crosses a barrier, and homes may move there.

mod ahead;
mod barrier;
mod condition;
pub mod event;
pub mod homes;
mod list;
mod lock;
pub mod node;
pub mod page;
mod rides;
pub mod statistics;
mod table;
pub mod tree;

pub use event::{Action, Event, Misuse, Options, Refused};
pub use lock::HANDOVERS;
pub use node::Node;
