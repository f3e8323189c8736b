//! FCP: message passing through shared memory in which only receivers have buffers, and
//! senders write into them (Kikuchi et al., *Design and evaluation of PVM on the parallel
//! computer system FOLON*).
//!
//! `ring` is the queue itself, free of locks, system calls and clocks, and model-checked;
//! `mapped` lays it out in memory that processes share; `wait` is how one waits for
//! another process; `endpoint` puts them together.

pub mod endpoint;
pub mod mapped;
pub mod ring;
pub mod wait;
