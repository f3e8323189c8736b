//! FCP: message passing through shared memory in which only receivers have buffers, and
//! senders write into them (Kikuchi et al., *Design and evaluation of PVM on the parallel
//! computer system FOLON*).
//!
//! Everything goes through a `port`: one process's place in a window, from which it reaches
//! all others, by one of the paper's three protocols (`protocol`); what comes has `arrived`.
//!
//! FCP II, the fastest, sends through rings of the crate `sync`; `inbox` and `outbox` are the two
//! ends of a ring. `computed` puts them together.
//!
//! A large message need not go through a ring: `lend` is memory that the sender lends with
//! it and `loan` what the receiver has of that; `slot` says who has it, `allocate` where
//! it lies; in `advance` it is lent before it is written. An `offer` is copied straight from
//! the sender's memory (`remote`).
//!
//! `classic` is what the paper had before, FCP and FCP plus: buffers that a table lists
//! (`listed`), and that are changed under a lock (`locked`). `counts` counts what a message
//! costs by each.
//!
//! `mail` sends and receives messages of any length (`parts` puts them together, `faster`
//! chooses); the `bell` ends a wait.
//!
//! Below them, VCL: `memory` is what a window is made of, `window` the shared memory
//! itself, on which processes agree by its `header`; `member` is who is in it and lives
//! (`hold` keeps a buffer its owner's, `barrier` makes that cheap, `ofd` are the kernel's
//! locks that end with their holder, `fork` tells a child from its parent); `lock` is
//! test-and-set and a lock that survives its holder; `error` says why not.

pub mod advance;
mod allocate;
pub mod arrived;
mod barrier;
pub mod bell;
mod classic;
mod computed;
pub mod counts;
pub mod error;
mod faster;
mod fork;
pub mod header;
pub mod hold;
pub mod inbox;
pub mod lend;
mod line;
pub mod listed;
pub mod loan;
pub mod lock;
pub mod locked;
pub mod mail;
mod mapping;
pub mod member;
pub mod memory;
mod ofd;
pub mod offer;
pub mod outbox;
mod parts;
pub mod port;
pub mod protocol;
mod remote;
pub mod slot;
pub mod window;
