//! One process over several machines: an unmodified program whose threads run on all of them, in
//! one address space (Kokaji, Shiba, Okada, *Sharing address spaces using distributed shared memory
//! technique*).
//!
//! Each *node* has a process with the program's segment at the same addresses. Pages move between
//! nodes by the protocol of `coherence::sequential`, so memory is sequentially consistent, and
//! locks, flags and atomics work across nodes. The program was started on the *origin*: its files,
//! sockets, signals and thread IDs are there. A thread that runs on another node has a *shadow* at
//! the origin, a kernel thread that makes its system calls. Arguments need no translation, since
//! addresses are the same.
//!
//! | files | topic |
//! |---|---|
//! | `node`, `talk`, `image` | start of a node, control messages, the loaded program |
//! | `stubs`, `jump`, `trap` | catching system calls: patched sites, their calls, and SIGSYS |
//! | `calls`, `call_table` | answering system calls, and the table of where each is made |
//! | `memory_calls`, `protections`, `sharing`, `futex`, `affinity`, `clocks`, `sigaction`, … | system calls by topic |
//! | `threads`, `kernel_threads`, `shadow`, `moves`, `leave` | threads: start, end, shadow, moves |
//! | `processes`, `snapshot` | child processes and their copy of the memory |
//! | `signal`, `signals`, `dispositions`, `mask`, `alternate_stack` | the program's signals |
//! | `edges`, `context`, `raw` | interruptible calls, registers, system calls without libc |
//! | `slot`, `request`, `request_table` | the boundary between threads and the agent |
//! | `agent`, `frame` | the agent of a node, and its messages |
//! | `addresses`, `futex_queues`, `place`, `balance`, `packing`, `leases` | data and policies of the origin |
//! | `report`, `estimate` | reports |
//!
//! # Limits
//! docs/span.md lists the system calls and what does not work.

pub use agent::order;

mod addresses;
mod affinity;
mod agent;
mod alternate_stack;
mod balance;
mod call;
mod call_table;
mod calls;
mod clock_offsets;
mod clocks;
mod context;
mod descriptors;
mod direct;
mod dispositions;
mod edges;
mod engine_lock;
pub mod estimate;
mod exe;
mod frame;
mod futex;
mod futex_queues;
#[doc(hidden)]
pub mod fuzz;
mod here;
mod image;
mod inherit;
mod jump;
mod kernel_threads;
mod leases;
mod leave;
mod limits;
mod mapped;
mod mask;
mod memory_calls;
mod migrate;
mod moves;
mod names;
pub mod node;
mod packing;
pub mod place;
mod private_files;
mod processes;
mod processors;
mod protections;
mod range_table;
mod ranges;
mod raw;
pub mod report;
mod request;
mod request_table;
mod robust;
mod scheduling;
mod segments;
mod shadow;
mod shared;
mod sharing;
mod sigaction;
mod signal;
mod signals;
mod slot;
mod snapshot;
mod stubs;
pub mod talk;
mod texts;
mod threads;
mod titles;
mod trap;
