//! One process over several machines: an unmodified program whose threads run on all of them,
//! in one address space that is the same everywhere (Kokaji, Shiba, Okada, *Sharing address
//! spaces using distributed shared memory technique*).
//!
//! Each *node* has a process with the program's segment at the same addresses. Pages move
//! between nodes by the protocol of `coherence::sequential`, so memory is sequentially
//! consistent and locks, flags and atomics work across nodes. The *origin* is the node where
//! the program was started: there its files, sockets, signals and thread IDs are, and system
//! calls of threads elsewhere are made there by the thread's own identity, its *shadow*;
//! arguments need no translation, since addresses are the same.
//!
//! On the program's threads: `trap` catches system calls, `calls` says what becomes of each and
//! makes it, `threads` begins and ends threads, `moves` takes them elsewhere, `shadow` is what
//! stays at the origin, `processes` are children, which have a `snapshot` of the memory if they are
//! forked, `context` is registers, `clocks` what they read without a call, `processors` those they
//! are told of, `descriptors` what is known of theirs, `exe` and `titles` what they and others see
//! of the program as a process, `raw` what stands for libc. `signals` and `actions` are the
//! program's signals, `alternate_stack` the stacks of handlers, `edges` and `leave` where a thread
//! looks for them. They ask at the `desk`. The `agent` answers: a thread of ours on each node,
//! which drives the protocol over the crates `pager` and `net`. At the origin it knows the
//! `addresses` that are taken, the `futexes` and the [`place`] of each thread, which `balance` may
//! change, and has `leases` on files that are mapped for reading. `frame` is what agents say to
//! each other, `image` lays the program out, [`node`] begins a node, [`talk`] is what is said to
//! start one.
//!
//! # What does not work
//! See docs/span.md: System V shared memory, ptrace, io_uring. They fail with an error.

pub use agent::order;

mod actions;
mod addresses;
mod agent;
mod alternate_stack;
mod balance;
mod calls;
mod clocks;
mod context;
mod descriptors;
mod desk;
mod direct;
mod edges;
pub mod estimate;
mod exe;
mod frame;
mod futexes;
mod here;
mod image;
mod inherit;
mod leases;
mod leave;
mod limits;
mod moves;
pub mod node;
mod packing;
pub mod place;
mod processes;
mod processors;
mod ranges;
mod raw;
pub mod report;
mod robust;
mod scheduling;
mod segments;
mod shadow;
mod shared;
mod sharing;
mod signals;
mod snapshot;
pub mod talk;
mod texts;
mod threads;
mod titles;
mod trap;
