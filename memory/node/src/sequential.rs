//! Drives sequential consistency ([`coherence::sequential`]). It passes faults and messages to the
//! protocol and carries out its actions. Equal actions on neighbouring pages are batched.

use std::iter;
use std::ops::Range;

use coherence::message::{NodeId, Page};
use coherence::sequential::frame::Frame;
use coherence::sequential::message::{Body, Content, Header, Pages, parse, parse_batch};
use coherence::sequential::page::State;
use coherence::sequential::{Action, Event, Node};
use pager::{Access, PagerError};

use crate::batch::{Outbox, actions_alike, page_of, sort_messages_last};
use crate::changes::Closed;
use crate::driver::Driver;
use crate::memory::Memory;
use crate::residency::{FREED_SHARE, NEWEST_KEPT, OBSOLETE_MAX, Residency};

/// Pages that arrived and are not stored yet, each with its index in the message.
type Filled = Vec<(Page, usize)>;

/// The state of an engine whose pages are sequentially consistent.
pub struct Sequential {
    /// The protocol's state machine.
    pub node: Node,
    /// Residency of pages.
    pub residency: Residency,
    /// Pages that are closed for a reset.
    pub closed: Closed,
    outbox: Outbox,
    actions: Vec<Action>,
}

impl Sequential {
    /// Creates the state around a node of the protocol. Only pages that the user registers are
    /// predicted: those that are mapped.
    pub fn new(mut node: Node) -> Self {
        node.predict_only_allowed();
        let (residency, closed) = (Residency::default(), Closed::default());
        Self { node, residency, closed, outbox: Outbox::default(), actions: Vec::new() }
    }
}

/// A driver whose pages are sequentially consistent.
pub trait Replica: Driver {
    /// Returns the state of its pages.
    fn pages(&self) -> &Sequential;

    /// Returns the state of its pages.
    fn pages_mut(&mut self) -> &mut Sequential;

    /// Handles a message that violates the protocol.
    fn violated(&mut self, from: NodeId, message: &str, why: Option<&str>);

    /// Observes a message of another node before the protocol handles it.
    fn requested_by_node(&mut self, _header: &Header, _content: &Content) {}

    /// Runs before pages are sent.
    fn before_send(&mut self) {}

    /// Gives the user a chance to send a message without pages by itself. Returns true if it did.
    fn sends_itself(&mut self, _header: &Header, _body: &Body) -> bool {
        false
    }

    /// Runs before pages that arrived are stored.
    fn before_fill(&mut self, _pages: Range<Page>) -> Result<(), PagerError> {
        Ok(())
    }

    /// Runs before pages with obsolete contents are unmapped.
    fn before_unmap(&mut self, _pages: Range<Page>) -> Result<(), PagerError> {
        Ok(())
    }

    /// Runs after threads were granted access to pages.
    fn after_map(&mut self, _pages: Range<Page>) {}

    /// Runs when threads that faulted at a page resume.
    fn resumed(&mut self, _page: Page, _now: u64) {}

    /// Handles the loss of a node that holds pages.
    fn pages_lost(&mut self, _node: NodeId) {}

    /// Handles memory use above the limit that eviction of copies cannot reduce.
    fn memory_exceeded(&mut self, _limit_bytes: u64) {}

    /// Passes an event to the protocol and carries out the resulting actions.
    fn step(&mut self, event: Event) {
        self.steps(iter::once(event), None);
    }

    /// Passes several events to the protocol, then carries out the resulting actions. `arrived`
    /// holds the pages of the message that caused the events.
    fn steps(&mut self, events: impl Iterator<Item = Event>, arrived: Option<Pages<'_>>) {
        let now = self.now();
        let mut actions = std::mem::take(&mut self.pages_mut().actions);
        for event in events {
            if let Err(refused) = self.pages_mut().node.step(event, now, &mut actions) {
                self.violated(refused.from, refused.op, Some(&refused.reason()));
            }
        }
        if let Err(error) = self.carry_out(&mut actions, arrived) {
            self.failed(&error);
        }
        actions.clear();
        self.pages_mut().actions = actions;
    }

    /// Requests access to a page from the protocol after a fault. A fault at a closed page waits:
    /// the thread retries when the page is opened.
    fn resolve(&mut self, page: Page, wants: Access) {
        if self.pages().closed.contains(page) {
            return;
        }
        self.step(match self.engine().memory.wanted(wants) {
            Access::Write => Event::Write(page),
            _ => Event::Read(page),
        });
    }

    /// Handles the answer of `home` that it has declined this node's request for `page`: see
    /// [`Node::declined`].
    fn declined(&mut self, page: Page, home: NodeId) {
        let now = self.now();
        let mut actions = std::mem::take(&mut self.pages_mut().actions);
        self.pages_mut().node.declined(page, home, now, &mut actions);
        if let Err(error) = self.carry_out(&mut actions, None) {
            self.failed(&error);
        }
        actions.clear();
        self.pages_mut().actions = actions;
    }

