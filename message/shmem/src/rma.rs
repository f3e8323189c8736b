//! Put and get: copies between this PE's memory and symmetric objects of a PE.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::Ordering::{Release, SeqCst};
use std::sync::atomic::{self};

use crate::atomic::{Op, change, check_word};
use crate::context::{self, Handle, target};
use crate::fatal::fatal;
use crate::job::{self, Job, Peer};
use crate::remote::operation::Call;
use crate::strides::Strides;

/// Bytes from which on a copy is made by the loop that is the fastest on this processor for its
/// size: the gate chooses it for process_vm_writev(2).
const PLANNED_MIN: usize = 16 << 10;
/// Most bytes of one such call.
const PLANNED_MAX: usize = 1 << 30;

/// Copies `bytes` bytes to a symmetric object of a PE.
///
/// # Safety
/// `from` has `bytes` bytes, and by the standard's rules nobody else writes both.
#[inline(always)]
pub unsafe fn put(
    function: &str,
    context: Handle,
    object: *mut u8,
    from: *const u8,
    bytes: usize,
    pe: c_int,
) {
    // SAFETY: this function has the contract of the called one.
    unsafe { put_all(function, context, object, from, bytes, pe, true) }
}

/// The same; `from` may be changed after `quiet`.
///
/// # Safety
/// That of [`put`], until then.
#[inline(always)]
pub unsafe fn put_nbi(
    function: &str,
    context: Handle,
    object: *mut u8,
    from: *const u8,
    bytes: usize,
    pe: c_int,
) {
    // SAFETY: this function has the contract of the called one.
    unsafe { put_all(function, context, object, from, bytes, pe, false) }
}

#[inline(always)]
unsafe fn put_all(
    function: &str,
    context: Handle,
    object: *mut u8,
    from: *const u8,
    bytes: usize,
    pe: c_int,
    waits: bool,
) {
    if bytes == 0 {
        return check(function, context, pe);
    }
    let (job, peer) = target(function, context, pe);
    if peer.is_far() {
        let call = Call { f: function, job, context, peer };
        // SAFETY: this function has the contract of the called one.
        return unsafe { call.put(object, from, bytes, waits) };
    }
    let to = job.reach(function, object, bytes, peer);
    // SAFETY: `reach` has checked the target; the caller guarantees the source.
    unsafe { copy(function, job, peer, from, to, bytes, true) };
    peer.wake();
}

/// Copies `bytes` bytes from a symmetric object of a PE.
///
/// # Safety
/// `to` has `bytes` bytes, and by the standard's rules nobody else writes both.
#[inline(always)]
pub unsafe fn get(
    function: &str,
    context: Handle,
    to: *mut u8,
    object: *const u8,
    bytes: usize,
    pe: c_int,
) {
    // SAFETY: this function has the contract of the called one.
    unsafe { get_all(function, context, to, object, bytes, pe, true) }
}

/// The same; `to` has the bytes after `quiet`.
///
/// # Safety
/// That of [`get`], until then.
#[inline(always)]
pub unsafe fn get_nbi(
    function: &str,
    context: Handle,
    to: *mut u8,
    object: *const u8,
    bytes: usize,
    pe: c_int,
) {
    // SAFETY: this function has the contract of the called one.
    unsafe { get_all(function, context, to, object, bytes, pe, false) }
}

#[inline(always)]
unsafe fn get_all(
    function: &str,
    context: Handle,
    to: *mut u8,
    object: *const u8,
    bytes: usize,
    pe: c_int,
    waits: bool,
) {
    if bytes == 0 {
        return check(function, context, pe);
    }
    let (job, peer) = target(function, context, pe);
    if peer.is_far() {
        let call = Call { f: function, job, context, peer };
        // SAFETY: this function has the contract of the called one.
        return unsafe { call.get(to, object, bytes, waits) };
    }
    let from = job.reach(function, object, bytes, peer);
    // SAFETY: `reach` has checked the source; the caller guarantees the target.
    unsafe { copy(function, job, peer, from, to, bytes, false) };
}

/// Copies `bytes` bytes to a symmetric object of a PE, then updates a signal there: a word, an
/// operation on it, and its operand.
///
/// # Safety
/// That of [`put`].
#[inline(always)]
pub unsafe fn put_signal(
    function: &str,
    context: Handle,
    object: *mut u8,
    from: *const u8,
    bytes: usize,
    signal: (*mut u64, Op, u64),
    pe: c_int,
) {
    let (job, peer) = target(function, context, pe);
    if peer.is_far() {
        let call = Call { f: function, job, context, peer };
        check_word::<u64>(function, signal.0.cast());
        // SAFETY: this function has the contract of the called one.
        return unsafe { call.put_signal(object, from, bytes, signal) };
    }
    // SAFETY: this function has the contract of the called one.
    unsafe { put(function, context, object, from, bytes, pe) };
    atomic::fence(Release);
    let (word, op, value) = signal;
    change::<u64>(function, context, op, word.cast(), value, pe);
}

