//! Spaces and tasks: many programs in one address space, each in a segment of its own.
//!
//! A [`Space`] belongs to the process that created it. Its tasks are child processes made
//! with `clone(CLONE_VM)`: own PID, descriptors, signal table, directory; one set of page
//! tables (Shimada et al., PVAS). The C library libpvas (`include/pvas.h`) is the
//! `capi` module of this crate.
//!
//! `child` holds what a new task does before its program starts, `watcher` what happens
//! when it ends, `control` what all sides share. `domain` makes parts of a space that have
//! page tables of their own, each with a `keeper`, out of one `memory`; `machines` those
//! that are elsewhere. By a `hold` a task keeps the memory of
//! another, in which it works, from going.

mod capi;
mod child;
pub mod connection;
mod control;
pub mod copy_plan;
mod domain;
mod error;
pub mod export;
mod fork;
pub mod hold;
mod keeper;
pub mod machines;
mod memory;
mod regions;
mod space;
mod this;
mod watcher;

pub use child::Attributes;
pub use control::Control;
pub use domain::DomainInfo;
pub use error::Error;
pub use space::{Space, SpaceOptions, is_fixed, parse_size};
pub use this::{ThisTask, task as this_task};