    /// Handles a message of the protocol.
    fn receive(&mut self, from: NodeId, header: Header, body: &[u8]) {
        let me = self.pages().node.options().me;
        if (header.from, header.to) != (from, me) {
            return self.violated(from, "a header", None);
        }
        match parse(&header, body, self.engine().memory.page_bytes()) {
            Some((content, pages)) => {
                self.requested_by_node(&header, &content);
                self.steps(iter::once(Event::Message(header, content)), Some(pages));
                // Most requests are for pages that have been there for long enough.
                self.expire_holds();
            }
            None => self.violated(from, header.op.name(), None),
        }
    }

    /// Handles a batched message, which carries no pages.
    fn receive_batch(&mut self, from: NodeId, body: &[u8]) {
        let me = self.pages().node.options().me;
        let messages = parse_batch(body)
            .filter(|all| all.iter().all(|(header, _)| (header.from, header.to) == (from, me)));
        let Some(messages) = messages else { return self.violated(from, "a batch", None) };
        for (header, content) in &messages {
            self.requested_by_node(header, content);
        }
        let event = |(header, content)| Event::Message(header, content);
        self.steps(messages.into_iter().map(event), None);
        self.expire_holds();
    }

    /// Reports pages whose minimum residence has passed to the protocol. Returns true if there were
    /// any.
    fn expire_holds(&mut self) -> bool {
        let (now, mut found) = (self.now(), false);
        while let Some(page) = self.pages_mut().residency.expired(now) {
            found = true;
            self.step(Event::Touched(page));
        }
        found
    }

