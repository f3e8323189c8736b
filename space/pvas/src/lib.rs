//! Spaces and tasks: many programs in one address space, each in a segment of its own.
//!
//! A [`Space`] belongs to the process that created it. Its tasks are child processes made
//! with `clone(CLONE_VM)`: own PID, descriptors, signal table, directory; one set of page
//! tables (Shimada et al., PVAS). The C library libpvas (`include/pvas.h`) is the
//! `capi` module of this crate.
//!
//! `child` holds what a new task does before its program starts, `watcher` what happens
//! when it ends. `owner` makes and changes the control area, whose view for tasks is the crate
//! `control`. `domain` makes parts of a space that have page tables of their own, each with a
//! `keeper`, out of one `memory`. `machines` is for the parts on other machines.

mod capi;
mod child;
pub mod connection;
pub mod copy_plan;
mod domain;
mod error;
mod fork;
mod keeper;
pub mod machines;
mod memory;
mod owner;
mod regions;
mod space;
mod watcher;

pub use child::Attributes;
pub use control::Control;
pub use domain::DomainInfo;
pub use error::Error;
pub use space::{Space, SpaceOptions, is_fixed, parse_size};
