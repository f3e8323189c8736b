//! Threads that are stopped at a page, of this machine's segments or of another's.
//!
//! The first fault in an unknown block of another machine takes one round trip: the protocol's
//! request for the page carries the lookup of the block. The home answers both, or declines the
//! request if the page is not mapped.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use coherence::message::Page;
use coherence::sequential::Event;
use coherence::sequential::message::{Body, Header, Op};
use node::sequential::Replica as _;
use pager::{Access, Fault, PagerError};

use crate::agent::Agent;
use crate::blocks::{Lookup, block_of};
use crate::frame::{Frame, Message};

/// Time for which a page that is not mapped stays closed: accesses get SIGSEGV.
const UNMAPPED_TIME: Duration = Duration::from_millis(50);

impl Agent {
    /// Handles a fault.
    pub(super) fn stopped(&mut self, fault: &Fault) {
        let page = fault.page;
        if self.pages.closed.contains(page) || page >= self.pages.node.pages() {
            return;
        }
        let writes = fault.wants == Access::Write || !self.engine.memory.can_allow_read();
        let (block, is_own) = (block_of(page), self.is_own(page));
        let is_known = self.blocks.known.get(&block).is_some_and(|bits| bits.is_set(page));
        if is_own && !self.blocks.published.contains(&block) {
            // The block was watched for a task that has ended, and no other machine knows it.
            if let Err(error) = self.resolve_unpublished(page) {
                self.fails(&error.to_string());
            }
        } else if is_own || is_known {
            self.request(page, writes);
        } else if let Some(lookup) = self.blocks.lookups.get_mut(&block) {
            lookup.waiting.push_back((page, writes));
        } else {
            self.look_up(page, writes, VecDeque::new());
        }
    }

    /// Asks the home of a page which pages of the block are mapped. Without a pool the message
    /// carries the protocol's request for the page. `waiting` are other faults in the block.
    pub(super) fn look_up(&mut self, page: Page, writes: bool, waiting: VecDeque<(Page, bool)>) {
        let Some(home) = self.home(page) else { return };
        assert!(home != self.plan.me, "a machine knows its own blocks");
        if self.pooled.is_none() {
            self.blocks.looked_up = Some(page);
            self.request_page(page, writes);
        }
        // The protocol sends no request to the home if the page is here already, or elsewhere.
        let carries_request = self.pooled.is_none() && self.blocks.looked_up.take().is_none();
        if !carries_request {
            self.send_message(home, Message::Lookup { page });
        }
        let lookup = Lookup { page, carries_request, waiting };
        let before = self.blocks.lookups.insert(block_of(page), lookup);
        assert!(before.is_none(), "one lookup of a block at a time");
    }

    /// Sends a request of the protocol with the lookup that it is to carry. Returns false if it
    /// carries none.
    pub(super) fn send_with_lookup(&mut self, header: &Header, body: &Body) -> bool {
        let page = header.page;
        let carries = self.blocks.looked_up == Some(page)
            && matches!(header.op, Op::AskRead | Op::AskWrite)
            && self.home(page) == Some(header.to);
        if carries {
            self.blocks.looked_up = None;
            self.send(
                header.to,
                Frame::Word(Message::Lookup { page }),
                body.encode_for_batch(header),
            );
        }
        carries
    }

    /// Gets a mapped page for threads that are stopped there.
    pub(super) fn request(&mut self, page: Page, writes: bool) {
        match self.pooled {
            None => self.request_page(page, writes),
            // The page is mapped in the pool, or has been mapped since the fault.
            Some(_) => {
                if let Err(error) = self.engine.memory.wake(page..page + 1) {
                    self.fails(&error.to_string());
                }
            }
        }
    }

    /// Requests a page from the protocol.
    pub(super) fn request_page(&mut self, page: Page, writes: bool) {
        self.step(if writes { Event::Write(page) } else { Event::Read(page) });
    }

    fn resolve_unpublished(&mut self, page: Page) -> Result<(), PagerError> {
        if !self.engine.memory.held(page..page + 1)?.is_empty() {
            self.engine.memory.are_used(page..page + 1);
        }
        self.engine.memory.allow(page, Access::Write)?;
        self.engine.memory.forget(page..page + 1);
        Ok(())
    }

    /// Closes a page that its home has not mapped: accesses get SIGSEGV for a while.
    pub(super) fn close_unmapped(&mut self, page: Page) {
        if self.unmapped_pages.insert(page) {
            self.unmapped.push_back((Instant::now() + UNMAPPED_TIME, page));
        }
        if let Err(error) = self.engine.memory.close(page, true) {
            self.fails(&error.to_string());
        }
    }

    /// Opens closed pages whose time is over: they may be mapped by now.
    pub(super) fn reopen_expired(&mut self) {
        while let Some(&(until, page)) = self.unmapped.front()
            && until <= Instant::now()
        {
            self.unmapped.pop_front();
            self.reopen(page);
        }
    }

    /// Opens a page that was closed: the next access asks again whether it is mapped.
    pub(super) fn reopen(&mut self, page: Page) {
        if self.unmapped_pages.remove(&page)
            && let Err(error) = self.engine.memory.close(page, false)
        {
            self.fails(&error.to_string());
        }
    }
}
