//! Waiting and synchronization between threads of different processes, and copies between their
//! memories. This crate depends on no other crate of the project, and each mechanism exists once.
//!
//! | module | mechanism |
//! |---|---|
//! | `wait` | the wait policy: how long to spin, and when to sleep |
//! | `futex` | sleeping on a word, and waking its sleepers |
//! | `ring` | a receive buffer with many senders and one receiver |
//! | `mapped` | a `ring` in memory that processes share |
//! | `doorbell` | wakes a waiter that waits for several things |
//! | `hold` | keeps a task's memory mapped while another task uses it |
//! | `lock` | a lock that survives the death of its holder |
//! | `pieces` | a large message that two tasks copy at the same time |
//! | `ticket` | the end of one request, on which one waiter sleeps |
//! | `barrier` | a memory fence in every process at once |
//! | `copy` | copies that are fast wherever the buffers lie |
//! | `clock` | the time, which tests can simulate |
//! | `inject` | errors of system calls, which tests inject |
//!
//! Four users of these mechanisms run a different protocol on top of them:
//! - The turn of a delegatee's threads (`delegate`) is a mutex within one process. Its holder
//!   cannot die alone. Its waiters must not wake up every [`wait::DOUBT`] while the delegatee is
//!   idle.
//! - A barrier of PVM groups (`pvm::slots`) counts arrivals in the word on which its waiters
//!   sleep. An arrival is therefore one compare-and-swap.
//! - A rank of a collective operation (`coll`) numbers its steps, and sleeps on a `doorbell`. It
//!   must call the MPI library between two sleeps.
//! - A waiter for a PVM task on another host (`libpvm3`) uses `wait`, and a thread that watches
//!   the descriptor of the network.
//!
//! The protocols reach their memory through the traits in `word` only. So loom can model them
//! (`tests/`, run by `make model`).

pub mod barrier;
pub mod clock;
pub mod copy;
pub mod doorbell;
pub mod futex;
pub mod hold;
pub mod inject;
pub mod lock;
pub mod mapped;
pub mod pieces;
pub mod ring;
pub mod ticket;
pub mod wait;
pub mod word;
