//! Eviction of copies of other nodes' pages. Their number is limited, and the oldest are evicted
//! first. The owner is not notified: a node without a copy acknowledges an invalidation too.

use super::event::Action;
use super::node::Node;
use super::page::{PageEvent, State};
use super::table::Fresh;

impl Node {
    /// Evicts copies above the limit. Copies that tasks have not used yet, or are about to write,
    /// stay.
    pub(super) fn drop_copies(&mut self, actions: &mut Vec<Action>) {
        self.drop_to(self.options.copies_max, false, actions);
    }

    /// Evicts the oldest copies until `copies` are left. For a driver that is short of memory. It
    /// should keep as many as tasks need at once. A page at which tasks were resumed long ago
    /// counts as used.
    pub fn shrink(&mut self, copies: u64, now: u64, actions: &mut Vec<Action>) {
        self.now = now;
        self.drop_to(copies, true, actions);
    }

    fn drop_to(&mut self, copies: u64, by_time: bool, actions: &mut Vec<Action>) {
        let mut over = self.copies.count().saturating_sub(copies);
        let mut first = 0;
        while over > 0 {
            let Some((number, page)) = self.copies.next(first) else { return };
            first = number + 1;
            let entry = self.pages.of(page);
            let (state, fresh, since) = (entry.state, entry.fresh, entry.since);
            // The driver reports the use of a page only if another node waits for it.
            let is_used = by_time && self.now > since.saturating_add(self.options.rest);
            let may_go = fresh == Fresh::No || fresh == Fresh::Yes && is_used;
            if matches!(state, State::ReadOnly | State::Prefetched) && may_go {
                self.counts.dropped += 1;
                self.apply(page, PageEvent::Drop, None, actions);
                over -= 1;
            }
        }
    }
}
