//! The window of a space and its segments, without randomness.

/// Size of a page in bytes. x86-64 only has this base size.
pub const PAGE_SIZE: u64 = 4096;
/// Size and alignment of a huge page in bytes.
pub const HUGE_PAGE_SIZE: u64 = 2 << 20;

/// Size of the export area at the head of a segment, in bytes.
pub const EXPORT_SIZE: u64 = 64 << 10;
/// First bytes of the export area, which belong to the program.
pub const EXPORT_USER_SIZE: u64 = 32 << 10;
/// Size of a task's control block behind the export area, in bytes.
pub const TASK_BLOCK_SIZE: u64 = 16 << 10;
/// Least room for stubs of the program's image, in bytes.
pub const STUB_AREA_SIZE_MIN: u64 = 256 << 10;

/// Smallest segment in bytes.
pub const SEGMENT_SIZE_MIN: u64 = 64 << 20;
/// Largest segment in bytes.
pub const SEGMENT_SIZE_MAX: u64 = 16 << 40;
/// Default segment size in bytes.
pub const SEGMENT_SIZE_DEFAULT: u64 = 32 << 30;
/// Most tasks in one space.
pub const TASKS_MAX: u32 = 1 << 16;

/// Addresses that windows are cut from: above what fixed low mappings use, below the
/// place where Linux puts position-independent programs (two thirds of 47 bits).
pub const REGION_START: u64 = 1 << 40;
/// End of that region.
pub const REGION_END: u64 = 85 << 40;
/// Most that a random window begins behind the lowest possible address, in bytes. The rest of the
/// region stays in one piece for other windows. Tasks with low IDs stay below the places where the
/// kernel puts libraries if the stack is unlimited (a third of the address space), and where PMIx
/// puts files that all tasks of a job map at one address (the middle).
pub const WINDOW_SHIFT_MAX: u64 = 21 << 40;
/// Most bytes of all segments of a space of shared memory together.
pub const SHARED_SIZE_MAX: u64 = 32 << 40;
/// Preferred end of the window of such a space, in which every domain maps all segments: below the
/// same two places, and below the shared memory of libjia.
pub const SHARED_REGION_END: u64 = 42 << 40;
/// Address space of a control area in bytes; little of it is ever touched.
pub const CONTROL_SIZE: u64 = 1 << 30;

/// PIDs are below this on every 64-bit Linux (`PID_MAX_LIMIT`).
pub const PIDS_MAX: u64 = 4 << 20;

/// Rounds `value` up to a multiple of `align`, a power of two; `None` on overflow.
pub const fn align_up(value: u64, align: u64) -> Option<u64> {
    match value.checked_add(align - 1) {
        Some(sum) => Some(sum & !(align - 1)),
        None => None,
    }
}

/// Rounds `value` down to a multiple of `align`, a power of two.
pub const fn align_down(value: u64, align: u64) -> u64 {
    value & !(align - 1)
}

/// Why a space cannot be laid out as asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutError {
    /// The segment size is not a power of two from 64 MiB to 16 TiB.
    SegmentSize,
    /// The number of tasks is 0 or above `TASKS_MAX`.
    Tasks,
    /// The window does not fit into the region.
    NoRoom,
}

/// The window of a space, and its segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceLayout {
    window: u64,
    segment_size: u64,
    tasks_max: u32,
}

impl SpaceLayout {
    /// Lays a space of `tasks_max` segments out at `window`, a multiple of 1 GiB.
    pub fn new(window: u64, segment_size: u64, tasks_max: u32) -> Result<Self, LayoutError> {
        let size = Self::window_size(segment_size, tasks_max)?;
        let fits = window >= REGION_START
            && window.is_multiple_of(CONTROL_SIZE)
            && window.checked_add(size).is_some_and(|end| end <= REGION_END);
        if !fits {
            return Err(LayoutError::NoRoom);
        }
        Ok(Self { window, segment_size, tasks_max })
    }

    /// Bytes of address space that such a space takes, a multiple of 1 GiB.
    pub fn window_size(segment_size: u64, tasks_max: u32) -> Result<u64, LayoutError> {
        let size_ok = segment_size.is_power_of_two()
            && (SEGMENT_SIZE_MIN..=SEGMENT_SIZE_MAX).contains(&segment_size);
        if !size_ok {
            return Err(LayoutError::SegmentSize);
        }
        if tasks_max == 0 || tasks_max > TASKS_MAX {
            return Err(LayoutError::Tasks);
        }
        let segments = segment_size.checked_mul(u64::from(tasks_max)).ok_or(LayoutError::NoRoom)?;
        let size = segments.checked_add(CONTROL_SIZE).ok_or(LayoutError::NoRoom)?;
        align_up(size, CONTROL_SIZE).ok_or(LayoutError::NoRoom)
    }

