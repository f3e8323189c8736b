//! The one symbol that libfabric looks for, and what stands behind it.

use std::cell::UnsafeCell;

use crate::abi;
use crate::engine::log;
use crate::face::fabric;
use crate::face::info;

/// The newest interface that we have been checked against.
const FI_VERSION: u32 = abi::version(2, 6);

struct Shared(UnsafeCell<abi::Provider>);

// SAFETY: libfabric writes its context there, under locks of its own; we do not look at it.
unsafe impl Sync for Shared {}

static PROVIDER: Shared = Shared(UnsafeCell::new(abi::Provider {
    version: info::VERSION,
    fi_version: FI_VERSION,
    context: [std::ptr::null_mut(); 4],
    name: info::NAME.as_ptr(),
    getinfo: Some(info::getinfo),
    fabric: Some(fabric::open),
    cleanup: Some(cleanup),
}));

/// What libfabric calls when it has loaded the library.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut abi::Provider {
    let provider = PROVIDER.0.get();
    log::set_provider(provider);
    provider
}

unsafe extern "C" fn cleanup() {}
