//! The library's only symbol, and the provider's descriptor.

use std::cell::UnsafeCell;

use crate::abi;
use crate::engine::library;
use crate::face::fabric;
use crate::face::hints;
use crate::face::info;

/// The newest interface that this provider was tested with.
const FI_VERSION: u32 = abi::version(2, 6);

struct Shared(UnsafeCell<abi::Provider>);

// SAFETY: libfabric writes its context there, under its own locks. This library does not read it.
unsafe impl Sync for Shared {}

static PROVIDER: Shared = Shared(UnsafeCell::new(abi::Provider {
    version: info::VERSION,
    fi_version: FI_VERSION,
    context: [std::ptr::null_mut(); 4],
    name: hints::NAME.as_ptr(),
    getinfo: Some(info::getinfo),
    fabric: Some(fabric::open),
    cleanup: Some(cleanup),
}));

/// libfabric calls this when it has loaded the library.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut abi::Provider {
    let provider = PROVIDER.0.get();
    library::set_provider(provider);
    provider
}

unsafe extern "C" fn cleanup() {}
