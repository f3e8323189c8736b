//! Rarely used exports of libpvm: its allocator, and its set of descriptors, which is empty here.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr};

/// Allocates memory, as malloc(3) does. The string names its purpose.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_alloc(size: c_uint, _for: *const c_char) -> *mut c_void {
    // SAFETY: malloc has no preconditions.
    unsafe { libc::malloc(size as usize) }
}

/// Resizes memory of [`pvm_alloc`].
///
/// # Safety
/// `memory` is null or was returned by [`pvm_alloc`], and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_realloc(memory: *mut c_void, size: c_uint) -> *mut c_void {
    // SAFETY: `memory` is null or was returned by [`pvm_alloc`], and is not used afterwards,
    // required of the caller.
    unsafe { libc::realloc(memory, size as usize) }
}

/// Frees memory of [`pvm_alloc`].
///
/// # Safety
/// The same as for [`pvm_realloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_free(memory: *mut c_void) {
    // SAFETY: `memory` is null or was returned by [`pvm_alloc`], and is not used afterwards,
    // required of the caller.
    unsafe { libc::free(memory) }
}

/// Does nothing. libpvm would poll the descriptor; this library polls none.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_fd_add(_descriptor: c_int, _sets: c_int) -> c_int {
    0
}

/// Does nothing, like [`pvm_fd_add`].
#[unsafe(no_mangle)]
pub extern "C" fn pvm_fd_delete(_descriptor: c_int, _sets: c_int) -> c_int {
    0
}

/// The user whose daemon serves this process; -1 for the caller's.
#[unsafe(no_mangle)]
pub static pvm_useruid: AtomicI32 = AtomicI32::new(-1);

/// A buffer of libpvm on historic parallel machines; unused.
#[unsafe(no_mangle)]
pub static pvm_inprecv: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
