//! What libpvm exports and hardly anybody uses: its allocator, and its set of descriptors,
//! which here is none.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr};

/// Memory, as malloc gives it; the string says what for.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_alloc(size: c_uint, _for: *const c_char) -> *mut c_void {
    // SAFETY: always safe.
    unsafe { libc::malloc(size as usize) }
}

/// Changes the size of such memory.
///
/// # Safety
/// `memory` is null or of [`pvm_alloc`], and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_realloc(memory: *mut c_void, size: c_uint) -> *mut c_void {
    // SAFETY: as our caller says.
    unsafe { libc::realloc(memory, size as usize) }
}

/// Frees such memory.
///
/// # Safety
/// As for [`pvm_realloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_free(memory: *mut c_void) {
    // SAFETY: as our caller says.
    unsafe { libc::free(memory) }
}

/// A descriptor that libpvm would wait for: this library waits for none.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_fd_add(_descriptor: c_int, _sets: c_int) -> c_int {
    0
}

/// As [`pvm_fd_add`].
#[unsafe(no_mangle)]
pub extern "C" fn pvm_fd_delete(_descriptor: c_int, _sets: c_int) -> c_int {
    0
}

/// The user whose daemon is looked for; -1 for the caller.
#[unsafe(no_mangle)]
pub static pvm_useruid: AtomicI32 = AtomicI32::new(-1);

/// What libpvm receives into on parallel machines of old: nothing.
#[unsafe(no_mangle)]
pub static pvm_inprecv: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
