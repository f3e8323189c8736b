//! The functions with 64-bit counts for an MPI that has none. Counts that fit into an `int` are
//! passed to the functions with such counts.
//!
//! `loaded::names` hides this library's functions with 64-bit counts if the MPI has none, but not
//! from libraries that were bound before it ran.

use std::ffi::c_int;

use crate::abi::{Handle, Operations, SUCCESS};
use crate::mpi::mpi;

/// `MPI_ERR_COUNT`, in all known interfaces.
const ERR_COUNT: c_int = 2;

/// The operations.
pub const OPERATIONS: Operations<i64> =
    Operations { bcast, reduce, allreduce, allgather, alltoall };

fn too_large(comm: Handle) -> c_int {
    // SAFETY: MPI accepts its own error class for the error handler, which may not return.
    match unsafe { (mpi().comm_call_errhandler)(comm, ERR_COUNT) } {
        SUCCESS => ERR_COUNT,
        error => error,
    }
}

/// Defines operations that pass their counts on as `int`. `counts` names the counts, and `comm` the
/// communicator whose error handler gets a count that does not fit.
macro_rules! with_int_counts {
    ($($operation:ident($($argument:ident: $type:ty),*), counts $($count:ident)*, $comm:ident;)*) => {
        $(unsafe extern "C" fn $operation($($argument: $type),*) -> c_int {
            $(let Ok($count) = c_int::try_from($count) else { return too_large($comm) };)*
            // SAFETY: MPI's function gets the arguments of the caller of MPI's function.
            unsafe { (mpi().short.$operation)($($argument),*) }
        })*
    };
}

with_int_counts! {
    bcast(buffer: *mut u8, count: i64, kind: Handle, root: c_int, comm: Handle),
        counts count, comm;
    reduce(from: *const u8, to: *mut u8, count: i64, kind: Handle, operator: Handle, root: c_int,
        comm: Handle), counts count, comm;
    allreduce(from: *const u8, to: *mut u8, count: i64, kind: Handle, operator: Handle,
        comm: Handle), counts count, comm;
    allgather(from: *const u8, gives: i64, given: Handle, to: *mut u8, takes: i64, taken: Handle,
        comm: Handle), counts gives takes, comm;
    alltoall(from: *const u8, gives: i64, given: Handle, to: *mut u8, takes: i64, taken: Handle,
        comm: Handle), counts gives takes, comm;
}
