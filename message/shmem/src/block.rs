//! The control block of a PE, in its memory: the PEs of a node find each other by it.

use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64};

use sync::doorbell::Doorbell;

/// The version of the block's layout, which all PEs must share.
pub const VERSION: u64 = 1;

/// A value alone in its cache line.
#[repr(align(64))]
#[derive(Debug, Default)]
pub struct Line<T>(pub T);

/// A range of symmetric memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Region {
    /// Its first address, as other tasks find it.
    pub start: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The facts about a PE that do not change once its block is exported.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts {
    /// Number of the PE.
    pub pe: u32,
    /// Number of PEs of the job, as this PE knows it.
    pub pes: u32,
    /// The symmetric heap.
    pub heap: Region,
    /// The program's static data.
    pub data: Region,
    /// Identifies the program: PEs with different programs share no static data.
    pub program: u64,
}

/// The control block. Zero is the initial value of all that changes.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Block {
    /// See [`Facts`].
    pub facts: Line<Facts>,
    /// Wakes the threads of this PE that wait for a change in its memory.
    pub doorbell: Doorbell,
    /// The rounds of `Job::meet`, each written by one peer. The last is this PE's own count.
    pub arrivals: [Line<AtomicU64>; ROUNDS_MAX],
    /// Words of the last two collective allocations, by which its peers compare theirs.
    pub allocations: [AtomicU64; 2],
    /// 1 once the PE has left the job by `shmem_finalize`.
    pub finalized: Line<AtomicU32>,
    /// 1 if a PE of this node ends the job: this PE reports no loss any more.
    pub is_ending: AtomicU32,
    /// The requested exit status of the job and `ending::EXIT`, or 0.
    pub exit: Line<AtomicU32>,
}

/// Most rounds of a barrier: 2^16 PEs on a node.
pub const ROUNDS_MAX: usize = 16;

impl Block {
    /// Returns a new block in memory that is never freed: peers may access it until they end.
    /// None if there is no memory.
    pub fn allocate() -> Option<&'static mut Self> {
        let size = size_of::<Self>();
        // SAFETY: a new mapping at an address that the kernel or the gate chooses.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        // SAFETY: the mapping is aligned to a page and large enough. Zero is a value of a block.
        (at != libc::MAP_FAILED).then(|| unsafe { &mut *at.cast::<Self>() })
    }
}
