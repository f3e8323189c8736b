//! Loads a program into a segment: ELF image, dynamic linker, stack, auxiliary vector.
//!
//! This does the work of the kernel's execve at user level, so that a program can start in a
//! shared address space. Opening and checking ([`Program::open`]) touches no memory; [`load`]
//! fills a segment. The gate starts the program ([`nagaya_gate::Gate::start`]).

pub mod elf;
mod error;
mod program;
mod seed;
mod segment;
pub mod shrink;
pub mod stack;

pub use error::{LoadError, LoadErrorKind, describe, map_count_hint};
pub use program::{Executable, Program};
pub use seed::random_seed;
pub use segment::{TaskInfo, fixed_addresses, load};
