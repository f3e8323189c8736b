//! VCL's calls: windows, their memory, and their members.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use nagaya_fcp::header::Plan;
use nagaya_fcp::lock;
use nagaya_fcp::member::{Life, Members};
use nagaya_fcp::memory::{Memory, PAGE_SIZE};
use nagaya_fcp::window::{Window, least_size};

use crate::failure::{Failure, answer, invalid};
use crate::protocol::protocol_of;

/// `VCL_window`.
#[derive(Debug)]
pub struct Handle {
    pub members: Arc<Members>,
}

/// `struct VCL_plan`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CPlan {
    fields: u64,
    members: u32,
    protocol: i32,
    messages: usize,
    plain: usize,
}

/// The flags in `fields`.
const MEMBERS: u64 = 0x1;
const PROTOCOL: u64 = 0x2;
const MESSAGES: u64 = 0x4;
const PLAIN: u64 = 0x8;

const MEMBERS_DEFAULT: u32 = 64;
const MESSAGES_DEFAULT: usize = 256 << 10;
const PLAIN_DEFAULT: usize = 64 << 10;

/// `struct FCP_proc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CProc {
    id: u32,
    group: u32,
    pid: i32,
    lives: i32,
    place: u32,
    reserved: [u32; 3],
}

impl CPlan {
    /// Returns the plan, and the size of its window in bytes.
    fn read(&self) -> Result<(Plan, usize), Failure> {
        let unknown = self.fields & !(MEMBERS | PROTOCOL | MESSAGES | PLAIN);
        if unknown != 0 {
            return Err(invalid(format!("plan: fields {unknown:#x} are of a later version")));
        }
        let given = |field| self.fields & field != 0;
        let members = if given(MEMBERS) { self.members } else { MEMBERS_DEFAULT };
        let members = u16::try_from(members)
            .map_err(|_| invalid(format!("plan: {members} members, not 1 to 4096")))?;
        let number = if given(PROTOCOL) { self.protocol } else { 0 };
        let listed = protocol_of(number)?.is_listed();
        let messages =
            if given(MESSAGES) { self.messages } else { MESSAGES_DEFAULT * usize::from(members) };
        let plain = if given(PLAIN) { self.plain } else { PLAIN_DEFAULT };
        let round = |bytes: usize| {
            bytes
                .checked_next_multiple_of(PAGE_SIZE)
                .ok_or_else(|| invalid(format!("plan: {bytes} bytes are too much")))
        };
        let plan = Plan { members, messages: round(messages)?, lendable: 0, listed };
        let size = least_size(plan).checked_add(round(plain)?);
        Ok((plan, size.ok_or_else(|| invalid("plan: the window would be too large"))?))
    }
}

/// See `include/fcp.h`.
///
/// # Safety
/// `place` is null or a string. `plan` is null or a plan. `window` is null, or a pointer can be
/// written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VCL_open(
    place: *const c_char,
    plan: *const CPlan,
    window: *mut *mut Handle,
) -> c_int {
    answer((|| {
        if window.is_null() {
            return Err(invalid("VCL_open: no place for the window"));
        }
        // SAFETY: null, or a plan by this function's contract.
        let plan = unsafe { plan.as_ref() }.map(CPlan::read).transpose()?;
        let size = plan.map(|(_, size)| size);
        let at = match place.is_null() {
            true => "",
            // SAFETY: not null, so a string by this function's contract.
            false => unsafe { CStr::from_ptr(place) }
                .to_str()
                .map_err(|_| invalid("VCL_open: the place is not UTF-8"))?,
        };
        let memory = match (at, at.strip_prefix("fd:")) {
            ("", _) => {
                let size = size.ok_or_else(|| invalid("VCL_open: new memory needs a plan"))?;
                Memory::anonymous(size)
            }
            (_, Some(number)) => {
                let fd = number.parse().ok().filter(|fd| *fd >= 0);
                let fd = fd.ok_or_else(|| invalid(format!("VCL_open: {at} is no fd:N")))?;
                // SAFETY: the descriptor is only duplicated here, which fails if it is not open.
                let copy = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
                let copy = copy.map_err(|error| invalid(format!("VCL_open: {at}: {error}")))?;
                Memory::received(copy)
            }
            _ if at.contains('/') => Memory::at(Path::new(at), size_of_file(at, size)),
            _ => Memory::named(at, size),
        }?;
        let opened = Window::open(memory, plan.map(|(plan, _)| plan))?;
        let handle = Handle { members: Arc::new(Members::of(Arc::new(opened))?) };
        // SAFETY: not null, so by this function's contract a pointer can be written there.
        unsafe { *window = Box::into_raw(Box::new(handle)) };
        Ok(0)
    })())
}