    /// Most segments of this size that a window of `bytes` holds.
    pub fn tasks_within(segment_size: u64, bytes: u64) -> u32 {
        (bytes.saturating_sub(CONTROL_SIZE) / segment_size).min(u64::from(TASKS_MAX)) as u32
    }

    /// Start of the window, where the control area lies.
    pub fn window(&self) -> u64 {
        self.window
    }
    /// Address of segment 0.
    pub fn base(&self) -> u64 {
        self.window + CONTROL_SIZE
    }
    /// Size of every segment in bytes.
    pub fn segment_size(&self) -> u64 {
        self.segment_size
    }
    /// Number of segments; IDs are below it.
    pub fn tasks_max(&self) -> u32 {
        self.tasks_max
    }
    /// End of the last segment.
    pub fn end(&self) -> u64 {
        self.base() + self.segment_size * u64::from(self.tasks_max)
    }

    /// The segment with this ID; `None` where the ID is out of range.
    pub fn segment(&self, id: u32) -> Option<SegmentLayout> {
        (id < self.tasks_max).then(|| SegmentLayout {
            start: self.base() + u64::from(id) * self.segment_size,
            size: self.segment_size,
        })
    }

    /// ID of the segment that holds `address`.
    pub fn id_of(&self, address: u64) -> Option<u32> {
        (self.base()..self.end())
            .contains(&address)
            .then(|| ((address - self.base()) / self.segment_size) as u32)
    }
}

/// The parts of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentLayout {
    start: u64,
    size: u64,
}

