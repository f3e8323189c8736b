//! Waiting and synchronization between threads of different processes, on the lowest floor.
//!
//! Each mechanism exists once, here. `wait` is the wait policy: how long to spin, and when to
//! sleep. `futex` sleeps and wakes. `ring` is a receive buffer of many senders, `mapped` the
//! same in memory that processes share. A `doorbell` wakes a waiter that waits for several
//! things. A `hold` keeps memory its owner's while another uses it.
//!
//! The mechanisms make no assumption about their memory but the traits in `word`, so that loom
//! can model them (`tests/`, run by `make model`).

pub mod doorbell;
pub mod futex;
pub mod hold;
pub mod mapped;
pub mod ring;
pub mod wait;
pub mod word;