/// Returns the requested size for a file at `path`: a device has a size of its own.
fn size_of_file(path: &str, size: Option<usize>) -> Option<usize> {
    size.filter(|_| !path.starts_with("/dev/dax") && !path.starts_with("/sys/"))
}

/// See `include/fcp.h`.
///
/// # Safety
/// The window is from `VCL_open`, not yet closed, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VCL_close(window: *mut Handle) {
    if !window.is_null() {
        // SAFETY: from `Box::into_raw` in `VCL_open`, and the caller closes it once.
        drop(unsafe { Box::from_raw(window) });
    }
}

/// See `include/fcp.h`.
///
/// # Safety
/// The window is from `VCL_open`, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VCL_descriptor(window: *const Handle) -> c_int {
    // SAFETY: null, or a live window by this function's contract.
    let handle = unsafe { window.as_ref() }.ok_or_else(|| invalid("VCL_descriptor: no window"));
    answer(handle.map(|handle| handle.members.window().memory().as_fd().as_raw_fd()))
}

/// See `include/fcp.h`.
///
/// # Safety
/// The window is from `VCL_open`, or null. `size` is null, or a number can be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VCL_memory(window: *const Handle, size: *mut usize) -> *mut c_void {
    // SAFETY: null, or a live window by this function's contract.
    let plain = unsafe { window.as_ref() }.and_then(|handle| {
        let window = handle.members.window();
        let plain = window.plain();
        Some((window.address(plain.start, plain.len())?, plain.len()))
    });
    if !size.is_null() {
        // SAFETY: not null, so by this function's contract a number can be written there.
        unsafe { *size = plain.map_or(0, |(_, size)| size) };
    }
    plain.map_or(ptr::null_mut(), |(address, _)| address.as_ptr().cast())
}

/// See `include/fcp.h`.
///
/// # Safety
/// `word` is aligned and mapped, and all processes use it by these calls only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VCL_test_and_set(word: *const AtomicU32) -> c_int {
    // SAFETY: an aligned word by this function's contract.
    lock::test_and_set(unsafe { &*word }).into()
}

/// See `include/fcp.h`.
///
/// # Safety
/// `word` is aligned and mapped, and all processes use it by these calls only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VCL_clear(word: *const AtomicU32) {
    // SAFETY: an aligned word by this function's contract.
    lock::clear(unsafe { &*word });
}

/// See `include/fcp.h`.
///
/// # Safety
/// The window is from `VCL_open`, or null. `procs` is null, or has room for `most` members.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FCP_procs(window: *const Handle, procs: *mut CProc, most: c_int) -> c_int {
    // SAFETY: null, or a live window by this function's contract.
    let Some(handle) = (unsafe { window.as_ref() }) else {
        return answer(Err(invalid("FCP_procs: no window")));
    };
    let mut count = 0;
    for entry in handle.members.entries() {
        if count < most && !procs.is_null() {
            let lives = match handle.members.life(entry.peer) {
                Life::Lives => 1,
                Life::Gone => 0,
                Life::Elsewhere => -1,
            };
            let proc = CProc {
                id: entry.card.id,
                group: entry.card.group,
                pid: entry.pid as i32,
                lives,
                place: entry.peer.index.into(),
                reserved: [0; 3],
            };
            // SAFETY: `count` is less than `most`, for which the caller has room.
            unsafe { procs.add(count as usize).write(proc) };
        }
        count += 1;
    }
    count
}
