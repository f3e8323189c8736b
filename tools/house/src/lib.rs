//! The house: the crates of a workspace, the floors on which they lie, and their modules.
//!
//! The command `house` draws it. `tests/tidy` checks its rules: a crate uses only crates on lower
//! floors, and the modules of a crate have no cycles.

pub mod drawing;
pub mod floors;
pub mod lines;
pub mod modules;
pub mod workspace;
