//! Messages as records, for carriers whose peers have a stream of records between them. [`frame`]
//! is the format, [`outgoing`] cuts messages into records, and [`input`] puts records together.

pub mod frame;
pub mod input;
pub mod outgoing;
