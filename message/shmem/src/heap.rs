//! The allocator of the symmetric heap. Equal sequences of calls return equal offsets in all PEs,
//! as the standard demands.

use std::collections::HashMap;

use offset_allocator::{Allocation, Allocator};

/// The unit of allocation in bytes: a cache line, so that two objects never share one.
pub const UNIT: usize = 64;
/// Most objects at a time.
const OBJECTS_MAX: u32 = 1 << 17;

/// An object in the heap.
struct Object {
    allocation: Allocation,
    bytes: usize,
}

/// The allocator. Offsets are in bytes from the start of the heap.
pub struct Heap {
    allocator: Allocator,
    objects: HashMap<usize, Object>,
    /// Bytes that objects may use in sum. The allocator has more room, since it rounds sizes up.
    limit: usize,
    used: usize,
}

impl Heap {
    /// Bytes of address space for a heap whose objects may use `bytes`. The allocator rounds the
    /// sizes of free parts down by an eighth at most, and those of objects up.
    pub fn room(bytes: usize) -> usize {
        (bytes + bytes / 2 + UNIT).next_multiple_of(UNIT)
    }

    /// Returns a heap whose objects may use `bytes` in sum, in a range of [`room`](Self::room).
    pub fn new(bytes: usize) -> Self {
        let units = u32::try_from(Self::room(bytes) / UNIT).unwrap_or(u32::MAX);
        Self {
            allocator: Allocator::with_max_allocs(units, OBJECTS_MAX),
            objects: HashMap::new(),
            limit: bytes,
            used: 0,
        }
    }

    /// Bytes that objects may use in sum.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that objects use.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Allocates an object with an alignment, a power of two. Returns its offset.
    pub fn allocate(&mut self, bytes: usize, alignment: usize) -> Option<usize> {
        let slack = alignment.saturating_sub(UNIT);
        let padded = bytes.max(1).checked_add(slack)?.checked_next_multiple_of(UNIT)?;
        let taken = bytes.max(1).next_multiple_of(UNIT);
        if self.used.checked_add(taken)? > self.limit {
            return None;
        }
        let allocation = self.allocator.allocate(u32::try_from(padded / UNIT).ok()?)?;
        let offset = (allocation.offset as usize * UNIT).next_multiple_of(alignment.max(UNIT));
        self.used += taken;
        self.objects.insert(offset, Object { allocation, bytes });
        Some(offset)
    }

    /// Returns the size of the object at an offset; none if there is no object.
    pub fn size(&self, offset: usize) -> Option<usize> {
        self.objects.get(&offset).map(|object| object.bytes)
    }

    /// Frees the object at an offset. Returns false if there is no object.
    pub fn free(&mut self, offset: usize) -> bool {
        let Some(object) = self.objects.remove(&offset) else { return false };
        self.allocator.free(object.allocation);
        self.used -= object.bytes.max(1).next_multiple_of(UNIT);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_calls_return_equal_offsets_and_objects_do_not_overlap() {
        let mut random = 1_u64;
        let (mut one, mut other) = (Heap::new(1 << 20), Heap::new(1 << 20));
        let mut objects: Vec<(usize, usize)> = Vec::new();
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (bytes, alignment) = ((random >> 40) as usize % 5000, 8 << (random >> 60));
            if random >> 33 & 1 == 0 && !objects.is_empty() {
                let (offset, _) = objects.swap_remove((random >> 34) as usize % objects.len());
                assert!(one.free(offset) && other.free(offset));
                continue;
            }
            let offset = one.allocate(bytes, alignment);
            assert_eq!(other.allocate(bytes, alignment), offset);
            let Some(offset) = offset else { continue };
            assert!(offset % alignment == 0 && offset + bytes <= Heap::room(1 << 20));
            let overlaps = |&(at, size): &(usize, usize)| at < offset + bytes && offset < at + size;
            assert!(!objects.iter().any(overlaps));
            objects.push((offset, bytes));
        }
        assert!(!one.free(1));
    }

    #[test]
    fn all_of_the_heap_can_be_used_by_one_object_and_no_more() {
        let mut heap = Heap::new(1 << 30);
        assert_eq!(heap.allocate((1 << 30) + 1, 8), None);
        let all = heap.allocate(1 << 30, 8).expect("room");
        assert_eq!(heap.allocate(1, 8), None);
        assert!(heap.free(all));
        let small = heap.allocate(100, 8).expect("room");
        let rest = heap.allocate((1 << 30) - 128, 8).expect("room for the rest");
        assert!(heap.free(small) && heap.free(rest));
        assert_eq!(heap.used(), 0);
    }
}
