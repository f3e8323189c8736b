//! Calls that send messages and wait for their end. While they wait for the end of a large one,
//! both processors copy (`assist`). A shorter one to a peer that computes is copied into a buffer,
//! and nobody waits (`buffered`). All other calls are the MPI's.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use sync::pieces::BYTES_MIN;

use crate::abi::{Handle, SUCCESS};
use crate::assist::help_until;
use crate::both::both;
use crate::buffered::{self, Message};
use crate::mpi::{Mpi, mpi};
use crate::wait::ticks;

/// A type and its size; none at first. If threads store different ones at once, a message may be
/// taken for a larger or smaller one than it is.
static LAST_TYPE: AtomicUsize = AtomicUsize::new(usize::MAX);
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

/// Returns true if a message is shorter than all with which this library does anything: the common
/// case, which must cost next to nothing. False if that is not known at once.
#[inline]
fn is_small(mpi: &Mpi, count: c_int, kind: Handle) -> bool {
    let size = LAST_SIZE.load(Relaxed);
    let is_last = LAST_TYPE.load(Relaxed) == mpi.handle(kind);
    is_last && count >= 0 && (count as u64).saturating_mul(size as u64) < *buffered::SIZES.start()
}

/// Returns the size of a message in bytes; 0 if its elements are not of a predefined type, or the
/// MPI is unknown.
fn size_of_message(mpi: &Mpi, message: &Message) -> u64 {
    let Ok(count) = usize::try_from(message.count) else { return 0 };
    if mpi.is_unknown() {
        return 0;
    }
    let kind = mpi.handle(message.kind);
    let size = match LAST_TYPE.load(Relaxed) == kind {
        true => LAST_SIZE.load(Relaxed),
        false => bytes_of(mpi, kind),
    };
    count.saturating_mul(size) as u64
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
        // SAFETY: by this function's contract a request is there, which is active, inactive or
        // null. The status is MPI_STATUS_IGNORE.
        let code = unsafe {
            (mpi.get_status)(mpi.abi.handle_at(request, 0), &mut is_done, mpi.status_ignore())
        };
        code != SUCCESS || is_done != 0
    });
    let vain = if was_invited { 0 } else { VAIN.load(Relaxed) + 1 };
    VAIN.store(vain, Relaxed);
}

/// Sends a message. If it is large, both processors copy it.
///
/// # Safety
/// The arguments are those of MPI_Send.
unsafe fn send(mpi: &Mpi, message: &Message, bytes: u64) -> c_int {
    let Message { from, count, kind, to, tag, comm } = *message;
    if bytes < BYTES_MIN || !is_promising() {
        // SAFETY: MPI's function gets the arguments of its caller.
        return unsafe { (mpi.send)(from, count, kind, to, tag, comm) };
    }
    let mut request: Handle = 0;
    // SAFETY: MPI_Isend has the arguments of MPI_Send, and a variable for the request, which
    // MPI_Wait ends.
    unsafe {
        match (mpi.isend)(from, count, kind, to, tag, comm, &mut request) {
            SUCCESS => {
                help_with(mpi, &mut request);
                (mpi.wait)(&mut request, mpi.status_ignore())
            }
            error => error,
        }
    }
}

/// MPI_Send of a message that may not be small.
///
/// # Safety
/// The arguments are those of MPI_Send.
#[inline(never)]
unsafe fn send_long(
    from: *const u8,
    count: c_int,
    kind: Handle,
    to: c_int,
    tag: c_int,
    comm: Handle,
) -> c_int {
    let mpi = mpi();
    let message = Message { from, count, kind, to, tag, comm };
    let bytes = size_of_message(mpi, &message);
    if !buffered::SIZES.contains(&bytes) {
        // SAFETY: the arguments are the caller's.
        return unsafe { send(mpi, &message, bytes) };
    }
    // SAFETY: the arguments are the caller's.
    if let Some(code) = unsafe { buffered::send(mpi, &message, bytes) } {
        return code;
    }
    let begin = ticks();
    // SAFETY: the arguments are the caller's.
    let code = unsafe { send(mpi, &message, bytes) };
    buffered::ended(mpi, &message, bytes, ticks().wrapping_sub(begin));
    code
}

