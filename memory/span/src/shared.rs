//! Memory that other processes may write, too: shared mappings. It is the origin's kernel's, and
//! threads go there to use it.
//!
//! Here stands which addresses these are, for the program's threads, which ask before each call;
//! agents write it down. A second table names the pages of private file mappings that lie beyond
//! the end of the file.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::range_table::{RANGES_MAX, RangeTable};

/// The mapping that shows pages instead of the segment's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Overlay {
    /// A shared mapping: other processes may write it. It stands at the origin.
    Shared,
    /// An empty file, since the pages of a private file mapping lie beyond the end of its file.
    Beyond,
    /// A private file mapping that the program cannot write. It stands at the origin.
    Text,
}

/// Shared mappings.
static SHARED: RangeTable = RangeTable::new();
/// Those of which this node may have copies, since no process writes them.
static LEASED: RangeTable = RangeTable::new();
/// There are shared mappings besides.
static OTHERS: AtomicBool = AtomicBool::new(false);
/// Pages of private file mappings that lie beyond the end of the file.
static BEYOND: RangeTable = RangeTable::new();

/// Returns true if the address belongs to such memory.
pub fn contains(address: u64) -> bool {
    first_in(&(address..address.saturating_add(1))).is_some()
}

/// The first part of these addresses that is such memory.
pub fn first_in(range: &Range<u64>) -> Option<Range<u64>> {
    SHARED.first_in(range)
}

/// Returns true if a thread outside the origin can use the memory at this address in place.
pub fn is_leased(address: u64) -> bool {
    LEASED.first_in(&(address..address.saturating_add(1))).is_some()
}

/// Returns true if there is any writable one.
pub fn is_there() -> bool {
    OTHERS.load(Ordering::SeqCst)
}

/// For the agent: sets all of them, in order. If there are too many, the gaps between the last
/// ones count as such memory, too.
pub fn are(all: &[Range<u64>]) {
    SHARED.set(all);
    look_for_others();
}

/// To the agent: of these, in order, this node may have copies. Of too many the rest is left out.
pub fn are_leased(all: &[Range<u64>]) {
    LEASED.set(&all[..all.len().min(RANGES_MAX)]);
    look_for_others();
}

/// By the agent only: looks whether anything is shared and not leased.
fn look_for_others() {
    let others = SHARED.iter().any(|mut rest| {
        while let Some(leased) = LEASED.first_in(&rest)
            && leased.start == rest.start
        {
            rest.start = leased.end;
        }
        !rest.is_empty()
    });
    OTHERS.store(others, Ordering::SeqCst);
}

/// Returns true if any of these addresses belongs to a private file mapping and lies beyond the
/// end of the file.
pub fn has_beyond(range: &Range<u64>) -> bool {
    BEYOND.first_in(range).is_some()
}

/// To the agent: these are all such addresses, in order.
pub fn are_beyond(all: &[Range<u64>]) {
    BEYOND.set(all);
}

#[cfg(test)]
pub mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Serializes tests with shared mappings.
    pub static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn recorded_entries_are_found() {
        let _alone = ALONE.lock();
        assert!(!contains(5) && !is_there());
        are(&[4..8, 20..30]);
        assert!(contains(4) && contains(7) && contains(29) && is_there());
        assert!(!contains(3) && !contains(8) && !contains(30));
        assert_eq!(first_in(&(0..25)), Some(4..8));
        assert_eq!(first_in(&(8..25)), Some(20..25));
        assert_eq!(first_in(&(8..20)), None);
        let many = |count: u64| (0..count).map(|at| at * 10..at * 10 + 1).collect::<Vec<_>>();
        let last = (RANGES_MAX as u64 - 1) * 10;
        are(&many(RANGES_MAX as u64));
        assert!(contains(0) && contains(last) && !contains(last - 5));
        are(&many(RANGES_MAX as u64 + 5));
        assert!(contains(last + 50) && contains(last + 45));
        assert!(!contains(last + 51) && !contains(last - 5));
        are(&[]);
        assert!(!contains(0) && !is_there());
    }

    #[test]
    fn only_leased_memory_is_shared() {
        let _alone = ALONE.lock();
        are(&[10..20, 30..50]);
        are_leased(&[10..20, 30..40]);
        assert!(is_leased(15) && contains(15) && !is_leased(45) && is_there());
        are_leased(&[10..20, 30..40, 40..50]);
        assert!(is_leased(45) && !is_there());
        are_leased(&[]);
        assert!(!is_leased(15) && is_there());
        are(&[]);
    }

    #[test]
    fn addresses_beyond_a_file_are_no_shared_memory() {
        are_beyond(&[100..200, 300..400]);
        assert!(has_beyond(&(0..101)) && has_beyond(&(199..300)) && !has_beyond(&(200..300)));
        assert!(!contains(150));
    }
}
