//! The functions with large counts, for an MPI that has none: counts that fit into an `int` are
//! handed to the functions that count so.
//!
//! `visibility` hides our functions with large counts where the MPI has none, but not from
//! libraries that were bound before it could.

use std::ffi::c_int;

use crate::mpi::{Handle, Operations, SUCCESS, mpi};

/// `MPI_ERR_COUNT`, in all interfaces that we know.
const ERR_COUNT: c_int = 2;

/// The functions.
pub const OPERATIONS: Operations<i64> =
    Operations { bcast, reduce, allreduce, allgather, alltoall };

fn too_large(comm: Handle) -> c_int {
    // SAFETY: MPI's own error, for the handler of the communicator, which may not return.
    match unsafe { (mpi().comm_call_errhandler)(comm, ERR_COUNT) } {
        SUCCESS => ERR_COUNT,
        error => error,
    }
}

/// Defines operations that hand their counts on as `int`. `counts` names them, `comm` the
/// communicator whose handler is told of one that does not fit.
macro_rules! narrowed {
    ($($operation:ident($($argument:ident: $type:ty),*), counts $($count:ident)*, $comm:ident;)*) => {
        $(unsafe extern "C" fn $operation($($argument: $type),*) -> c_int {
            $(let Ok($count) = c_int::try_from($count) else { return too_large($comm) };)*
            // SAFETY: the caller's arguments, as MPI has them.
            unsafe { (mpi().short.$operation)($($argument),*) }
        })*
    };
}

narrowed! {
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