/// MPI_Isend of a message that may not be small.
///
/// # Safety
/// The arguments are those of MPI_Isend.
#[inline(never)]
unsafe fn start_long(mpi: &Mpi, message: &Message, request: *mut Handle) -> c_int {
    let bytes = size_of_message(mpi, message);
    let is_short = buffered::SIZES.contains(&bytes);
    if is_short {
        // SAFETY: the arguments are the caller's.
        if let Some(code) = unsafe { buffered::start(mpi, message, bytes, request) } {
            return code;
        }
    }
    if bytes >= BYTES_MIN && is_promising() {
        HELPING.fetch_add(HELPING_EACH, Relaxed);
    }
    let Message { from, count, kind, to, tag, comm } = *message;
    // SAFETY: MPI's function gets the arguments of its caller.
    let code = unsafe { (mpi.isend)(from, count, kind, to, tag, comm, request) };
    if is_short && code == SUCCESS {
        // SAFETY: MPI has written a handle into the caller's variable.
        buffered::watch(unsafe { mpi.abi.handle_at(request, 0) }, message, bytes);
    }
    code
}

both! { MPI_Send PMPI_Send (
    from: *const u8, count: c_int, kind: Handle, to: c_int, tag: c_int, comm: Handle,
) {
    let mpi = mpi();
    // SAFETY: the arguments are the caller's.
    unsafe {
        match is_small(mpi, count, kind) {
            true => (mpi.send)(from, count, kind, to, tag, comm),
            false => send_long(from, count, kind, to, tag, comm),
        }
    }
} }

both! { MPI_Isend PMPI_Isend (
    from: *const u8, count: c_int, kind: Handle, to: c_int, tag: c_int, comm: Handle,
    request: *mut Handle,
) {
    let mpi = mpi();
    if is_small(mpi, count, kind) {
        // SAFETY: MPI's function gets the arguments of its caller.
        return unsafe { (mpi.isend)(from, count, kind, to, tag, comm, request) };
    }
    let message = Message { from, count, kind, to, tag, comm };
    // SAFETY: the arguments are the caller's.
    unsafe { start_long(mpi, &message, request) }
} }

/// Returns true if this call that waits may help a receiver.
#[inline]
fn helps() -> bool {
    let one_less = |left: usize| left.checked_sub(1);
    HELPING.load(Relaxed) > 0 && HELPING.fetch_update(Relaxed, Relaxed, one_less).is_ok()
}

/// MPI_Wait that may help a receiver, or for a send that is watched.
///
/// # Safety
/// The arguments are those of MPI_Wait.
#[inline(never)]
unsafe fn wait_long(request: *mut Handle, status: *mut c_void, is_watched: bool) -> c_int {
    let mpi = mpi();
    let begin = ticks();
    if helps() {
        // SAFETY: the request is the caller's.
        unsafe { help_with(mpi, request) };
    }
    // SAFETY: MPI's function gets the arguments of its caller.
    let code = unsafe { (mpi.wait)(request, status) };
    if is_watched {
        buffered::waited(mpi, ticks().wrapping_sub(begin));
    }
    code
}

both! { MPI_Wait PMPI_Wait (request: *mut Handle, status: *mut c_void) {
    let mpi = mpi();
    // SAFETY: the arguments are the caller's. One without a valid address breaks MPI's contract.
    unsafe {
        let is_watched = !request.is_null() && buffered::is_watched(mpi.abi.handle_at(request, 0));
        match is_watched || HELPING.load(Relaxed) > 0 {
            false => (mpi.wait)(request, status),
            true => wait_long(request, status, is_watched),
        }
    }
} }

both! { MPI_Waitall PMPI_Waitall (count: c_int, requests: *mut Handle, statuses: *mut c_void) {
    let mpi = mpi();
    if HELPING.load(Relaxed) > 0 {
        HELPING.store(0, Relaxed);
        let bytes = mpi.abi.handle_bytes();
        for number in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the caller passes so many requests, each of a handle's size.
            unsafe { help_with(mpi, requests.wrapping_byte_add(number * bytes)) };
        }
    }
    // SAFETY: MPI's function gets the arguments of its caller.
    unsafe { (mpi.waitall)(count, requests, statuses) }
} }
