//! Collective operations between tasks that read each other's memory: the part that MPI and
//! OpenSHMEM share.
//!
//! The ranks of a group take numbered steps. In a step, each rank can publish data in its outbox,
//! and all others read it there. So a rank's arrival and its small data are in one cache line,
//! which each reader fetches once.
//!
//! | module | topic |
//! |---|---|
//! | `outbox` | the memory in which a rank publishes |
//! | `group` | the steps of a rank among others: publish, wait, be done |
//! | `spread` | large data from one rank to another, copied by both |
//! | `kernel` | the loops of reductions |
//! | `number` | numbers that reductions combine |
//! | `slices` | shares of a reduction's elements |
//! | `atomic` | atomic words, which models watch |

pub mod atomic;
pub mod group;
pub mod kernel;
pub mod number;
pub mod outbox;
pub mod slices;
pub mod spread;
