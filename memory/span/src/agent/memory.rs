//! How much memory a node's pages take, and may take. Where it is too much, copies of others'
//! pages go, the oldest first: they can be fetched again. What only this node has cannot go.
//!
//! The memory of pages that others took stays for a while: many come back soon, and to give it
//! to the system and get it again takes as long as the network does.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use coherence::message::Page;
use coherence::sequential::page::State;
use pager::PagerError;

use super::Agent;
use crate::addresses::PAGE;

/// Of a node.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Bytes, at most.
    pub limit: Option<u64>,
    /// Bytes that it was, at most.
    pub most: u64,
    /// Pages that were given up, the first ones first, each with how many were before; and of
    /// each the last time. Some have come back.
    queue: VecDeque<(Page, u64)>,
    given_up: HashMap<Page, u64>,
    times: u64,
}

/// So much of the limit is freed at once.
const SHARE: u64 = 16;
/// The newest copies, which threads may be about to use, stay.
const NEWEST: u64 = 64;
/// Pages that were given up and whose memory stays, at most.
const GIVEN_UP_MOST: usize = 1024;

impl Agent {
    /// Pages are of no use any more.
    pub(super) fn gives_up(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        let memory = &mut self.memory;
        for page in pages.clone() {
            memory.times += 1;
            memory.queue.push_back((page, memory.times));
            memory.given_up.insert(page, memory.times);
        }
        self.region.forbid_all(pages)?;
        self.free(GIVEN_UP_MOST)
    }

    /// Gives memory of pages that were given up to the system, until that of so many is left.
    fn free(&mut self, left: usize) -> Result<(), PagerError> {
        // Those that came and went often stand there as often.
        while self.memory.given_up.len() > left || self.memory.queue.len() > 4 * GIVEN_UP_MOST {
            let Some((page, time)) = self.memory.queue.pop_front() else { break };
            if self.memory.given_up.get(&page) != Some(&time) {
                continue;
            }
            self.memory.given_up.remove(&page);
            if !self.node.state(page).is_some_and(State::has_bytes) {
                self.region.discard(page)?;
            }
        }
        Ok(())
    }

    /// Looks whether pages take too much memory, where somebody wants to know.
    pub(super) fn look_at_memory(&mut self) {
        if self.memory.limit.is_none() && self.seen.is_none() {
            return;
        }
        let bytes = self.region.memory();
        self.memory.most = self.memory.most.max(bytes);
        let Some(limit) = self.memory.limit.filter(|&limit| bytes > limit) else { return };
        match self.shrink(limit) {
            Ok(true) => {}
            Ok(false) => {
                let name = &self.names[self.me as usize];
                let line = format!(
                    "{name}: pages that only it has take more than --memory {limit}: allow more, \
                     or use more nodes"
                );
                self.end(1, &line);
            }
            Err(error) => self.end(1, &error.to_string()),
        }
    }

    /// Lets memory go that is over the limit; whether that can be.
    fn shrink(&mut self, limit: u64) -> Result<bool, PagerError> {
        self.free(0)?;
        let Some(over @ 1..) = self.region.memory().checked_sub(limit) else { return Ok(true) };
        let over = (over + limit / SHARE).div_ceil(PAGE);
        let (keep, now) = (self.node.copies().saturating_sub(over).max(NEWEST), self.now());
        let mut actions = Vec::new();
        self.node.shrink(keep, now, &mut actions);
        self.carry_out(&mut actions, None)?;
        self.free(0)?;
        Ok(self.node.copies() > keep || self.region.memory() <= limit)
    }
}
