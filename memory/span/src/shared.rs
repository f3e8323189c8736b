//! Memory that other processes may write, too: shared mappings. It is the origin's kernel's, and
//! threads go there to use it.
//!
//! Here stands which addresses these are, for the program's threads, which ask before each call;
//! agents write it down.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Ranges that there may be, apart from each other.
pub const RANGES_MAX: usize = 256;

struct Table {
    /// Odd while it changes.
    version: AtomicU32,
    count: AtomicUsize,
    ranges: [[AtomicU64; 2]; RANGES_MAX],
}

static TABLE: Table = Table {
    version: AtomicU32::new(0),
    count: AtomicUsize::new(0),
    ranges: [const { [const { AtomicU64::new(0) }; 2] }; RANGES_MAX],
};

/// Whether the address is that of such memory.
pub fn contains(address: u64) -> bool {
    loop {
        let before = TABLE.version.load(Ordering::SeqCst);
        let count = TABLE.count.load(Ordering::SeqCst);
        let contains = TABLE.ranges[..count].iter().any(|[start, end]| {
            (start.load(Ordering::SeqCst)..end.load(Ordering::SeqCst)).contains(&address)
        });
        if before.is_multiple_of(2) && TABLE.version.load(Ordering::SeqCst) == before {
            return contains;
        }
        std::hint::spin_loop();
    }
}

/// Whether there is any.
pub fn is_there() -> bool {
    TABLE.count.load(Ordering::SeqCst) > 0
}

/// To the agent: these are all of them, in order. What is between the last of too many is taken
/// to be such memory, too.
pub fn are(all: &[Range<u64>]) {
    TABLE.version.fetch_add(1, Ordering::SeqCst);
    let count = all.len().min(RANGES_MAX);
    for (range, [start, end]) in all.iter().zip(&TABLE.ranges) {
        start.store(range.start, Ordering::SeqCst);
        end.store(range.end, Ordering::SeqCst);
    }
    if let Some(last) = all.get(RANGES_MAX..).and_then(<[_]>::last) {
        TABLE.ranges[RANGES_MAX - 1][1].store(last.end, Ordering::SeqCst);
    }
    TABLE.count.store(count, Ordering::SeqCst);
    TABLE.version.fetch_add(1, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_down_is_found() {
        assert!(!contains(5) && !is_there());
        are(&[4..8, 20..30]);
        assert!(contains(4) && contains(7) && contains(29) && is_there());
        assert!(!contains(3) && !contains(8) && !contains(30));
        let many = |count: u64| (0..count).map(|at| at * 10..at * 10 + 1).collect::<Vec<_>>();
        are(&many(RANGES_MAX as u64));
        assert!(contains(0) && contains(2550) && !contains(2545));
        are(&many(RANGES_MAX as u64 + 5));
        assert!(contains(2600) && contains(2595) && !contains(2601) && !contains(2545));
        are(&[]);
        assert!(!contains(0) && !is_there());
    }
}
