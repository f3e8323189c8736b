//! Memory management.
//!
//! Calls of these functions are collective, so that all heaps stay alike. Each PE tells the next
//! one the result of an allocation, and compares that of the one before.

use std::ffi::{c_int, c_long, c_void};
use std::ptr;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::abi::export::export;
use crate::fatal::fatal;
use crate::heap::{Heap, UNIT};
use crate::job::{self, Job};
use crate::symmetric::HEAP_ALIGNMENT;
use crate::{meet, rma, settings};

/// Number of collective allocations so far.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn locked(job: &Job) -> std::sync::MutexGuard<'_, Heap> {
    job.allocator.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the offset of a new object. None if there is no room, which SHMEM_DEBUG reports.
fn take(f: &str, job: &Job, bytes: usize, alignment: usize) -> Option<usize> {
    let mut heap = locked(job);
    let offset = heap.allocate(bytes, alignment);
    if offset.is_none() && settings::is_debug() {
        proc::error_line!(
            "nagaya-shmem: PE {}: {f}: no room for {bytes} bytes: {} of {} are in use \
             (SHMEM_SYMMETRIC_SIZE)",
            job.me,
            heap.used(),
            heap.limit()
        );
    }
    offset
}

/// Meets all PEs after an allocation of `bytes` bytes. Ends the job if another PE called with
/// other arguments, or got other memory.
fn agree(f: &str, job: &Job, bytes: usize, offset: Option<usize>) {
    let number = ALLOCATIONS.fetch_add(1, Relaxed) + 1;
    let found = offset.map_or(0, |offset| (offset / UNIT) as u64 + 1);
    // Both numbers of usual sizes fit, and different large ones differ nearly always.
    let word = found << 32 ^ bytes as u64;
    let at = (number % 2) as usize;
    let next = &job.peers[(job.me + 1) % job.n];
    let before = (job.me + job.n - 1) % job.n;
    // It arrives before the next PE leaves the meeting, since this PE also notifies it of that.
    meet::notify(job, next, &job.block().allocations[at], word);
    rma::quiet();
    meet::all(job);
    // The PE before writes this word again only after the next meeting.
    let theirs = job.block().allocations[at].load(Acquire);
    if theirs != word {
        fatal!(
            f,
            "PE {before} allocates other memory at this point: all PEs must call this function alike"
        );
    }
}

/// Allocates memory in all PEs. Null if there is none, or for no bytes.
pub fn allocate(f: &str, bytes: usize, alignment: usize) -> *mut c_void {
    let job = job::get(f);
    if bytes == 0 {
        return ptr::null_mut();
    }
    let offset = take(f, job, bytes, alignment);
    agree(f, job, bytes, offset);
    match offset {
        Some(offset) => ptr::with_exposed_provenance_mut(job.heap.start + offset),
        None => ptr::null_mut(),
    }
}

export!(["malloc"] (bytes: usize) -> *mut c_void { allocate("shmem_malloc", bytes, UNIT) });
export!(["malloc_with_hints"] (bytes: usize, _hints: c_long) -> *mut c_void {
    allocate("shmem_malloc_with_hints", bytes, UNIT)
});
export!(["align"] (alignment: usize, bytes: usize) -> *mut c_void {
    align("shmem_align", alignment, bytes)
});

/// Allocates memory with an alignment in all PEs. Null if the alignment is no power of two or too
/// large.
pub fn align(f: &str, alignment: usize, bytes: usize) -> *mut c_void {
    let is_valid = alignment.is_power_of_two() && alignment <= HEAP_ALIGNMENT;
    if is_valid { allocate(f, bytes, alignment) } else { ptr::null_mut() }
}

export!(["calloc"] (n: usize, size: usize) -> *mut c_void {
    let job = job::get("shmem_calloc");
    let Some(bytes) = n.checked_mul(size).filter(|&bytes| bytes > 0) else {
        return ptr::null_mut();
    };
    let offset = take("shmem_calloc", job, bytes, UNIT);
    let at = offset.map(|offset| ptr::with_exposed_provenance_mut::<u8>(job.heap.start + offset));
    if let Some(at) = at {
        // SAFETY: the object has `bytes` bytes, and no PE knows it yet.
        unsafe { at.write_bytes(0, bytes) };
    }
    agree("shmem_calloc", job, bytes, offset);
    at.map_or(ptr::null_mut(), |at| at.cast())
});

/// Returns the offset of an object in the heap.
fn offset_of(f: &str, job: &Job, at: *const c_void) -> usize {
    let offset = at.addr().wrapping_sub(job.heap.start);
    if locked(job).size(offset).is_none() {
        fatal!(f, "{at:p} is not the address of an object in the symmetric heap");
    }
    offset
}

export!(["free"] (at: *mut c_void) { free("shmem_free", at) });
export!(["realloc"] (at: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the standard's contract.
    unsafe { realloc("shmem_realloc", at, bytes) }
});

/// Frees an object in all PEs.
pub fn free(f: &str, at: *mut c_void) {
    let job = job::get(f);
    if at.is_null() {
        return;
    }
    let offset = offset_of(f, job, at);
    rma::quiet();
    meet::all(job);
    locked(job).free(offset);
}

/// Changes the size of an object in all PEs.
///
/// # Safety
/// No PE uses the object during the call.
pub unsafe fn realloc(f: &str, at: *mut c_void, bytes: usize) -> *mut c_void {
    let job = job::get(f);
    if at.is_null() {
        return allocate(f, bytes, UNIT);
    }
    let offset = offset_of(f, job, at);
    rma::quiet();
    meet::all(job);
    if bytes == 0 {
        locked(job).free(offset);
        return ptr::null_mut();
    }
    let before = locked(job).size(offset).unwrap_or(0);
    let new = take(f, job, bytes, UNIT);
    if let Some(new) = new {
        let to = ptr::with_exposed_provenance_mut::<u8>(job.heap.start + new);
        // SAFETY: two objects of the heap, of at least these sizes, that do not overlap.
        unsafe { ptr::copy_nonoverlapping(at.cast::<u8>(), to, before.min(bytes)) };
        locked(job).free(offset);
    }
    agree(f, job, bytes, new);
    new.map_or(ptr::null_mut(), |new| ptr::with_exposed_provenance_mut(job.heap.start + new))
}

export!(["addr_accessible"] (at: *const c_void, pe: c_int) -> c_int {
    let job = job::get("shmem_addr_accessible");
    let peer = usize::try_from(pe).ok().and_then(|pe| job.peers.get(pe));
    peer.is_some_and(|peer| job.is_accessible(at.cast(), peer)).into()
});
export!(["pe_accessible"] (pe: c_int) -> c_int {
    let job = job::get("shmem_pe_accessible");
    usize::try_from(pe).is_ok_and(|pe| pe < job.n).into()
});
