//! Calls that wait for the end of a large message. While they wait, both processors copy
//! (`assist`). All other calls are the MPI's.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use sync::pieces::BYTES_MIN;

use crate::abi::{Abi, Handle, SUCCESS};
use crate::assist::help_until;
use crate::both::both;
use crate::mpi::{Mpi, mpi};

/// A type and its size. If the type has been freed and its handle names another one, a message is
/// only taken for a larger or smaller one than it is.
static LAST_TYPE: AtomicUsize = AtomicUsize::new(0);
static LAST_SIZE: AtomicUsize = AtomicUsize::new(0);

/// Calls that wait after the start of a large message, and help its receiver. Which one waits for
/// that message, only the MPI knows.
static HELPING: AtomicUsize = AtomicUsize::new(0);
/// Number of such calls for each message: a program may wait for a receive first.
const HELPING_EACH: usize = 2;

/// Waits for large messages in a row in which no receiver has invited this rank.
static VAIN: AtomicUsize = AtomicUsize::new(0);
/// Large messages since [`VAIN`] has reached its limit.
static SKIPPED: AtomicUsize = AtomicUsize::new(0);
/// Limit of such waits. Beyond it, only each sixteenth large message is waited for with help.
const VAIN_MAX: usize = 16;

/// Returns true if receivers have invited this rank lately, or it is time to try again. The MPI's
/// own waits are cheaper: some MPIs do not read by process_vm_readv(2), and where the processors
/// are near, one is faster.
fn is_promising() -> bool {
    VAIN.load(Relaxed) < VAIN_MAX || SKIPPED.fetch_add(1, Relaxed).is_multiple_of(VAIN_MAX)
}

/// Returns true if a message is large enough for two copiers, and that may pay.
#[inline]
fn is_large(mpi: &Mpi, count: c_int, kind: Handle) -> bool {
    let Ok(count) = usize::try_from(count) else { return false };
    if mpi.abi.is_none() {
        return false;
    }
    let kind = mpi.handle(kind);
    let size = match LAST_TYPE.load(Relaxed) == kind && kind != 0 {
        true => LAST_SIZE.load(Relaxed),
        false => bytes_of(mpi, kind),
    };
    count.saturating_mul(size) as u64 >= BYTES_MIN && is_promising()
}

#[cold]
fn bytes_of(mpi: &Mpi, kind: Handle) -> usize {
    // The MPI reports the error of an invalid type.
    let size = mpi.types.named(kind).map_or(0, |named| named.size);
    LAST_SIZE.store(size, Relaxed);
    LAST_TYPE.store(kind, Relaxed);
    size
}

/// Helps receivers until a request is done. The caller's function of the MPI ends the request
/// afterwards, and reports its status and errors.
///
/// # Safety
/// `request` is an argument of MPI_Wait.
unsafe fn help_with(mpi: &Mpi, request: *mut Handle) {
    let was_invited = help_until(|| {
        let mut is_done: c_int = 0;
        // MPI passes requests by value: a pointer, or a number of 32 bits.
        // SAFETY: by this function's contract a request is there.
        let handle = unsafe {
            match mpi.abi {
                Some(Abi::Mpich) => request.cast::<u32>().read() as Handle,
                _ => request.read(),
            }
        };
        // SAFETY: the request is active, inactive or null; the status is MPI_STATUS_IGNORE.
        let code = unsafe { (mpi.get_status)(handle, &mut is_done, mpi.status_ignore()) };
        code != SUCCESS || is_done != 0
    });
    let vain = if was_invited { 0 } else { VAIN.load(Relaxed) + 1 };
    VAIN.store(vain, Relaxed);
}

both! { MPI_Send PMPI_Send (
    from: *const u8, count: c_int, kind: Handle, to: c_int, tag: c_int, comm: Handle,
) {
    let mpi = mpi();
    if is_large(mpi, count, kind) {
        let mut request: Handle = 0;
        // SAFETY: MPI_Isend has the arguments of MPI_Send, and a variable for the request, which
        // MPI_Wait ends.
        return unsafe {
            match (mpi.isend)(from, count, kind, to, tag, comm, &mut request) {
                SUCCESS => {
                    help_with(mpi, &mut request);
                    (mpi.wait)(&mut request, mpi.status_ignore())
                }
                error => error,
            }
        };
    }
    // SAFETY: MPI's function gets the arguments of its caller.
    unsafe { (mpi.send)(from, count, kind, to, tag, comm) }
} }

both! { MPI_Isend PMPI_Isend (
    from: *const u8, count: c_int, kind: Handle, to: c_int, tag: c_int, comm: Handle,
    request: *mut Handle,
) {
    let mpi = mpi();
    if is_large(mpi, count, kind) {
        HELPING.fetch_add(HELPING_EACH, Relaxed);
    }
    // SAFETY: MPI's function gets the arguments of its caller.
    unsafe { (mpi.isend)(from, count, kind, to, tag, comm, request) }
} }

/// Returns true if this call that waits may help a receiver.
#[inline]
fn helps() -> bool {
    let one_less = |left: usize| left.checked_sub(1);
    HELPING.load(Relaxed) > 0 && HELPING.fetch_update(Relaxed, Relaxed, one_less).is_ok()
}

both! { MPI_Wait PMPI_Wait (request: *mut Handle, status: *mut c_void) {
    let mpi = mpi();
    if helps() {
        // SAFETY: the request is the caller's.
        unsafe { help_with(mpi, request) };
    }
    // SAFETY: MPI's function gets the arguments of its caller.
    unsafe { (mpi.wait)(request, status) }
} }

both! { MPI_Waitall PMPI_Waitall (count: c_int, requests: *mut Handle, statuses: *mut c_void) {
    let mpi = mpi();
    if HELPING.load(Relaxed) > 0 {
        HELPING.store(0, Relaxed);
        let bytes = if mpi.abi == Some(Abi::Mpich) { size_of::<u32>() } else { size_of::<Handle>() };
        for number in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the caller passes so many requests, each of a handle's size.
            unsafe { help_with(mpi, requests.wrapping_byte_add(number * bytes)) };
        }
    }
    // SAFETY: MPI's function gets the arguments of its caller.
    unsafe { (mpi.waitall)(count, requests, statuses) }
} }
