//! pvm_getfds: a descriptor that is readable while messages have arrived.
//!
//! A receive buffer is memory, which has no descriptor. After a program has called pvm_getfds, a
//! thread waits for messages, processes them and makes an eventfd readable. The program's next
//! poll for messages resets it.

use std::ffi::c_int;
use std::os::fd::AsRawFd;

use pvm::error::Error;
use pvm::event::{Event, Id};
use pvm::tid::Tid;
use rustix::event::{EventfdFlags, eventfd};

use super::library::{Library, call, quietly};
use super::state::{Code, State};
use super::tracing::traced;

/// Returns the descriptor. Creates it and the thread at the first call.
pub fn descriptor(state: &mut State) -> Result<c_int, Error> {
    if let Some(event) = &state.descriptors.event {
        return Ok(event.as_raw_fd());
    }
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let event = eventfd(0, flags).map_err(|_| Error::OutOfRes)?;
    let number = event.as_raw_fd();
    let tid = state.task.tid();
    let watch = move || {
        // The program's own threads handle its signals.
        // SAFETY: `sigfillset` initializes the set before it is used; the mask is that of this
        // thread only.
        unsafe {
            let mut all = std::mem::MaybeUninit::uninit();
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
        }
        while quietly(|library| watch(library, tid)).is_ok() {}
    };
    let thread = std::thread::Builder::new().name("pvm_getfds".into()).stack_size(1 << 18);
    thread.spawn(watch).map_err(|_| Error::OutOfRes)?;
    state.descriptors.event = Some(event);
    if state.task.intake()?.waiting() > 0 {
        state.descriptors.signal();
    }
    Ok(number)
}

/// Waits for messages, and signals the descriptor. Returns an error when the task has ended.
fn watch(library: &Library, tid: Option<Tid>) -> Result<(), Code> {
    library.with(|state| match state.task.tid() == tid && state.descriptors.event.is_some() {
        true => Ok(()),
        false => Err(Error::SysErr),
    })?;
    let before = library.with(|state| Ok(state.task.intake()?.taken))?;
    let waited = library.wait_for_others();
    library.with(|state| {
        let now = state.task.intake().map_or(u64::MAX, |intake| intake.taken);
        if waited.is_err() || now != before {
            state.descriptors.signal();
        }
        Ok(())
    })?;
    waited
}

/// See `pvm3.h`.
///
/// # Safety
/// `list` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_getfds(list: *mut *mut c_int) -> c_int {
    let called = traced("pvm_getfds", Event::GETFDS).tells(|record, state, result| {
        let list = &state.descriptors.list[..usize::from(result > 0)];
        record.int(Id::CC, result).ints(Id::FDS, list);
    });
    call(called, |library| {
        if list.is_null() {
            return Err(Error::BadParam.into());
        }
        library.enroll()?;
        library.with(|state| {
            state.descriptors.list[0] = descriptor(state)?;
            // SAFETY: `list` is null or valid for a write, required of the caller. Null is handled
            // separately.
            unsafe { *list = state.descriptors.list.as_mut_ptr() };
            Ok(1)
        })
    })
}
