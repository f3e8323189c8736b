//! libnagaya-coll.so (LD_PRELOAD): MPI's collective operations between the tasks of one space, in
//! which each rank reads its peers' buffers in place; and sends, of which both ranks copy the large
//! ones, and shorter ones wait for no rank that computes.
//!
//! The library comes before the MPI, as the profiling interface of MPI's standard allows. It
//! exports the operations under their names, and passes other calls on. So it works with any MPI,
//! unchanged.
//!
//! A communicator whose ranks are all tasks of one space has a team from its first operation on.
//! Each rank of a team has an outbox in its own memory. It publishes data there that the other
//! ranks read. Steps of operations are numbered, so one word of a rank tells its progress (see the
//! crate `outbox`, which OpenSHMEM uses, too).
//!
//! | module | topic |
//! |---|---|
//! | `abi`, `library`, `types`, `mpi` | the MPI's binary interface, functions, types, constants |
//! | `counts` | 64-bit counts for an MPI without them |
//! | `registry` | the ranks of the space that have this library |
//! | `pool`, `wait`, `team` | outboxes, waiting, the ranks of a communicator |
//! | `buffer`, `kernel` | data as contiguous bytes, loops of reductions |
//! | `spread`, `reduce`, `exchange` | the operations |
//! | `messages` | calls that send, and wait for the end of it |
//! | `assist`, `speeds` | both processors copy large messages, if that is faster |
//! | `buffered`, `late` | messages to ranks that compute |
//! | `calls`, `both` | the exported functions, and their two names |
//! | `names` | the table of the exported functions |

mod abi;
mod assist;
mod both;
mod buffer;
mod buffered;
mod calls;
mod counts;
mod exchange;
mod kernel;
mod late;
mod library;
mod messages;
mod mpi;
mod names;
mod pool;
mod reduce;
mod registry;
mod speeds;
mod spread;
mod team;
mod types;
mod wait;

loaded::stand_before_mpi!(names::NAMES.iter());
