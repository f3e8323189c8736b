//! The libfabric that has loaded us: it may be any, and private to an MPI's plug-in. So its calls
//! are not linked, but looked up in what is loaded.

use std::ffi::{CStr, c_void};

/// Where it has this symbol; NULL: nowhere.
pub fn find(name: &CStr) -> *mut c_void {
    // SAFETY: finds what is loaded, and loads nothing.
    let library =
        unsafe { libc::dlopen(c"libfabric.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    let library = if library.is_null() { libc::RTLD_DEFAULT } else { library };
    // SAFETY: a handle, and a name.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

/// Its version, if it tells.
pub fn version() -> Option<u32> {
    let version = find(c"fi_version");
    if version.is_null() {
        return None;
    }
    // SAFETY: libfabric's function of this name, which has not changed since 1.0.
    Some(unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> u32>(version)() })
}
