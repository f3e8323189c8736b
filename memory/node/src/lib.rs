//! The page engine of a node. It drives the [coherence] protocols over real memory and a real
//! network for all three users: software distributed shared memory (`dsm`), one process over
//! several nodes (`span`) and one space over several machines (`machines`). The users add their
//! own parts: locks and barriers, system calls and threads, tasks and segments.
//!
//! | module | topic |
//! |---|---|
//! | [`driver`] | the event loop, with or without a thread of its own |
//! | [`sequential`] | carries out what sequential consistency wants done with pages |
//! | [`memory`] | the memory that an engine serves: one trait over both kinds of `pager` |
//! | [`batch`] | neighbouring pages and small messages are processed together |
//! | [`flush`] | how long an engine that ends keeps sending |
//! | [`residency`] | how long pages stay, and which leave first when memory is short |
//! | [`changes`] | changes of pages that all nodes make together |
//!
//! Prediction is the protocol's ([`coherence::ride`]); users tell it which pages there are.

pub mod batch;
pub mod changes;
pub mod driver;
pub mod flush;
pub mod memory;
pub mod residency;
pub mod sequential;
