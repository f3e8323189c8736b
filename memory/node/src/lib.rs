//! The page engine of a node. It drives the [coherence] protocols over real memory and a real
//! network.
//!
//! Three crates use it: `dsm` (software distributed shared memory), `span` (one process over
//! several nodes) and `cluster` (one address space over several machines). Each adds its own part:
//! locks and barriers, system calls and threads, or tasks and segments.
//!
//! | module | topic |
//! |---|---|
//! | [`driver`] | the event loop, with or without a dedicated thread |
//! | [`sequential`] | carries out the actions of the sequentially consistent protocol |
//! | [`scope`] | carries out the actions of the scope-consistent protocol |
//! | [`twins`] | twins of pages, their diffs, and kept message bodies |
//! | [`memory`] | one trait over both kinds of memory of `pager` |
//! | [`batch`] | batching of neighbouring pages and of messages without pages |
//! | [`flush`] | how long an engine that stops keeps sending |
//! | [`residency`] | how long pages stay mapped, and the order of eviction |
//! | [`changes`] | changes of pages that all nodes make together |
//!
//! The protocol predicts pages ([`coherence::ride`]). Users of the engine register the pages that
//! may be predicted.

pub mod batch;
pub mod changes;
pub mod driver;
pub mod flush;
pub mod memory;
pub mod residency;
pub mod scope;
pub mod sequential;
pub mod twins;
