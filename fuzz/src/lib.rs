//! Fuzz targets: one for each parser of foreign bytes (docs/fuzzing.md).
//!
//! A target is a function of some bytes. It gives them to a parser, or takes them as a script of
//! messages for a protocol, and panics if the code does something wrong. [`targets`] lists all.
//! `tests/corpora.rs` runs each on its kept corpus and on mutations of that (`mutate`), with a
//! stable compiler. `libfuzzer/` runs them under libFuzzer, guided by coverage. Seeds are valid
//! inputs that code makes; the command `nagaya-fuzz seeds` writes them into `corpus/`.

pub mod corpus;
mod gate;
mod input;
pub mod mutate;
pub mod target;
pub mod targets;
pub mod watch;

pub use gate::text;
