//! The binary interface of MPI libraries: handles, constants and types of functions. (`loaded::Abi`
//! has the differences between MPIs.)

use std::ffi::{c_int, c_void};

/// A communicator, type or operator: a pointer in Open MPI, a number in MPICH.
pub type Handle = usize;

/// `MPI_SUCCESS`.
pub const SUCCESS: c_int = 0;

/// The callback of an attribute when its communicator is duplicated.
pub type CopyAttribute =
    extern "C" fn(Handle, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
/// The callback of an attribute when its communicator is freed.
pub type DeleteAttribute = extern "C" fn(Handle, c_int, *mut c_void, *mut c_void) -> c_int;

/// The callback of a generalized request that fills in its status.
pub type Query = extern "C" fn(*mut c_void, *mut c_void) -> c_int;
/// The callback of a generalized request that frees its state.
pub type Free = extern "C" fn(*mut c_void) -> c_int;
/// The callback of a generalized request that cancels it.
pub type Cancel = extern "C" fn(*mut c_void, c_int) -> c_int;
/// `MPI_Allgather` and `MPI_Alltoall`.
pub type Exchange<Count> =
    unsafe extern "C" fn(*const u8, Count, Handle, *mut u8, Count, Handle, Handle) -> c_int;
/// `MPI_Reduce`.
pub type Reduce<Count> =
    unsafe extern "C" fn(*const u8, *mut u8, Count, Handle, Handle, c_int, Handle) -> c_int;
/// `MPI_Allreduce`.
pub type Allreduce<Count> =
    unsafe extern "C" fn(*const u8, *mut u8, Count, Handle, Handle, Handle) -> c_int;
/// `MPI_Bcast`.
pub type Bcast<Count> = unsafe extern "C" fn(*mut u8, Count, Handle, c_int, Handle) -> c_int;

/// The MPI's collective operations with counts of one type.
pub struct Operations<Count> {
    pub bcast: Bcast<Count>,
    pub reduce: Reduce<Count>,
    pub allreduce: Allreduce<Count>,
    pub allgather: Exchange<Count>,
    pub alltoall: Exchange<Count>,
}
