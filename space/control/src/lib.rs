//! The part of a space that a task can see. Libraries that are loaded into ranks use this crate
//! instead of `pvas`, which creates spaces and loads programs.
//!
//! `area` is the control area of a space, `this` the calling task, and `identity` names one of the
//! tasks that had an ID. `export` is the directory of names in a task's export area. A `hold`
//! keeps the memory of another task mapped while the caller works in it. `machines` is for spaces
//! over several machines, and `protection` for those whose tasks are protected from each other.
//! `peer` identifies the process at the other end of a socket. `error` has
//! the errors, and `hash` shortens names.

mod area;
mod error;
pub mod export;
mod hash;
pub mod hold;
mod identity;
pub mod machines;
pub mod peer;
mod protection;
mod this;

pub use area::{Control, FAR_PID};
pub use error::Error;
pub use hash::fnv1a;
pub use identity::Identity;
pub use protection::Protection;
pub use this::{ThisTask, task as this_task};

/// Returns the user's directory for the sockets of node servers and daemons.
///
/// # Errors
/// See [`proc::directory::private`].
pub fn directory() -> Result<std::path::PathBuf, String> {
    proc::directory::private("nagaya")
}
