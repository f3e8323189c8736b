//! Tables of address ranges that the agent writes and all threads read without a lock.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Ranges that a table has room for, apart from each other.
pub const RANGES_MAX: usize = 4096;

/// The table.
pub struct RangeTable {
    /// Odd while the table changes.
    version: AtomicU32,
    count: AtomicUsize,
    ranges: [[AtomicU64; 2]; RANGES_MAX],
}

impl RangeTable {
    /// Makes an empty one.
    pub const fn new() -> Self {
        Self {
            version: AtomicU32::new(0),
            count: AtomicUsize::new(0),
            ranges: [const { [const { AtomicU64::new(0) }; 2] }; RANGES_MAX],
        }
    }

    /// The first part of `range` that is in the table.
    pub fn first_in(&self, range: &Range<u64>) -> Option<Range<u64>> {
        loop {
            let before = self.version.load(Ordering::SeqCst);
            let count = self.count.load(Ordering::SeqCst);
            let ranges = &self.ranges[..count];
            let at = ranges.partition_point(|[_, end]| end.load(Ordering::SeqCst) <= range.start);
            let first = ranges.get(at).map(|[start, end]| {
                let (start, end) = (start.load(Ordering::SeqCst), end.load(Ordering::SeqCst));
                start.max(range.start)..end.min(range.end)
            });
            if before.is_multiple_of(2) && self.version.load(Ordering::SeqCst) == before {
                return first.filter(|first| first.start < first.end);
            }
            std::hint::spin_loop();
        }
    }

    /// By the agent: replaces the contents. The ranges are in order and do not touch. If there are
    /// too many, the last entry covers the rest.
    pub fn set(&self, all: &[Range<u64>]) {
        self.version.fetch_add(1, Ordering::SeqCst);
        let count = all.len().min(RANGES_MAX);
        for (range, [start, end]) in all.iter().zip(&self.ranges) {
            start.store(range.start, Ordering::SeqCst);
            end.store(range.end, Ordering::SeqCst);
        }
        if let Some(last) = all.get(RANGES_MAX..).and_then(<[_]>::last) {
            self.ranges[RANGES_MAX - 1][1].store(last.end, Ordering::SeqCst);
        }
        self.count.store(count, Ordering::SeqCst);
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// By the agent: returns the contents.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        let ranges = &self.ranges[..self.count.load(Ordering::SeqCst)];
        let load = |[start, end]: &[AtomicU64; 2]| {
            start.load(Ordering::SeqCst)..end.load(Ordering::SeqCst)
        };
        ranges.iter().map(load)
    }
}
