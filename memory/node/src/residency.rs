//! Residency: how long pages stay on a node, and which are evicted first.
//!
//! A page stays mapped for at least [`MIN_RESIDENCE_NS`] after a fault was resolved. Otherwise two
//! nodes could take it from each other before any thread has used it.
//!
//! The memory of a page that moved to another node is kept for a while. Many pages return soon, and
//! freeing and allocating memory takes as long as a network transfer. Under memory pressure the
//! oldest pages are freed first.

use std::collections::{HashMap, VecDeque};

use coherence::message::Page;

/// Minimum time a page stays mapped after a fault was resolved.
pub const MIN_RESIDENCE_NS: u64 = 20_000;
/// Maximum number of obsolete pages whose memory is kept.
pub const OBSOLETE_MAX: usize = 1024;
/// Each eviction frees this fraction of the memory limit: one part in `FREED_SHARE`.
pub const FREED_SHARE: u64 = 16;
/// Minimum number of the newest copies that eviction keeps. Threads may be about to use them.
pub const NEWEST_KEPT: u64 = 64;

/// The residency of a node's pages. All times are in nanoseconds of the engine's clock.
#[derive(Debug, Default)]
pub struct Residency {
    /// Pages whose faults were resolved recently, with the time, in ascending order of time.
    resolved: VecDeque<(u64, Page)>,
    /// Pages that other nodes wait for, with the end of their minimum residence, in ascending
    /// order.
    held: VecDeque<(u64, Page)>,
    /// Obsolete pages, the oldest first, each with a sequence number. `obsolete` has the last
    /// number of each page. Some pages have become valid again.
    queue: VecDeque<(Page, u64)>,
    obsolete: HashMap<Page, u64>,
    last: u64,
    /// The memory limit, if there is one.
    pub limit_bytes: Option<u64>,
    /// The peak of memory in use.
    pub peak_bytes: u64,
}

impl Residency {
    /// Records that a fault at a page was resolved.
    pub fn resolved(&mut self, page: Page, now: u64) {
        let is_old = |since: u64| since + MIN_RESIDENCE_NS < now;
        while self.resolved.front().is_some_and(|(since, _)| is_old(*since)) {
            self.resolved.pop_front();
        }
        self.resolved.push_back((now, page));
    }

    /// Holds a page until its minimum residence ends. If that has passed, the hold expires at once.
    pub fn hold(&mut self, page: Page, now: u64) {
        let since = self.resolved.iter().rev().find(|(_, it)| *it == page);
        let until = since.map_or(now, |(since, _)| since + MIN_RESIDENCE_NS);
        let at = self.held.partition_point(|(other, _)| *other <= until);
        self.held.insert(at, (until, page));
    }

    /// Returns the time at which the next hold expires.
    pub fn next_expiry(&self) -> Option<u64> {
        self.held.front().map(|(until, _)| *until)
    }

    /// Takes a page whose hold has expired.
    pub fn expired(&mut self, now: u64) -> Option<Page> {
        let (until, page) = *self.held.front()?;
        (until <= now).then(|| self.held.pop_front())?;
        Some(page)
    }

    /// Records that the contents of a page are obsolete on this node.
    pub fn add_obsolete(&mut self, page: Page) {
        self.last += 1;
        self.queue.push_back((page, self.last));
        self.obsolete.insert(page, self.last);
    }

    /// Takes the oldest obsolete page while there are more than `kept`. The page may have become
    /// valid again.
    pub fn take_obsolete(&mut self, kept: usize) -> Option<Page> {
        // A page that came and left repeatedly has one entry in the queue for each time.
        while self.obsolete.len() > kept || self.queue.len() > 4 * OBSOLETE_MAX {
            let (page, number) = self.queue.pop_front()?;
            if self.obsolete.get(&page) == Some(&number) {
                self.obsolete.remove(&page);
                return Some(page);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_held_until_threads_had_time_to_use_it() {
        let mut it = Residency::default();
        it.resolved(7, 1_000);
        it.resolved(8, 5_000);
        it.hold(8, 6_000);
        it.hold(7, 6_000);
        it.hold(9, 6_000);
        assert_eq!(it.next_expiry(), Some(6_000), "nobody was resumed at page 9");
        assert_eq!(it.expired(5_999), None);
        assert_eq!(it.expired(6_000), Some(9));
        assert_eq!(it.expired(1_000 + MIN_RESIDENCE_NS - 1), None);
        assert_eq!(it.expired(5_000 + MIN_RESIDENCE_NS), Some(7));
        assert_eq!(it.expired(5_000 + MIN_RESIDENCE_NS), Some(8));
        assert_eq!(it.next_expiry(), None);
        it.resolved(1, 1_000_000);
        it.hold(8, 1_000_000);
        assert_eq!(it.expired(1_000_000), Some(8), "its time was long ago");
    }

    #[test]
    fn the_page_that_left_first_is_freed_first() {
        let mut it = Residency::default();
        [1, 2, 3, 1].into_iter().for_each(|page| it.add_obsolete(page));
        assert_eq!(it.take_obsolete(3), None);
        assert_eq!(it.take_obsolete(1), Some(2), "page 1 left again later");
        assert_eq!(it.take_obsolete(1), Some(3));
        assert_eq!(it.take_obsolete(1), None);
        assert_eq!(it.take_obsolete(0), Some(1));
    }

    #[test]
    fn a_page_that_comes_and_leaves_for_ever_takes_no_memory() {
        let mut it = Residency::default();
        for _ in 0..100_000 {
            it.add_obsolete(5);
            while it.take_obsolete(OBSOLETE_MAX).is_some() {}
        }
        assert!(it.queue.len() <= 4 * OBSOLETE_MAX);
    }
}