/// Orders all earlier puts and atomic operations of this PE before all later ones. The processor
/// keeps the order of ordinary stores; the gate's copies end with a fence of their own.
#[inline(always)]
pub fn fence() {
    atomic::fence(Release);
    if let Some(far) = job::try_get().and_then(|job| job.far.as_deref()) {
        far.fence();
    }
}

/// Completes all earlier operations of this PE in the default context: all PEs see them.
#[inline(always)]
pub fn quiet() {
    quiet_context("quiet", context::default());
}

/// Completes all earlier operations of this PE in a context.
#[inline(always)]
pub fn quiet_context(function: &str, context: Handle) {
    atomic::fence(SeqCst);
    // SHMEM_CTX_INVALID has no operations: an example of the standard completes it.
    if context.is_null() {
        return;
    }
    if let Some(far) = job::try_get().and_then(|job| job.far.as_deref()) {
        far.quiet(function, context::marks(function, context));
    }
}

/// Checks the PE of an operation without data.
fn check(function: &str, context: Handle, pe: c_int) {
    job::get(function).peer(function, context::pe(function, context, pe));
}

/// Copies between this PE's memory and a peer's. `is_put`: the peer's is the target.
#[inline(always)]
unsafe fn copy(
    function: &str,
    job: &Job,
    peer: &Peer,
    from: *const u8,
    to: *mut u8,
    bytes: usize,
    is_put: bool,
) {
    if bytes >= PLANNED_MIN && job.task.is_some() {
        // SAFETY: this function has the contract of the called one.
        return unsafe { copy_planned(function, peer, from, to, bytes, is_put) };
    }
    // A program may name the same object as source and target.
    // SAFETY: the callers guarantee both ranges.
    unsafe { ptr::copy(from, to, bytes) };
}

/// Copies by process_vm_writev(2) or process_vm_readv(2), which the gate answers in a space.
unsafe fn copy_planned(
    function: &str,
    peer: &Peer,
    from: *const u8,
    to: *mut u8,
    bytes: usize,
    is_put: bool,
) {
    let mut done = 0;
    while done < bytes {
        let iov_len = (bytes - done).min(PLANNED_MAX);
        let from = libc::iovec { iov_base: from.wrapping_add(done).cast_mut().cast(), iov_len };
        let to = libc::iovec { iov_base: to.wrapping_add(done).cast(), iov_len };
        // SAFETY: the kernel, or the gate, checks all addresses. The callers guarantee that the
        // ranges may be accessed.
        let copied = unsafe {
            match is_put {
                true => libc::process_vm_writev(peer.pid, &from, 1, &to, 1, 0),
                false => libc::process_vm_readv(peer.pid, &to, 1, &from, 1, 0),
            }
        };
        match usize::try_from(copied) {
            Ok(copied) if copied > 0 => done += copied,
            _ => {
                let error = std::io::Error::last_os_error();
                fatal!(function, "cannot copy {bytes} bytes, PE {}: {error}", peer.pe)
            }
        }
    }
}

/// Copies elements to a symmetric object of a PE.
///
/// # Safety
/// That of [`put`], for each element.
pub unsafe fn iput(
    function: &str,
    context: Handle,
    object: *mut u8,
    from: *const u8,
    strides: Strides,
    pe: c_int,
) {
    if strides.n == 0 {
        return check(function, context, pe);
    }
    let (job, peer) = target(function, context, pe);
    strides.check(function);
    if peer.is_far() {
        let call = Call { f: function, job, context, peer };
        // SAFETY: this function has the contract of the called one.
        return unsafe { call.put_elements(object, from, strides) };
    }
    let to = job.reach(function, object, strides.span(strides.target), peer);
    // SAFETY: `reach` has checked the whole target; the caller guarantees the source.
    unsafe { scatter(from, to, strides) };
    peer.wake();
}

/// Copies elements from a symmetric object of a PE.
///
/// # Safety
/// That of [`get`], for each element.
pub unsafe fn iget(
    function: &str,
    context: Handle,
    to: *mut u8,
    object: *const u8,
    strides: Strides,
    pe: c_int,
) {
    if strides.n == 0 {
        return check(function, context, pe);
    }
    let (job, peer) = target(function, context, pe);
    strides.check(function);
    if peer.is_far() {
        let call = Call { f: function, job, context, peer };
        // SAFETY: this function has the contract of the called one.
        return unsafe { call.get_elements(to, object, strides) };
    }
    let from = job.reach(function, object, strides.span(strides.source), peer);
    // SAFETY: `reach` has checked the whole source; the caller guarantees the target.
    unsafe { scatter(from, to, strides) };
}

/// Copies elements.
///
/// # Safety
/// All elements of both exist.
pub unsafe fn scatter(from: *const u8, to: *mut u8, strides: Strides) {
    let Strides { element, target, source, n } = strides;
    for at in 0..n as isize {
        let from = from.wrapping_offset(at * source * element as isize);
        let to = to.wrapping_offset(at * target * element as isize);
        // SAFETY: the callers guarantee all elements.
        unsafe { ptr::copy(from, to, element) };
    }
}
