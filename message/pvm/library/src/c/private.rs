//! What libgpvm3 needs of this library, besides `pvm3.h`'s functions: the way to the daemon,
//! the words that groups share, and waiting for them. The two libraries are of one build;
//! nobody else calls these.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Acquire;

use pvm::error::Error;
use pvm::wire::{Answer, GroupRequest, Request};

use super::library::{Code, quietly};

fn code(result: Result<(), Code>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(Code(code)) => code,
    }
}

/// Asks the daemon about groups: `request` is a [`GroupRequest`] in postcard's encoding, so is
/// the [`Answer`], in memory that the caller frees with free(). Makes the process a task.
/// Returns 0 or PVM's error code, which is not told.
///
/// # Safety
/// `request` has `length` bytes; the other two can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nagaya_pvm_ask(
    request: *const c_void,
    length: usize,
    answer: *mut *mut c_void,
    answer_length: *mut usize,
) -> c_int {
    code(quietly(|library| {
        // SAFETY: as our caller says.
        let request = unsafe { std::slice::from_raw_parts(request.cast::<u8>(), length) };
        let request: GroupRequest = postcard::from_bytes(request).map_err(|_| Error::BadParam)?;
        let reply: Answer = library.ask(Request::Group(request))?;
        let reply = postcard::to_extend(&reply, Vec::new()).map_err(|_| Error::SysErr)?;
        // SAFETY: as much memory as is copied into it; the caller lets us write the rest.
        unsafe {
            let memory = libc::malloc(reply.len());
            if memory.is_null() {
                return Err(Error::NoMem.into());
            }
            memory.cast::<u8>().copy_from_nonoverlapping(reply.as_ptr(), reply.len());
            *answer = memory;
            *answer_length = reply.len();
        }
        Ok(())
    }))
}

/// The plain memory of the host's window, which begins with the groups' slots; null if this is
/// no task. It stays where it is until the task exits.
///
/// # Safety
/// `size` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nagaya_pvm_plain(size: *mut usize) -> *mut c_void {
    let plain = quietly(|library| {
        library.with(|state| {
            let window = state.task.port()?.members().window();
            let plain = window.plain();
            let at = window.address(plain.start, plain.len()).ok_or(Error::SysErr)?;
            Ok((at.as_ptr(), plain.len()))
        })
    });
    let (at, length) = plain.unwrap_or((std::ptr::null_mut(), 0));
    if !size.is_null() {
        // SAFETY: as our caller says.
        unsafe { *size = length };
    }
    at.cast()
}

/// Sleeps until `*word` is no longer `value`: the caller has looked for a while. Meanwhile messages
/// are taken in, handlers run, and other threads may use the library. Who changes the word wakes
/// those who sleep on it by futex. Returns 0, or PvmSysErr if the daemon has gone.
///
/// # Safety
/// `word` can be read, in memory that others share or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nagaya_pvm_wait(word: *const u32, value: u32) -> c_int {
    // SAFETY: as our caller says; an atomic is as large.
    let word = unsafe { &*word.cast::<AtomicU32>() };
    code(quietly(|library| {
        while word.load(Acquire) == value {
            library.wait_while(word, value)?;
        }
        Ok(())
    }))
}