    /// Carries out actions in order, except that messages without pages may move: see
    /// [`sort_messages_last`].
    fn carry_out(
        &mut self,
        actions: &mut [Action],
        arrived: Option<Pages<'_>>,
    ) -> Result<(), PagerError> {
        sort_messages_last(actions);
        let mut filled = Filled::new();
        let mut rest = &*actions;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(actions_alike(rest));
            rest = later;
            match page_of(&now[0]) {
                Some(first) => {
                    let pages = first..first + now.len() as Page;
                    self.carry_out_run(now, pages, &mut filled, arrived)?;
                }
                None => {
                    self.fill(&mut filled, arrived)?;
                    self.carry_out_one(&now[0])?;
                }
            }
        }
        self.fill(&mut filled, arrived)?;
        self.send_batches();
        Ok(())
    }

    /// Carries out the same action on neighbouring pages.
    fn carry_out_run(
        &mut self,
        actions: &[Action],
        pages: Range<Page>,
        filled: &mut Filled,
        arrived: Option<Pages<'_>>,
    ) -> Result<(), PagerError> {
        match actions[0] {
            Action::Fill(..) => {
                self.before_fill(pages)?;
                filled.extend(actions.iter().filter_map(|action| match *action {
                    Action::Fill(page, index) => Some((page, index)),
                    _ => None,
                }));
            }
            Action::MapRead(_) | Action::MapWrite(_) => {
                self.threads_resume(pages.clone());
                let writes = matches!(actions[0], Action::MapWrite(_));
                let access = if writes { Access::Write } else { Access::Read };
                if writes || self.engine().memory.can_allow_read() {
                    self.map(pages.clone(), access, filled, arrived)?;
                } else {
                    // Threads fault again, and the engine then requests write access: see
                    // `resolve`.
                    self.fill(filled, arrived)?;
                    let memory = &mut self.engine_mut().memory;
                    pages.clone().try_for_each(|page| memory.retry(page))?;
                }
                self.after_map(pages);
            }
            Action::Protect(_) => {
                self.fill(filled, arrived)?;
                self.engine_mut().memory.protect(pages)?;
            }
            _ => {
                self.fill(filled, arrived)?;
                self.before_unmap(pages.clone())?;
                pages.clone().for_each(|page| self.pages_mut().residency.add_obsolete(page));
                self.engine_mut().memory.forbid(pages)?;
                self.free_obsolete(OBSOLETE_MAX)?;
            }
        }
        Ok(())
    }

    /// Carries out an action that is not batched by page.
    fn carry_out_one(&mut self, action: &Action) -> Result<(), PagerError> {
        let now = self.now();
        match action {
            Action::Wake(page) => {
                self.resumed(*page, now);
                self.engine_mut().memory.retry(*page)
            }
            Action::Hold(page) => {
                self.pages_mut().residency.hold(*page, now);
                Ok(())
            }
            Action::Send(header, body) if body.is_letter() => {
                if !self.sends_itself(header, body) {
                    self.pages_mut().outbox.add(header, body);
                }
                Ok(())
            }
            Action::Send(header, body) => {
                self.send_batches();
                let memory = &self.engine().memory;
                let body = body.try_bytes(|pages, bytes| memory.append(pages, bytes))?;
                self.before_send();
                self.engine_mut().send(header.to, &Frame::<()>::Page(*header).bytes(), body);
                Ok(())
            }
            Action::Lost(node, _) => {
                self.pages_lost(*node);
                Ok(())
            }
            Action::Gone(_) => Ok(()),
            action => unreachable!("{action:?} is carried out in runs"),
        }
    }

    /// Sends the batched messages.
    fn send_batches(&mut self) {
        for (to, body) in self.pages_mut().outbox.take() {
            self.engine_mut().send(to, &Frame::<()>::Batch.bytes(), body);
        }
    }

    /// Grants access to pages. Stores those of them that have just arrived.
    fn map(
        &mut self,
        pages: Range<Page>,
        access: Access,
        filled: &mut Filled,
        arrived: Option<Pages<'_>>,
    ) -> Result<(), PagerError> {
        let is_now = |(page, _): &(Page, usize)| pages.contains(page);
        let (now, later): (Filled, Filled) = filled.drain(..).partition(is_now);
        *filled = later;
        let memory = &mut self.engine_mut().memory;
        let mut next = pages.start;
        for run in now.chunk_by(|one, other| (one.0 + 1, one.1 + 1) == *other) {
            let (mut page, mut index) = run[0];
            memory.allow(next..page, access)?;
            next = page + run.len() as Page;
            while page < next {
                let arrived = arrived.expect("pages that are filled have arrived");
                let (count, bytes) = arrived.run(index, (next - page) as usize);
                let end = page + count as Page;
                memory.bring(page..end, bytes, access)?;
                (page, index) = (end, index + count);
            }
        }
        memory.allow(next..pages.end, access)
    }

    /// Stores pages that arrived without granting access to them.
    fn fill(&mut self, filled: &mut Filled, arrived: Option<Pages<'_>>) -> Result<(), PagerError> {
        for (page, index) in filled.drain(..) {
            let bytes = arrived.expect("pages that are filled have arrived").get(index);
            self.engine_mut().memory.fill(page, bytes)?;
        }
        Ok(())
    }

    /// Records that faults at pages were resolved, so that the pages stay for their minimum
    /// residence.
    fn threads_resume(&mut self, pages: Range<Page>) {
        let now = self.now();
        for page in pages {
            self.pages_mut().residency.resolved(page, now);
            self.resumed(page, now);
        }
    }

    /// Returns the memory of obsolete pages to the system, except for the newest `kept`.
    fn free_obsolete(&mut self, kept: usize) -> Result<(), PagerError> {
        let mut run = 0..0;
        while let Some(page) = self.pages_mut().residency.take_obsolete(kept) {
            if self.pages().node.state(page).is_some_and(State::has_bytes) {
                continue;
            }
            if !run.is_empty() && run.end != page {
                self.engine_mut().memory.free(std::mem::replace(&mut run, 0..0))?;
            }
            if run.is_empty() {
                run.start = page;
            }
            run.end = page + 1;
        }
        if run.is_empty() { Ok(()) } else { self.engine_mut().memory.free(run) }
    }

    /// Compares the memory in use with the limit, and evicts the oldest copies if it is exceeded.
    /// `used` returns the number of bytes in use.
    fn limit_memory(&mut self, used: impl Fn(&Self::Memory) -> u64) -> Result<(), PagerError> {
        let bytes = used(&self.engine().memory);
        let residency = &mut self.pages_mut().residency;
        residency.peak_bytes = residency.peak_bytes.max(bytes);
        let Some(limit) = residency.limit_bytes.filter(|&limit| bytes > limit) else {
            return Ok(());
        };
        self.free_obsolete(0)?;
        let Some(over @ 1..) = used(&self.engine().memory).checked_sub(limit) else {
            return Ok(());
        };
        let page_bytes = self.engine().memory.page_bytes() as u64;
        let over = (over + limit / FREED_SHARE).div_ceil(page_bytes);
        let keep = self.pages().node.copies().saturating_sub(over).max(NEWEST_KEPT);
        let (now, mut actions) = (self.now(), Vec::new());
        self.pages_mut().node.shrink(keep, now, &mut actions);
        self.carry_out(&mut actions, None)?;
        self.free_obsolete(0)?;
        let is_shrunk = self.pages().node.copies() > keep;
        if !is_shrunk && used(&self.engine().memory) > limit {
            self.memory_exceeded(limit);
        }
        Ok(())
    }

    /// Closes pages for a change that `coordinator` requested.
    fn close_pages(&mut self, coordinator: NodeId, change: u64, pages: Range<Page>) {
        self.step(Event::Close(pages.clone()));
        self.pages_mut().closed.close(coordinator, change, pages);
    }

    /// Discards closed pages on this node. They hold zeros and belong to `owner` afterwards.
    fn reset_pages(&mut self, pages: Range<Page>, owner: NodeId) -> Result<(), PagerError> {
        self.engine_mut().memory.discard(pages.clone())?;
        self.step(Event::Renew { pages, owner, everywhere: false });
        Ok(())
    }

    /// Opens closed pages.
    fn open_pages(&mut self, pages: &Range<Page>) {
        self.pages_mut().closed.open(pages);
        self.step(Event::Open(pages.clone()));
    }

    /// Takes the changes whose closed pages have become quiet on this node. Each must be
    /// acknowledged to its coordinator.
    fn take_quiet(&mut self) -> Vec<(NodeId, u64)> {
        let Sequential { node, closed, .. } = self.pages_mut();
        closed.take_quiet(|pages| node.first_busy(pages))
    }
}
