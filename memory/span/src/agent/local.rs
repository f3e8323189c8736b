//! The program's memory while all its threads are at the origin: the kernel gives them pages, and
//! no fault reaches the agent ([`Region::unwatched`](pager::Region::unwatched)). So a program that
//! uses one node is as fast as alone.
//!
//! The memory becomes *common* before the first thread goes to another node. When all threads have
//! been packed on the origin again, it fetches the pages that are elsewhere, and the memory becomes
//! local again.

use coherence::message::Page;
use coherence::sequential::Event;
use node::driver::Driver as _;
use node::sequential::Replica as _;

use super::returning::Return;
use super::state::Agent;

/// Pages that are fetched in one turn of the event loop.
const FETCHED: usize = 64;
/// Until the next look for pages, when all have been requested.
const LOOK_NS: u64 = 5_000_000;
/// The most memory that becomes local again: to make it common takes a time for each page.
const LOCAL_MAX_BYTES: u64 = 1 << 30;

/// At the origin.
impl Agent {
    /// Makes the memory common.
    pub(super) fn share_memory(&mut self) {
        self.returning = None;
        self.withdraw_memory();
        let laid = self.laid();
        match self.engine.memory.watch(&laid) {
            Ok(held) => held.into_iter().for_each(|pages| self.step(Event::Loaded(pages))),
            Err(error) => self.end(1, &error.to_string()),
        }
    }

    /// All threads have been sent to the origin: their pages shall follow.
    pub(super) fn return_memory(&mut self) {
        self.returning = Some(Return { from: 0, at: self.now() });
    }

    /// Returns the time of the next look.
    pub(super) fn returns_next(&self) -> Option<u64> {
        self.returning.map(|it| it.at)
    }

    /// Fetches pages while all threads are here; makes the memory local when it has all. Returns
    /// true if there is more to do at once.
    pub(super) fn tend_return(&mut self, now: u64) -> bool {
        let Some(Return { from, .. }) = self.returning.filter(|it| it.at <= now) else {
            return false;
        };
        if !self.can_be_local() {
            self.returning = None;
            return false;
        }
        let origin = self.origin();
        let are_here = origin.rooms[1..].iter().all(|room| room.threads == 0);
        let is_quiet = origin.changes.is_empty() && origin.forks.now.is_none();
        if !are_here || !is_quiet {
            self.returning = Some(Return { from: 0, at: now + LOOK_NS });
            return false;
        }
        let all = self.engine.memory.pages();
        let (mut page, mut found) = (from, 0);
        while found < FETCHED {
            page = self.pages.node.next_shared(page..all);
            if page == all {
                break;
            }
            if !self.is_overlaid(page) {
                self.fetch(page);
                found += 1;
            }
            page += 1;
        }
        if page < all {
            self.returning = Some(Return { from: page, at: now });
            return true;
        }
        match found == 0 && from == 0 {
            true => self.make_local(),
            false => self.returning = Some(Return { from: 0, at: now + LOOK_NS }),
        }
        false
    }

    fn can_be_local(&self) -> bool {
        self.engine.memory.is_watched()
            && self.pages.residency.limit_bytes.is_none()
            && self.pages.node.owns_unused()
            && self.engine.memory.memory() <= LOCAL_MAX_BYTES
    }

    /// Requests a page that is not this node's alone, unless it is requested already.
    fn fetch(&mut self, page: Page) {
        let is_requested = self.pages.node.first_busy(page..page + 1) == page;
        if !is_requested {
            self.step(Event::Write(page));
        }
    }

    fn make_local(&mut self) {
        self.returning = None;
        let laid = self.laid();
        if let Err(error) = self.engine.memory.unwatch(&laid) {
            self.end(1, &error.to_string());
        }
        // Other nodes have no page, as in the beginning.
        self.origin().is_used[1..].fill(false);
        let (all, now) = (0..self.engine.memory.pages(), self.now());
        self.waits.all_go_on(all, now);
    }
}
