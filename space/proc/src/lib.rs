//! Facts in `/proc` about this host and its processes.
//!
//! `host` identifies the host: its boot ID, and the namespaces of the caller. `maps` reads the
//! mappings of a process, `process` its state. `directory` has the user's directories for sockets.
//! `stderr` writes a process's messages, and `log` those that have a level.
//!
//! Libraries that are loaded into ranks use this crate, so it stays small, and depends on no other
//! crate of the project.

pub mod directory;
pub mod host;
pub mod log;
pub mod maps;
pub mod process;
pub mod stderr;
