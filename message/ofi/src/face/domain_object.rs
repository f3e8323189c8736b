//! libfabric's object for a domain.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::abi;
use crate::engine::state::Core;

/// A domain.
#[repr(C)]
pub struct Domain {
    /// libfabric's part of it.
    pub fid: abi::FidDomain,
    /// All else. Endpoints, queues and counters share it.
    pub core: Arc<Core>,
    /// The provider chooses keys, and peers name addresses (FI_MR_BASIC). Otherwise the program
    /// chooses keys, and peers name offsets.
    pub basic: bool,
    /// The next result of [`next_key`](Self::next_key).
    pub keys: AtomicU64,
    /// The version of libfabric's interface that the program uses; 0 if libfabric does not tell.
    pub api_version: u32,
}

impl Domain {
    /// Returns a number that no other call returns; not 0.
    pub fn next_key(&self) -> u64 {
        self.keys.fetch_add(1, Relaxed)
    }
}
