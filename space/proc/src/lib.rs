//! Facts in `/proc` about this host and its processes.
//!
//! `host` identifies the host: its boot ID, and the PID namespace of the caller. `maps` reads the
//! mappings of a process, `process` its state. Libraries that are loaded into ranks use this crate,
//! so it stays small: it reads these files only, and depends on no other crate of the project.

pub mod host;
pub mod maps;
pub mod process;
