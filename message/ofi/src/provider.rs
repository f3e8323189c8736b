//! The one symbol that libfabric looks for, and what stands behind it.

use std::cell::UnsafeCell;

use crate::{abi, fabric, info};

/// The newest interface that we have been checked against.
const FI_VERSION: u32 = abi::version(2, 6);

/// Ours, in libfabric's form.
pub const VERSION: u32 = abi::version(0, 1);

struct Shared(UnsafeCell<abi::Provider>);

// SAFETY: libfabric writes its context there, under locks of its own; we do not look at it.
unsafe impl Sync for Shared {}

static PROVIDER: Shared = Shared(UnsafeCell::new(abi::Provider {
    version: VERSION,
    fi_version: FI_VERSION,
    context: [std::ptr::null_mut(); 4],
    name: info::NAME.as_ptr(),
    getinfo: Some(info::getinfo),
    fabric: Some(fabric::open),
    cleanup: Some(cleanup),
}));

/// What libfabric knows us by.
pub fn get() -> *mut abi::Provider {
    PROVIDER.0.get()
}

/// What libfabric calls when it has loaded the library.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut abi::Provider {
    get()
}

unsafe extern "C" fn cleanup() {}
