//! FCP: message passing through shared memory in which only receivers have buffers, and senders
//! write into them (Kikuchi et al., *Design and evaluation of PVM on the parallel computer system
//! FOLON*).
//!
//! A `port` is one process's entry in a window. From it the process reaches all others, by one of
//! the paper's three protocols (`protocol`). A received message has `arrived`.
//!
//! FCP II, the fastest protocol, sends through rings of the crate `sync`. `inbox` and `outbox` are
//! the two ends of a ring (`ring_end`); `fcp2` joins them to an `endpoint`. The crate `fcp-classic`
//! has the endpoints of the paper's earlier protocols, FCP and FCP plus.
//!
//! A large message need not go through a ring. `lend` manages memory that the sender lends with the
//! message, and `loan` is the receiver's side. A `slot` names the borrower, and `allocate` finds
//! the block. A loan in `advance` is made before the data is written (`line`). An `offer` is copied
//! directly from the sender's memory (`remote`). Between tasks of one space, both sides copy
//! `together`.
//!
//! `mail` sends and receives messages of any length: `parts` reassembles them, `faster` chooses the
//! route. The `bell` ends a wait.
//!
//! Below lies VCL. `memory` is the memory of a window (`mapping` maps it), `window` the shared
//! memory itself, and `header` the agreement of processes on its layout. `member` knows the members
//! and which of them live. `hold` keeps a buffer its owner's. `ofd` has
//! the kernel's locks that end with their holder, and `fork` detects a forked child. `lock` has
//! test-and-set, and a lock that survives its holder. `error` has the errors.

pub mod advance;
mod allocate;
pub mod arrived;
pub mod bell;
pub mod endpoint;
pub mod error;
mod faster;
mod fcp2;
pub mod fork;
pub mod header;
pub mod hold;
pub mod inbox;
pub mod lend;
mod line;
pub mod loan;
pub mod lock;
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
mod ring_end;
pub mod slot;
mod together;
pub mod window;
