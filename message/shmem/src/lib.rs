//! libnagaya-shmem.so: OpenSHMEM 1.5 on a partitioned address space.
//!
//! The processing elements (PEs) of a node are tasks of one space. So put and get are loads, stores
//! and copies at an address that is computed from the caller's own, and atomic operations are those
//! of the processor. The standard: <https://www.openshmem.org>, version 1.5.
//!
//! | module | topic |
//! |---|---|
//! | `abi` | the exported C functions, by the standard's chapters |
//! | `launch` | runs a program as a task that its launcher has started as a process |
//! | `identity` | the number of this PE and of all PEs |
//! | `setup` | begin and end of the library |
//! | `job` | the PEs of the job, and how this PE reaches them |
//! | `symmetric` | symmetric objects: their addresses in this PE and in others |
//! | `heap` | the allocator of the symmetric heap |
//! | `block` | the control block by which the PEs of a node find each other |
//! | `rma` | put and get |
//! | `atomic` | atomic operations |
//! | `wait` | waiting for a change in this PE's memory |
//! | `remote` | PEs on other nodes |
//! | `context` | contexts of communication |
//! | `team` | teams of PEs |
//! | `collectives` | collective operations of teams |
//! | `lock` | distributed locks |
//! | `settings` | environment variables |
//! | `meet` | words in control blocks, and the meeting of all PEs |
//! | `ending` | the end of this process and of its neighbours |
//! | `strides`, `word` | the elements of strided operations; words of atomic operations |
//! | `fatal` | errors, which end the job with one line |

mod abi;
mod atomic;
mod block;
mod collectives;
mod context;
mod ending;
mod fatal;
mod heap;
mod identity;
mod job;
mod launch;
mod lock;
mod meet;
mod remote;
mod rma;
mod settings;
mod setup;
mod strides;
mod symmetric;
mod team;
mod wait;
mod word;
