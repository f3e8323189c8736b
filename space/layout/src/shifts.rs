//! Random distances between the parts of a segment, so that the addresses of a task's image, heap,
//! libraries and stack differ from task to task and from run to run.
//!
//! The kernel does the same for a process. All distances here follow from a [`Seed`]; zeros give
//! the layout without randomness. A part keeps the alignment that it has without randomness: an
//! image begins at a huge-page boundary, other parts at a page, the stack at 16 bytes.

use crate::space::{HUGE_PAGE_SIZE, PAGE_SIZE, SegmentLayout};

/// Alignment of the stack pointer in bytes (System V ABI).
const STACK_ALIGN: u64 = 16;
/// Most that the heap begins behind the image, in bytes; as Linux does.
const HEAP_SHIFT_MAX: u64 = 32 << 20;

/// Random numbers, one for each part of a segment that is placed at random.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seed {
    /// For the image and its stubs.
    pub image: u64,
    /// For the heap.
    pub heap: u64,
    /// For the mmap area, which begins with the dynamic linker.
    pub mmap: u64,
    /// For the stack.
    pub stack: u64,
}

/// Returns a multiple of `step` from 0 to `most`, which follows from `seed`.
const fn multiple(seed: u64, step: u64, most: u64) -> u64 {
    seed % (most / step + 1) * step
}

impl SegmentLayout {
    /// Returns how far the image and its stubs lie above their lowest addresses: a multiple of
    /// `align`, a power of two of at least a huge page. `lowest_end` is the image's end without a
    /// shift. An image that needs more than the first quarter of the segment is not shifted.
    pub fn image_shift(&self, lowest_end: u64, align: u64, seed: Seed) -> u64 {
        let quarter = self.start() + self.size() / 4;
        let room = quarter.saturating_sub(lowest_end.saturating_add(HUGE_PAGE_SIZE));
        multiple(seed.image, align.max(HUGE_PAGE_SIZE), (self.size() / 16).min(room / 2))
    }

    /// Returns how far the mmap area begins behind `lowest`, the result of
    /// [`mmap_area_start`](Self::mmap_area_start).
    pub fn mmap_shift(&self, lowest: u64, seed: Seed) -> u64 {
        let room = (self.end() - self.size() / 4).saturating_sub(lowest);
        multiple(seed.mmap, PAGE_SIZE, (self.size() / 16).min(room / 4))
    }

    /// Returns how far the heap begins behind the image, which ends at `image_end`.
    pub fn heap_shift(&self, image_end: u64, mmap_start: u64, seed: Seed) -> u64 {
        let room = mmap_start.saturating_sub(image_end.saturating_add(HUGE_PAGE_SIZE));
        multiple(seed.heap, PAGE_SIZE, HEAP_SHIFT_MAX.min(room / 4))
    }

    /// Returns the initial contents' end in the stack, a multiple of 16, below the segment's last
    /// page.
    pub fn stack_top(&self, seed: Seed) -> u64 {
        self.end() - PAGE_SIZE - multiple(seed.stack, STACK_ALIGN, self.size() / 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::{REGION_START, SpaceLayout, align_up};
    use std::collections::HashSet;
    use std::vec::Vec;

    fn segments() -> impl Iterator<Item = SegmentLayout> {
        let of =
            |shift| SpaceLayout::new(REGION_START, 1u64 << shift, 1).unwrap().segment(0).unwrap();
        (26..=44).map(of)
    }

    /// Zeros, the largest numbers, and some between.
    fn seeds() -> Vec<Seed> {
        let all = |n| Seed { image: n, heap: n, mmap: n, stack: n };
        let mut seeds = std::vec![all(0)];
        for shift in 0..64 {
            seeds.extend([all(u64::MAX >> shift), all(0x9e37_79b9_7f4a_7c15 >> shift)]);
        }
        seeds
    }

    #[test]
    fn parts_stay_in_order_and_apart_for_every_seed_and_size_of_image() {
        for segment in segments() {
            for megabytes in [1, 3, 10, 25, 1000] {
                let lowest_end = segment.image() + (megabytes << 20);
                let Some(_) = segment.mmap_area_start(lowest_end) else { continue };
                for seed in seeds() {
                    let shift = segment.image_shift(lowest_end, PAGE_SIZE, seed);
                    assert_eq!(shift % HUGE_PAGE_SIZE, 0);
                    let image_end = lowest_end + shift;
                    let lowest = segment.mmap_area_start(image_end).expect("it fits without one");
                    let mmap = lowest + segment.mmap_shift(lowest, seed);
                    let heap = image_end + segment.heap_shift(image_end, mmap, seed);
                    assert!(image_end <= heap && heap + HUGE_PAGE_SIZE / 2 <= mmap);
                    assert_eq!((heap % PAGE_SIZE, mmap % PAGE_SIZE), (0, 0));
                    let top = segment.stack_top(seed);
                    let area_end =
                        segment.mmap_area_end(align_up(top, PAGE_SIZE).unwrap(), 8 << 20);
                    assert_eq!(top % STACK_ALIGN, 0);
                    // At least a ninth of the segment is left for mappings.
                    assert!(mmap + segment.size() / 9 <= area_end, "{segment:?} {seed:?}");
                    assert!(area_end < top && top < segment.end());
                }
            }
        }
    }

    #[test]
    fn zeros_shift_nothing() {
        for segment in segments() {
            let (seed, end) = (Seed::default(), segment.image() + (1 << 20));
            let mmap = segment.mmap_area_start(end).unwrap();
            assert_eq!(segment.image_shift(end, PAGE_SIZE, seed), 0);
            assert_eq!(segment.mmap_shift(mmap, seed), 0);
            assert_eq!(segment.heap_shift(end, mmap, seed), 0);
            assert_eq!(segment.stack_top(seed), segment.end() - PAGE_SIZE);
        }
    }

    #[test]
    fn the_default_segment_gives_ten_bits_or_more_to_each_part() {
        let segment = SpaceLayout::new(REGION_START, 32 << 30, 1).unwrap().segment(0).unwrap();
        let end = segment.image() + (1 << 20);
        let lowest = segment.mmap_area_start(end).unwrap();
        let distinct = |of: &dyn Fn(u64) -> u64| (0..1024).map(of).collect::<HashSet<_>>().len();
        let seed = |n| Seed { image: n, heap: n, mmap: n, stack: n };
        assert_eq!(distinct(&|n| segment.image_shift(end, PAGE_SIZE, seed(n))), 1024);
        assert_eq!(distinct(&|n| segment.mmap_shift(lowest, seed(n))), 1024);
        assert_eq!(distinct(&|n| segment.heap_shift(end, lowest, seed(n))), 1024);
        assert_eq!(distinct(&|n| segment.stack_top(seed(n))), 1024);
    }

    #[test]
    fn an_image_that_is_aligned_to_more_than_a_huge_page_stays_so() {
        let segment = SpaceLayout::new(REGION_START, 32 << 30, 1).unwrap().segment(0).unwrap();
        for seed in seeds() {
            let shift = segment.image_shift(segment.image() + (1 << 20), 1 << 30, seed);
            assert_eq!(shift % (1 << 30), 0);
        }
    }
}
