//! The reserve of heap from which the server allocates when its tasks have used up the memory or
//! the mappings of the shared mm.

use std::fs;

use rustix::process::{Resource, getrlimit};

/// Bytes that the server needs to describe one mapping, at most.
const MAPPING_SIZE: usize = 1 << 10;
/// Limits of the reserve in bytes. The lower one suffices for vm.max_map_count's default, 65530.
const SIZE_MIN: usize = 64 << 20;
const SIZE_MAX: usize = 1 << 30;
/// The part of RLIMIT_AS that the reserve takes at most.
const LIMIT_SHARE: u64 = 4;

/// Reserves heap for this process's malloc, and returns the number of mappings that the server can
/// describe with it.
///
/// A task may use up the limit of mappings of the shared mm, which must not make the server's
/// allocations fail. The reserve is address space only; all but its first page stays untouched. The
/// caller is the main thread, whose allocations come from the heap that brk(2) extends, and later
/// threads share that.
pub fn reserve() -> usize {
    let mappings = fs::read_to_string("/proc/sys/vm/max_map_count");
    let mappings = mappings.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0usize);
    let mut size = mappings.saturating_mul(MAPPING_SIZE).clamp(SIZE_MIN, SIZE_MAX);
    if let Some(limit) = getrlimit(Resource::As).current {
        size = size.min((limit / LIMIT_SHARE) as usize);
    }
    // SAFETY: mallopt changes settings of malloc only. The block has `size` bytes if it is not
    // null, and is freed at once.
    unsafe {
        // One arena, which grows by brk, and keeps freed memory.
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        let block = libc::malloc(size.max(1)).cast::<u8>();
        if !block.is_null() {
            // A compiler may remove an allocation whose block is only freed. It may not remove a
            // volatile access.
            block.write_volatile(0);
            libc::free(block.cast());
        }
    }
    size / MAPPING_SIZE
}
