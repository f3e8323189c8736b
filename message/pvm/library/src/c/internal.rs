//! Internal functions of libpvm that programs use: clock, names, version.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock, PoisonError};

use pvm::protocol::tag_name;

use super::errors;
use super::kept::c_string;
use super::machine::now;

/// Returns the version of PVM whose library this one replaces.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_version() -> *const c_char {
    c"3.4.6".as_ptr()
}

/// Stores the time since 1970.
///
/// # Safety
/// `time` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmgetclock(time: *mut libc::timeval) -> c_int {
    // SAFETY: `time` is valid for a write, required of the caller.
    unsafe { *time = now() };
    0
}

/// Does the same as sleep(3).
#[unsafe(no_mangle)]
pub extern "C" fn pvmsleep(seconds: c_int) -> c_int {
    // SAFETY: sleep has no preconditions.
    unsafe { libc::sleep(seconds as u32) as c_int }
}

/// Returns the name of one of PVM's own tags. For other tags, returns the number as text, valid
/// until the next call. `found` tells the cases apart.
///
/// # Safety
/// `found` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmnametag(tag: c_int, found: *mut c_int) -> *mut c_char {
    static TEXT: Mutex<Option<CString>> = Mutex::new(None);
    let name = tag_name(tag);
    if !found.is_null() {
        // SAFETY: `found` is null or valid for a write, required of the caller. Null is handled
        // separately.
        unsafe { *found = name.is_some().into() };
    }
    let text = name.map_or_else(|| tag.to_string(), str::to_string);
    let mut kept = TEXT.lock().unwrap_or_else(PoisonError::into_inner);
    kept.insert(c_string(&text)).as_ptr().cast_mut()
}

fn variable_or(name: &str, default: &str) -> CString {
    c_string(&std::env::var(name).unwrap_or_else(|_| default.into()))
}

/// Returns the directory for temporary files: PVM_TMP, or /tmp.
#[unsafe(no_mangle)]
pub extern "C" fn pvmgettmp() -> *mut c_char {
    static TEXT: OnceLock<CString> = OnceLock::new();
    TEXT.get_or_init(|| variable_or("PVM_TMP", "/tmp")).as_ptr().cast_mut()
}

/// Returns the command that starts daemons on other hosts: PVM_RSH, or ssh.
#[unsafe(no_mangle)]
pub extern "C" fn pvmgetrsh() -> *mut c_char {
    static TEXT: OnceLock<CString> = OnceLock::new();
    TEXT.get_or_init(|| variable_or("PVM_RSH", "ssh")).as_ptr().cast_mut()
}

/// Returns a name for a temporary file of this process, as tmpnam(3) does.
///
/// # Safety
/// `buffer` is null or has room for 128 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmtmpnam(buffer: *mut c_char) -> *mut c_char {
    const SIZE: usize = 128;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    static TEXT: Mutex<[u8; SIZE]> = Mutex::new([0; SIZE]);
    // SAFETY: `pvmgettmp` returns a string.
    let directory = unsafe { CStr::from_ptr(pvmgettmp()) }.to_string_lossy();
    let number = NEXT.fetch_add(1, Relaxed) % 10_000;
    let name = c_string(&format!("{directory}/pvmtmp{:06}.{number}", std::process::id()));
    let name = name.as_bytes_with_nul();
    if name.len() > SIZE {
        return std::ptr::null_mut();
    }
    let mut text = TEXT.lock().unwrap_or_else(PoisonError::into_inner);
    let to = if buffer.is_null() { text.as_mut_ptr().cast() } else { buffer };
    // SAFETY: `to` has room for 128 bytes: it is our own buffer, or the caller's.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(name.as_ptr(), name.len()) };
    to
}

/// Writes a line on standard error, after the tid or PID.
///
/// # Safety
/// `line` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmlogerror(line: *const c_char) -> c_int {
    // SAFETY: `line` is a string, required of the caller.
    let line = unsafe { CStr::from_ptr(line) }.to_string_lossy();
    errors::log_error(line.trim_end_matches('\n'));
    0
}
