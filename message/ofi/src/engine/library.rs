//! Functions of the libfabric that has loaded this library.
//!
//! A program may have loaded any version of libfabric, and an MPI keeps a private one in a plug-in.
//! So its functions are not linked. They are looked up in the loaded library by name.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::abi;

/// The provider's descriptor, once libfabric has asked for it. libfabric logs in its name.
static PROVIDER: AtomicPtr<abi::Provider> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the provider in whose name lines are logged.
pub fn set_provider(provider: *mut abi::Provider) {
    PROVIDER.store(provider, Release);
}

type Version = unsafe extern "C" fn() -> u32;
type LogEnabled = unsafe extern "C" fn(*const abi::Provider, c_int, c_int) -> c_int;
type Log = unsafe extern "C" fn(
    *const abi::Provider,
    c_int,
    c_int,
    *const c_char,
    c_int,
    *const c_char,
    ...
);

/// Returns the address of a symbol, or NULL.
fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: with RTLD_NOLOAD, dlopen(3) only finds a library that is loaded. The name is a C
    // string.
    let library =
        unsafe { libc::dlopen(c"libfabric.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    let library = if library.is_null() { libc::RTLD_DEFAULT } else { library };
    // SAFETY: `library` is a handle of dlopen(3) or RTLD_DEFAULT, and the name is a C string.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

/// Returns the version of libfabric, if it has `fi_version`.
pub fn version() -> Option<u32> {
    let version = symbol(c"fi_version");
    if version.is_null() {
        return None;
    }
    // SAFETY: libfabric's function of this name has had this type since version 1.0.
    Some(unsafe { std::mem::transmute::<*mut c_void, Version>(version)() })
}

/// Returns the functions for log lines, if libfabric has them.
fn log_functions() -> Option<(LogEnabled, Log)> {
    static FUNCTIONS: OnceLock<Option<(LogEnabled, Log)>> = OnceLock::new();
    *FUNCTIONS.get_or_init(|| {
        let (enabled, log) = (symbol(c"fi_log_enabled"), symbol(c"fi_log"));
        if enabled.is_null() || log.is_null() {
            return None;
        }
        // SAFETY: libfabric's functions of these names have had these types since version 1.0.
        unsafe {
            Some((
                std::mem::transmute::<*mut c_void, LogEnabled>(enabled),
                std::mem::transmute::<*mut c_void, Log>(log),
            ))
        }
    })
}

/// Returns true if libfabric writes log lines at this level about this part of it.
pub fn logs(level: u32, part: u32) -> bool {
    let provider = PROVIDER.load(Acquire);
    let Some((enabled, _)) = log_functions().filter(|_| !provider.is_null()) else { return false };
    // SAFETY: the descriptor that `fi_prov_ini` has returned to libfabric; it is static.
    unsafe { enabled(provider, level as c_int, part as c_int) != 0 }
}

/// Writes a log line.
pub fn log(level: u32, part: u32, text: &CStr) {
    let provider = PROVIDER.load(Acquire);
    let Some((_, log)) = log_functions().filter(|_| !provider.is_null()) else { return };
    let (level, part) = (level as c_int, part as c_int);
    // SAFETY: the static descriptor of `fi_prov_ini`, and C strings; the format takes one string.
    unsafe { log(provider, level, part, c"nagaya".as_ptr(), 0, c"%s".as_ptr(), text.as_ptr()) };
}
