//! Delegation: a task asks another task of its space, the *delegatee*, to do work on its
//! behalf, and passes addresses, not data (Shimada et al., Multiple PVAS, I/O delegation).
//!
//! A `delegatee` has one queue in its own segment, a ring (`sync::ring`) that any number of
//! requesters write into and that its threads take requests from, in order. A request is
//! one cache line; its answer goes into the `record`, a line in the requester's segment,
//! where the `requester` waits. What operations there are the delegatee says; `io` has
//! those for files and sockets, also such as requesters have `passed`, `memory` what reaches the
//! requester's memory and fails where there is none. A request may be `kept`, and answered later.
//!
//! Each side *holds* the other (`control::hold`) while it works in the other's memory: a
//! requester while it writes into the queue, a delegatee from before it looks at a request
//! until it has answered, also where that is later. So whoever dies, at any instant, nobody writes
//! where the memory is gone or somebody else's.
//!
//! `socket` carries passed descriptors, `error` says why a call failed, and `c` is
//! `include/pvas_delegate.h`.

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
