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

unsafe extern "C" fn bcast(
    buffer: *mut u8,
    count: i64,
    kind: Handle,
    root: c_int,
    comm: Handle,
) -> c_int {
    match c_int::try_from(count) {
        // SAFETY: the caller's.
        Ok(count) => unsafe { (mpi().short.bcast)(buffer, count, kind, root, comm) },
        Err(_) => too_large(comm),
    }
}

unsafe extern "C" fn reduce(
    from: *const u8,
    to: *mut u8,
    count: i64,
    kind: Handle,
    operator: Handle,
    root: c_int,
    comm: Handle,
) -> c_int {
    match c_int::try_from(count) {
        // SAFETY: the caller's.
        Ok(count) => unsafe { (mpi().short.reduce)(from, to, count, kind, operator, root, comm) },
        Err(_) => too_large(comm),
    }
}

unsafe extern "C" fn allreduce(
    from: *const u8,
    to: *mut u8,
    count: i64,
    kind: Handle,
    operator: Handle,
    comm: Handle,
) -> c_int {
    match c_int::try_from(count) {
        // SAFETY: the caller's.
        Ok(count) => unsafe { (mpi().short.allreduce)(from, to, count, kind, operator, comm) },
        Err(_) => too_large(comm),
    }
}

unsafe extern "C" fn allgather(
    from: *const u8,
    gives: i64,
    given: Handle,
    to: *mut u8,
    takes: i64,
    taken: Handle,
    comm: Handle,
) -> c_int {
    match (c_int::try_from(gives), c_int::try_from(takes)) {
        // SAFETY: the caller's.
        (Ok(gives), Ok(takes)) => unsafe {
            (mpi().short.allgather)(from, gives, given, to, takes, taken, comm)
        },
        _ => too_large(comm),
    }
}

unsafe extern "C" fn alltoall(
    from: *const u8,
    gives: i64,
    given: Handle,
    to: *mut u8,
    takes: i64,
    taken: Handle,
    comm: Handle,
) -> c_int {
    match (c_int::try_from(gives), c_int::try_from(takes)) {
        // SAFETY: the caller's.
        (Ok(gives), Ok(takes)) => unsafe {
            (mpi().short.alltoall)(from, gives, given, to, takes, taken, comm)
        },
        _ => too_large(comm),
    }
}
