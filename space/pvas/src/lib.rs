//! Spaces and tasks: many programs in one address space, each in its own segment.
//!
//! A [`Space`] belongs to the process that created it. Its tasks are child processes made with
//! `clone(CLONE_VM)`. They share one set of page tables (Shimada et al., PVAS). Each task has its
//! own PID, descriptors, signal table and working directory. The module `capi` is the C library
//! libpvas (`include/pvas.h`).
//!
//! `child` starts a task, and `watcher` reclaims it after its end, with its remains `outside` its
//! segment. `owner` creates and changes the control area; the crate `control` is the view that
//! tasks have of it. `domain` creates parts of a space that have separate page tables. Each domain
//! has a `keeper`, which may be a program of its own (`keeper_program`), and all map the same
//! `memory` (`views`). `machines` divides a space among several machines, and `agent` reports to
//! the transport of pages between them. `window` selects the address of a space. `kernel_copies`
//! tests whether the kernel copies between processes.

pub mod agent;
mod capi;
mod child;
pub mod connection;
pub mod copy_plan;
mod domain;
mod error;
mod fork;
mod handles;
mod keeper;
mod keeper_program;
mod kernel_copies;
pub mod machines;
mod memory;
mod outside;
pub mod own_memory;
mod owner;
pub mod placeholder;
mod program;
mod raw;
mod regions;
mod space;
mod views;
mod watcher;
pub mod window;

pub use child::Attributes;
pub use control::{Control, Protection};
pub use domain::DomainInfo;
pub use error::Error;
pub use space::{Space, SpaceOptions, is_fixed, parse_size};
