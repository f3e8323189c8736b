//! Loads a program into a segment: ELF image, dynamic linker, stack, auxiliary vector.
//!
//! What the kernel does for execve, done at user level, so that a program can start in an
//! address space that others live in. Opening and checking ([`Program::open`]) touches no
//! memory; [`load`] fills a segment. Starting is the gate's work ([`nagaya_gate::Gate::start`]).

pub mod elf;
mod error;
mod program;
mod segment;
pub mod stack;

pub use error::{LoadError, LoadErrorKind, describe, map_count_hint};
pub use program::{Executable, Program};
pub use segment::{TaskInfo, fixed_addresses, load};
