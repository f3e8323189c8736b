//! Waits of this node's threads: pending requests, futex queues, and page faults; and the total
//! time that they have waited for other nodes, for [`packing`](crate::packing).
//!
//! The agent reads the clock when a fault or request arrives and when it is resolved. A fault that
//! is resolved at once was for a page of this node. Of other waits, only the cost of the round trip
//! counts: a call that blocks, or a busy agent, would take its time on any node. Futex waits do not
//! count: they are the waits of other threads.

use std::collections::{HashMap, HashSet};

use coherence::message::Page;

use crate::request_table::THREADS_MAX;

/// A stop that is shorter was for a page of this node's, in ns.
const NEAR_NS: u64 = 5_000;
/// Maximum time of a request to another node and back, and of a page for which several nodes wait,
/// in ns.
const WAY_NS: u64 = 100_000;
const PAGE_NS: u64 = 1_000_000;
/// The wait of its threads in this time from which on a node notifies the origin, in ns.
const MUCH_NS: u64 = 10_000_000;
const WINDOW_NS: u64 = 100_000_000;

/// The reason of a wait.
#[derive(Debug)]
pub(super) struct Waits {
    /// When each thread has asked, or 0.
    asked: Vec<u64>,
    requests: usize,
    /// Threads in line.
    pub queued: HashSet<u32>,
    /// Those at each page, and since when: the sum.
    stopped: HashMap<Page, (u32, u64)>,
    /// The time and number of the threads' waits for other nodes.
    pub waited: u64,
    pub stops: u64,
    /// The start of this window, and the total wait at that time.
    window: (u64, u64),
    is_long: bool,
}

impl Waits {
    pub fn new() -> Self {
        Self {
            asked: vec![0; THREADS_MAX],
            requests: 0,
            queued: HashSet::new(),
            stopped: HashMap::new(),
            waited: 0,
            stops: 0,
            window: (0, 0),
            is_long: false,
        }
    }

    /// The reason of the wait.
    pub fn count(&self) -> usize {
        self.requests + self.queued.len() + self.stopped.len()
    }

    /// Returns true if threads are stopped at pages.
    pub fn are_stopped(&self) -> bool {
        !self.stopped.is_empty()
    }

    /// A thread asks.
    pub fn asks(&mut self, thread: u32, now: u64) {
        self.requests += 1;
        self.asked[thread as usize] = now;
    }

    /// It is answered.
    pub fn is_answered(&mut self, thread: u32, now: u64) {
        self.requests -= 1;
        let waited = now.saturating_sub(self.asked[thread as usize]).min(WAY_NS);
        self.has_waited(1, waited, now);
    }

    /// A thread is stopped at a page.
    pub fn stops_at(&mut self, page: Page, now: u64) {
        let (threads, since) = self.stopped.entry(page).or_default();
        *threads += 1;
        *since += now;
    }

    /// All that are stopped there go on.
    pub fn go_on(&mut self, page: Page, now: u64) {
        if let Some((threads, since)) = self.stopped.remove(&page) {
            let waited = (u64::from(threads) * now).saturating_sub(since);
            self.has_waited(threads, waited.min(u64::from(threads) * PAGE_NS), now);
        }
    }

    /// So do those at these pages.
    pub fn all_go_on(&mut self, pages: std::ops::Range<Page>, now: u64) {
        let there: Vec<Page> =
            self.stopped.keys().copied().filter(|page| pages.contains(page)).collect();
        there.into_iter().for_each(|page| self.go_on(page, now));
    }

    /// Threads have waited so long, together.
    fn has_waited(&mut self, threads: u32, waited: u64, now: u64) {
        if waited < NEAR_NS * u64::from(threads) {
            return;
        }
        if now > self.window.0 + WINDOW_NS {
            self.window = (now, self.waited);
        }
        self.waited += waited;
        self.stops += u64::from(threads);
        if self.waited - self.window.1 > MUCH_NS {
            self.window = (now, self.waited);
            self.is_long = true;
        }
    }

    /// Returns true, once, if threads have waited much recently.
    pub fn take_long(&mut self) -> bool {
        std::mem::take(&mut self.is_long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_counted_but_not_those_for_this_node_or_for_ever() {
        let mut waits = Waits::new();
        for page in 0..100 {
            waits.stops_at(page, page);
            waits.go_on(page, page + 2_000);
        }
        assert_eq!((waits.waited, waits.stops), (0, 0));
        waits.stops_at(7, 10_000);
        waits.stops_at(7, 20_000);
        assert_eq!(waits.count(), 1);
        waits.go_on(7, 50_000);
        assert_eq!((waits.waited, waits.stops, waits.count()), (70_000, 2, 0));
        waits.go_on(7, 90_000);
        waits.asks(3, 60_000);
        assert_eq!(waits.count(), 1);
        waits.is_answered(3, 5_000_000_000);
        assert_eq!((waits.waited, waits.stops, waits.count()), (70_000 + WAY_NS, 3, 0));
        waits.stops_at(8, 0);
        waits.go_on(8, 5_000_000_000);
        assert_eq!(waits.waited, 70_000 + WAY_NS + PAGE_NS);
    }

    #[test]
    fn much_in_a_short_time_is_said_once() {
        let mut waits = Waits::new();
        let mut wait = |since: u64, long: u64| {
            for begin in (since..since + long).step_by(PAGE_NS as usize) {
                waits.stops_at(1, begin);
                waits.go_on(1, begin + PAGE_NS);
            }
            waits.take_long()
        };
        assert!(!(0..50).any(|time| wait(time * WINDOW_NS, MUCH_NS / 2)));
        let begin = 60 * WINDOW_NS;
        assert!(!wait(begin, MUCH_NS / 2) && !wait(begin + MUCH_NS, MUCH_NS / 2));
        assert!(wait(begin + 2 * MUCH_NS, MUCH_NS / 2));
        assert!(!wait(begin + 3 * MUCH_NS, MUCH_NS / 2));
    }
}
