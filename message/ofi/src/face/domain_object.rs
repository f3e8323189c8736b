//! libfabric's object for a domain.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::abi;
use crate::engine::state::Core;

/// A domain.
#[repr(C)]
pub struct Domain {
    /// libfabric's part.
    pub fid: abi::FidDomain,
    /// All else, which its endpoints and queues share.
    pub core: Arc<Core>,
    /// Keys of memory are ours to choose, and addresses are those of the memory (FI_MR_BASIC);
    /// otherwise keys are the program's, and addresses begin at 0.
    pub basic: bool,
    /// The next number of [`next_key`](Self::next_key).
    pub keys: AtomicU64,
}

impl Domain {
    /// A number that no other call gets; not 0.
    pub fn next_key(&self) -> u64 {
        self.keys.fetch_add(1, Relaxed)
    }
}
