//! libnagaya-coll.so (LD_PRELOAD): MPI's collective operations between the tasks of one space,
//! in which each rank reads its peers' buffers in place.
//!
//! The library stands before the MPI, as the standard's profiling interface allows: it has the
//! operations under their names (`calls`), and what it does not do itself it hands to the MPI's
//! own (`mpi`). So any MPI will do, unchanged. A program sees only names that its MPI has, too
//! (`visibility`).
//!
//! A communicator whose ranks are all tasks of one space (`roll` says so) has a `team` from its
//! first operation on. Each rank has a `seat` there, in its own memory, on which it shows what the
//! others are to read; operations are numbered, so one word a rank says how far it is. `spread`,
//! `reduce` and `exchange` are the operations. `buffer` is a rank's data as bytes in a row, `types`
//! what MPI's own types and operators are, `kernel` the loops for the common ones, `rest` how a
//! rank waits.

mod buffer;
mod calls;
mod elf;
mod exchange;
mod kernel;
mod mpi;
mod narrow;
mod reduce;
mod rest;
mod roll;
mod seat;
mod spread;
mod team;
mod types;
mod visibility;
