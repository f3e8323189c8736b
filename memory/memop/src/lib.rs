//! Memory operations on another process: the calls that Kokaji, Shiba and Okada (*Sharing address
//! spaces using distributed shared memory technique*, §3.3 and §4.2) added to their kernel, on a
//! stock one. A debugger, a checkpointer or an external memory server needs no help of the other
//! process.
//!
//! `page` reads and writes whole pages of any protection. `mapping` makes, removes and protects
//! mappings: `call` lets a thread of the other process make a system call, by `trace`, which wraps
//! ptrace(2). `process` reads `/proc`. `c` is libmemop.so (`include/memop.h`).
//!
//! # Rights
//! The caller needs the right to trace the process: the same user, if Yama
//! (`kernel.yama.ptrace_scope`) allows it, or CAP_SYS_PTRACE. Linux 5.15 or newer; x86-64.
//!
//! # Errors Each call can fail with `ESRCH` (there is no such process, or it ended during the
//! call), `EPERM` (it may not be traced, or another process traces it) and `EINVAL` (an address or
//! a length is not a multiple of the page size).

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("memop knows the system calls and registers of Linux on x86-64 only");

mod c;
mod call;
mod mapping;
mod page;
mod process;
mod trace;

pub use mapping::{mmap, mprotect, munmap};
pub use page::{peekpage, pokepage};
