//! libnagaya-traffic.so (LD_PRELOAD): counts the messages of a rank: their number, bytes and
//! receivers by size, and the calls of MPI's functions with their time.
//!
//! The library stands before the MPI, as the profiling interface of MPI's standard allows. It
//! exports MPI's functions, counts, and passes each call on. Programs in Fortran, whose functions
//! the MPI implements by those of C, are counted, too. In MPI_Finalize it writes a record into the
//! directory that `NAGAYA_TRAFFIC_DIR` names (`traffic::Record`). Without that variable it counts
//! for nobody.
//!
//! Not counted: calls that an MPI makes to itself, functions that only one MPI has (`MPIX_`), and
//! jobs that use sessions (MPI 4) without MPI_Init.
//!
//! | module | topic |
//! |---|---|
//! | `arguments` | the size and the receiver that the arguments of a call give |
//! | `mpi` | the MPI's functions and constants |
//! | `counts` | the counts of this rank |
//! | `calls` | the exported functions |
//! | `record` | the record at the end |

mod arguments;
mod calls;
mod counts;
mod mpi;
mod record;

loaded::stand_before_mpi!(calls::names());
