//! Delegation: a task asks another task of its space, the *delegatee*, to work on its behalf, and
//! passes addresses instead of data (Shimada et al., Multiple PVAS, I/O delegation).
//!
//! A `delegatee` has one queue in its own segment: a ring (`sync::ring`) into which any number of
//! requesters write. Its threads take requests from the ring in order (`turn`). A request is one
//! cache line. The answer goes into the `record`, a cache line in the requester's segment, where
//! the
//! `requester` waits. The delegatee registers its operations. `io` has operations for files and
//! sockets, including descriptors that requesters have `passed`. `memory` accesses the requester's
//! memory, and fails where nothing is mapped. A request may be deferred, and answered later
//! (`kept`).
//!
//! Each side *holds* the other (`control::hold`) while it works in the other's memory. A requester
//! holds the delegatee while it writes into the queue. A delegatee holds the requester from before
//! it looks at a request until it has answered, also if that is later. So a death at any instant
//! never makes another task write to memory that is unmapped or has a new owner.
//!
//! `socket` carries passed descriptors, `task` caches the calling task, `error` has the errors, and
//! `c` is `include/pvas_delegate.h`.

mod c;
pub mod delegatee;
pub mod error;
pub mod io;
pub mod kept;
pub mod memory;
pub mod passed;
mod queue;
pub mod record;
pub mod requester;
mod socket;
mod task;
mod turn;
