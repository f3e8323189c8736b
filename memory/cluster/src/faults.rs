//! Tasks that are stopped at a page: of this machine's own, or of another's segments.

use std::time::{Duration, Instant};

use coherence::message::Page;
use coherence::sequential::Event;
use node::sequential::Replica as _;
use pager::{Access, Fault, PagerError};

use crate::agent::Agent;
use crate::frame::Word;
use crate::publish::{block_of, is_set};

/// How long a page that nobody has mapped is closed to who uses it, who gets SIGSEGV.
const WRONG: Duration = Duration::from_millis(50);

impl Agent {
    pub(super) fn stopped(&mut self, fault: &Fault) {
        let page = fault.page;
        if self.pages.closed.contains(page) || page >= self.pages.node.pages() {
            return;
        }
        let writes = fault.wants == Access::Write || !self.engine.memory.can_allow_read();
        let (block, ours) = (block_of(page), self.is_ours(page));
        let known = self.blocks.known.get(&block);
        if ours && !self.blocks.published.contains(&block) {
            // It was watched for a task that has ended: nobody else knows of it.
            if let Err(error) = self.goes_on_alone(page) {
                self.fails(&error.to_string());
            }
        } else if ours || known.is_some_and(|mapped| is_set(mapped, page)) {
            self.wants(page, writes);
        } else {
            let waiting = self.blocks.looking.entry(block).or_default();
            waiting.push_back((page, writes));
            if waiting.len() == 1 {
                self.ask_for(page);
            }
        }
    }

    /// Asks whether a page of another machine's is mapped.
    pub(super) fn ask_for(&mut self, page: Page) {
        if let Some(home) = self.home(page) {
            self.say(home, Word::Look { page });
        }
    }

    /// Somebody wants a page that is mapped.
    pub(super) fn wants(&mut self, page: Page, writes: bool) {
        match self.pooled {
            None => self.ask(page, writes),
            // It is there, or has been since.
            Some(_) => {
                if let Err(error) = self.engine.memory.wake(page..page + 1) {
                    self.fails(&error.to_string());
                }
            }
        }
    }

    pub(super) fn ask(&mut self, page: Page, writes: bool) {
        self.step(if writes { Event::Write(page) } else { Event::Read(page) });
    }

    fn goes_on_alone(&mut self, page: Page) -> Result<(), PagerError> {
        if !self.engine.memory.held(page..page + 1)?.is_empty() {
            self.engine.memory.are_used(page..page + 1);
        }
        self.engine.memory.allow(page, Access::Write)?;
        self.engine.memory.forget(page..page + 1);
        Ok(())
    }

    /// Nothing is mapped there, where the page belongs: who uses it gets SIGSEGV.
    pub(super) fn is_wrong(&mut self, page: Page) {
        if self.wrong_pages.insert(page) {
            self.wrong.push_back((Instant::now() + WRONG, page));
        }
        if let Err(error) = self.engine.memory.close(page, true) {
            self.fails(&error.to_string());
        }
    }

    /// Pages that were closed may be mapped by now.
    pub(super) fn open_wrong(&mut self) {
        while let Some(&(until, page)) = self.wrong.front()
            && until <= Instant::now()
        {
            self.wrong.pop_front();
            self.is_right(page);
        }
    }

    /// Whoever uses the page may be told that nothing is there once more.
    pub(super) fn is_right(&mut self, page: Page) {
        if self.wrong_pages.remove(&page)
            && let Err(error) = self.engine.memory.close(page, false)
        {
            self.fails(&error.to_string());
        }
    }
}
