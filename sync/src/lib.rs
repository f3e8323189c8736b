//! Waiting and synchronization between threads of different processes, on the lowest floor.
//!
//! Each mechanism exists once, here. `wait` is the wait policy: how long to spin, and when to
//! sleep. `futex` sleeps and wakes. `ring` is a receive buffer of many senders, `mapped` the
//! same in memory that processes share. A `doorbell` wakes a waiter that waits for several
//! things. A `hold` keeps memory its owner's while another uses it. A `lock` survives its holder.
//! The `pieces` of a large message are copied by two tasks at once. A `ticket` is the end of one
//! request, on which one waiter sleeps.
//!
//! Four users of these mechanisms keep a protocol of their own, because it is another one:
//! - The turn of a delegatee's threads (`delegate`) is a mutex within one process. Its holder
//!   cannot die alone, and its waiters must not wake up every [`wait::DOUBT`] while the
//!   delegatee is idle.
//! - A barrier of PVM groups (`pvm::slots`) counts arrivals in the word on which its waiters sleep,
//!   so that an arrival is one compare-and-swap.
//! - A rank of a collective operation (`coll`) numbers its steps, and sleeps on a `doorbell`. It
//!   must call the MPI in between.
//! - A PVM task on another host (`libpvm3`) is waited for with `wait` and a thread that watches the
//!   descriptor of the network.
//!
//! The mechanisms make no assumption about their memory but the traits in `word`, so that loom
//! can model them (`tests/`, run by `make model`).

pub mod doorbell;
pub mod futex;
pub mod hold;
pub mod lock;
pub mod mapped;
pub mod pieces;
pub mod ring;
pub mod ticket;
pub mod wait;
pub mod word;
