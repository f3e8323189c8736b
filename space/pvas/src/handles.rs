//! Arguments and results of the C library: descriptors of spaces, strings, and the last error.

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use control::this_task;

use crate::error::Error;
use crate::space::Space;

/// The spaces of this process. The index is the descriptor that C programs see.
static SPACES: Mutex<Vec<Option<Arc<Space>>>> = Mutex::new(Vec::new());

thread_local! {
    static LAST_ERROR: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Stores an error for `pvas_error` and sets errno.
pub fn set_error(error: &Error) {
    let text = CString::new(error.to_string()).ok();
    LAST_ERROR.with(|last| *last.borrow_mut() = text);
    // SAFETY: `__errno_location` returns the address of this thread's errno, which is always valid.
    unsafe { *libc::__errno_location() = error.errno().raw_os_error() };
}

/// Returns the text of the calling thread's last error, which stays valid until its next error.
pub fn last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ref().map_or(c"no error".as_ptr(), |s| s.as_ptr()))
}

/// Adds a space. Returns its descriptor.
pub fn add(space: Space) -> c_int {
    let mut spaces = SPACES.lock().expect("no panic while held");
    let index = spaces.iter().position(Option::is_none).unwrap_or(spaces.len());
    if index == spaces.len() {
        spaces.push(None);
    }
    spaces[index] = Some(Arc::new(space));
    index as c_int
}

/// Frees the descriptor of a space.
///
/// # Panics
/// `pvd` is not a descriptor of this process.
pub fn remove(pvd: c_int) {
    SPACES.lock().expect("no panic while held")[pvd as usize] = None;
}

/// Returns the space behind a descriptor of this process.
pub fn space(pvd: c_int) -> Result<Arc<Space>, Error> {
    if pvd == -1 && this_task().is_some() {
        return Err(Error::NotOwner);
    }
    let spaces = SPACES.lock().expect("no panic while held");
    let found = usize::try_from(pvd).ok().and_then(|index| spaces.get(index)?.clone());
    found.ok_or(Error::NoSpace(pvd))
}

/// Copies a NULL-terminated list of strings. NULL means an empty list.
///
/// # Safety
/// `list` is null, or an array of C strings that ends with a null pointer.
pub unsafe fn strings(list: *const *const c_char) -> Vec<CString> {
    let mut result = Vec::new();
    if list.is_null() {
        return result;
    }
    for index in 0.. {
        // SAFETY: by this function's contract `list` ends with a null pointer, which the loop has
        // not reached.
        let entry = unsafe { *list.add(index) };
        if entry.is_null() {
            break;
        }
        // SAFETY: `entry` is a non-null element of `list`, which by this function's contract holds
        // C strings.
        result.push(unsafe { CStr::from_ptr(entry) }.to_owned());
    }
    result
}

/// # Safety
/// `path` is null or a C string.
pub unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path, Error> {
    if path.is_null() {
        return Err(Error::Null("path"));
    }
    // SAFETY: `path` is not null, so by this function's contract it is a C string.
    Ok(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes())))
}