impl SegmentLayout {
    /// The same segment for a task that may only use its first `size` bytes. Error: not a
    /// power of two from `SEGMENT_SIZE_MIN` to the segment's size.
    pub fn limited(&self, size: u64) -> Result<Self, LayoutError> {
        let fits = size.is_power_of_two() && (SEGMENT_SIZE_MIN..=self.size).contains(&size);
        if fits { Ok(Self { start: self.start, size }) } else { Err(LayoutError::SegmentSize) }
    }
    /// Start of the segment and of its export area.
    pub fn start(&self) -> u64 {
        self.start
    }
    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
    /// First address behind the segment.
    pub fn end(&self) -> u64 {
        self.start + self.size
    }
    /// The task's control block, which the gate works on.
    pub fn task_block(&self) -> u64 {
        self.start + EXPORT_SIZE
    }
    /// Bitmap of the mmap area, one bit a page.
    pub fn bitmap(&self) -> u64 {
        self.task_block() + TASK_BLOCK_SIZE
    }
    /// Bytes of the bitmap, whole pages.
    pub fn bitmap_size(&self) -> u64 {
        (self.size / PAGE_SIZE / 8).next_multiple_of(PAGE_SIZE)
    }
    /// Bitmap of the pages that are shared memory, one bit a page of the segment; unused where
    /// segments are private.
    pub fn memory_bitmap(&self) -> u64 {
        self.bitmap() + self.bitmap_size()
    }
    /// Bitmap of those of them that may be read and written.
    pub fn plain_bitmap(&self) -> u64 {
        self.memory_bitmap() + self.bitmap_size()
    }
    /// Stubs for the patched system-call sites of the program's image.
    pub fn stubs(&self) -> u64 {
        self.plain_bitmap() + self.bitmap_size()
    }
    /// Minimum start of the program's image, a huge-page boundary. The stubs end there.
    pub fn image(&self) -> u64 {
        (self.stubs() + STUB_AREA_SIZE_MIN).next_multiple_of(HUGE_PAGE_SIZE)
    }
    /// Returns the end of the heap and start of the mmap area, for an image that ends at
    /// `image_end`. It lies at a quarter of the segment, or higher if the image needs it. `None`
    /// if the segment is too small for the image.
    pub fn mmap_area_start(&self, image_end: u64) -> Option<u64> {
        let heap_min = HUGE_PAGE_SIZE;
        let wanted = align_up(image_end.checked_add(heap_min)?, HUGE_PAGE_SIZE)?;
        let start = wanted.max(self.start + self.size / 4);
        (start < self.end() - self.size / 4).then_some(start)
    }
    /// Most that a stack may take in this segment, in bytes.
    pub fn stack_size_max(&self) -> u64 {
        self.size / 8
    }
    /// Returns the end of the mmap area in front of a stack of at most `stack_size` bytes that ends
    /// at `stack_end`. A gap between them stays unmapped (the kernel's own guard gap is 1 MiB).
    pub fn mmap_area_end(&self, stack_end: u64, stack_size: u64) -> u64 {
        let stack_size = stack_size.min(self.stack_size_max());
        align_down(stack_end - stack_size - HUGE_PAGE_SIZE, HUGE_PAGE_SIZE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes() -> impl Iterator<Item = u64> {
        (26..=44).map(|shift| 1u64 << shift)
    }

    #[test]
    fn segment_start_follows_from_the_id() {
        for size in sizes() {
            let tasks = SpaceLayout::tasks_within(size, REGION_END - REGION_START);
            let space = SpaceLayout::new(REGION_START, size, tasks).unwrap();
            for id in (0..tasks).step_by(7).chain([tasks - 1]) {
                let segment = space.segment(id).unwrap();
                assert_eq!(segment.start(), space.base() + u64::from(id) * size);
                assert_eq!(space.id_of(segment.start()), Some(id));
                assert_eq!(space.id_of(segment.end() - 1), Some(id));
            }
            assert_eq!(space.segment(tasks), None);
            assert_eq!(space.id_of(space.end()), None);
            assert_eq!(space.id_of(space.base() - 1), None);
            assert!(space.end() <= REGION_END);
        }
    }

    #[test]
    fn default_size_gives_thousands_of_ids() {
        assert!(SpaceLayout::tasks_within(SEGMENT_SIZE_DEFAULT, REGION_END - REGION_START) > 2000);
        assert!(SpaceLayout::tasks_within(4 << 30, REGION_END - REGION_START) > 20_000);
    }

    #[test]
    fn parts_of_a_segment_are_in_order_and_do_not_touch() {
        for size in sizes() {
            let segment = SpaceLayout::new(REGION_START, size, 1).unwrap().segment(0).unwrap();
            assert_eq!(segment.task_block() - segment.start(), EXPORT_SIZE);
            assert!(segment.bitmap() >= segment.task_block() + TASK_BLOCK_SIZE);
            assert!(segment.bitmap_size() * 8 * PAGE_SIZE >= size);
            assert!(segment.memory_bitmap() - segment.bitmap() >= segment.bitmap_size());
            assert!(segment.plain_bitmap() - segment.memory_bitmap() >= segment.bitmap_size());
            assert!(segment.stubs() - segment.plain_bitmap() >= segment.bitmap_size());
            assert!(segment.stubs() + STUB_AREA_SIZE_MIN <= segment.image());
            let mmap = segment.mmap_area_start(segment.image() + (1 << 20)).unwrap();
            assert!(mmap > segment.image());
            let top = segment.end() - PAGE_SIZE;
            assert!(mmap < segment.mmap_area_end(top, 8 << 20));
            assert!(segment.mmap_area_end(top, u64::MAX) + segment.stack_size_max() < top);
            assert_eq!(mmap % HUGE_PAGE_SIZE, 0);
        }
    }

    #[test]
    fn an_image_that_leaves_no_room_is_refused() {
        let segment = SpaceLayout::new(REGION_START, 64 << 20, 1).unwrap().segment(0).unwrap();
        assert_eq!(segment.mmap_area_start(segment.start() + (50 << 20)), None);
        assert_eq!(segment.mmap_area_start(u64::MAX), None);
    }

    #[test]
    fn a_limited_segment_lies_in_the_whole_one() {
        let whole = SpaceLayout::new(REGION_START, 4 << 30, 2).unwrap().segment(1).unwrap();
        let part = whole.limited(64 << 20).unwrap();
        assert_eq!(part.start(), whole.start());
        assert_eq!(part.end(), whole.start() + (64 << 20));
        assert_eq!(part.task_block(), whole.task_block());
        for bad in [0, 32 << 20, 65 << 20, 8 << 30] {
            assert_eq!(whole.limited(bad), Err(LayoutError::SegmentSize));
        }
    }

    #[test]
    fn bad_shapes_are_refused() {
        assert_eq!(SpaceLayout::window_size(3 << 30, 1), Err(LayoutError::SegmentSize));
        assert_eq!(SpaceLayout::window_size(1 << 20, 1), Err(LayoutError::SegmentSize));
        assert_eq!(SpaceLayout::window_size(4 << 30, 0), Err(LayoutError::Tasks));
        assert_eq!(SpaceLayout::new(REGION_START, 16 << 40, 6), Err(LayoutError::NoRoom));
        assert_eq!(SpaceLayout::new(0, 4 << 30, 1), Err(LayoutError::NoRoom));
    }
}
