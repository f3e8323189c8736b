//! One line for who asks libfabric to log (FI_LOG_LEVEL).

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::abi;
use crate::engine::library;

/// Our provider, once libfabric has asked for it.
static PROVIDER: AtomicPtr<abi::Provider> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the provider in whose name lines are logged.
pub fn set_provider(provider: *mut abi::Provider) {
    PROVIDER.store(provider, Release);
}

type Enabled = unsafe extern "C" fn(*const abi::Provider, c_int, c_int) -> c_int;
type Log = unsafe extern "C" fn(
    *const abi::Provider,
    c_int,
    c_int,
    *const c_char,
    c_int,
    *const c_char,
    ...
);

#[derive(Clone, Copy)]
struct Calls {
    enabled: Enabled,
    log: Log,
}

fn calls() -> Option<Calls> {
    static CALLS: OnceLock<Option<Calls>> = OnceLock::new();
    *CALLS.get_or_init(|| {
        let (enabled, log) = (library::find(c"fi_log_enabled"), library::find(c"fi_log"));
        if enabled.is_null() || log.is_null() {
            return None;
        }
        // SAFETY: libfabric's functions of these names, which have not changed since 1.0.
        unsafe {
            Some(Calls {
                enabled: std::mem::transmute::<*mut c_void, Enabled>(enabled),
                log: std::mem::transmute::<*mut c_void, Log>(log),
            })
        }
    })
}

/// Says it at this level, of this part of libfabric (`abi::LOG_*`).
pub fn say(level: u32, part: u32, text: impl FnOnce() -> String) {
    let Some(Calls { enabled, log }) = calls() else { return };
    let (provider, level, part) = (PROVIDER.load(Acquire), level as c_int, part as c_int);
    if provider.is_null() {
        return;
    }
    // SAFETY: our provider, which libfabric knows.
    if unsafe { enabled(provider, level, part) } == 0 {
        return;
    }
    let Ok(text) = CString::new(text() + "\n") else { return };
    // SAFETY: as above; the format takes one string.
    unsafe { log(provider, level, part, c"nagaya".as_ptr(), 0, c"%s".as_ptr(), text.as_ptr()) };
}
