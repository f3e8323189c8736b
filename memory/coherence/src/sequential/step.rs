//! The step of a node: it handles an event.

use super::event::{Action, Event, Options, refusal};
use super::message::{Content, Header, Op};
use super::node::Node;
use super::nodes::Nodes;
use super::page::{PageEvent, State};
use super::pages::{Detail, Request};
use super::table::{Entry, Fresh};
use crate::message::NodeId;
use crate::refusal::Refused;
use crate::ride::Fate;
use crate::run::Run;

impl Node {
    /// Handles an event at the time `now` and appends the resulting actions.
    ///
    /// # Errors
    /// A message that violates the protocol: no state changes, and no action results.
    pub fn step(
        &mut self,
        event: Event,
        now: u64,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        self.now = now;
        match event {
            Event::Allocate { pages, owner, everywhere } => {
                self.pages.allocate(pages, self.first(owner, everywhere));
            }
            Event::Loaded(pages) => pages.for_each(|page| self.pages.of(page).is_new = false),
            Event::Close(pages) => self.closed.push(pages),
            Event::Renew { pages, owner, everywhere } => {
                assert!(
                    pages.end <= self.pages(),
                    "a reset of pages {pages:?}, which are not allocated"
                );
                assert!(
                    self.is_quiet(&pages),
                    "a reset of pages {pages:?} with a request in flight"
                );
                let mut page = self.pages.next_used(pages.clone());
                while page < pages.end {
                    self.copies.set(page, false);
                    self.end_mark(page, Fate::Wasted);
                    page = self.pages.next_used(page + 1..pages.end);
                }
                self.reset_ahead(pages.clone());
                self.pages.renew(pages, self.first(owner, everywhere));
            }
            Event::Open(pages) => self.closed.retain(|closed| *closed != pages),
            Event::Read(page) => self.fault(page, false, actions),
            Event::Write(page) => self.fault(page, true, actions),
            Event::Touched(page) => {
                assert!(page < self.pages(), "page {page} is not allocated");
                self.pages.of(page).fresh = Fresh::No;
                self.settle(page, actions);
            }
            Event::Message(header, content) => {
                self.message(&header, content, actions)?;
                self.settle(header.page, actions);
            }
            Event::Lost(node) => self.lose(node, actions),
        }
        self.drop_copies(actions);
        self.forget_suggested();
        debug_assert!(!self.lost.has(self.options.me), "this node is not lost");
        Ok(())
    }

    fn message(
        &mut self,
        header: &Header,
        content: Content,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { op, from, to, page, .. } = *header;
        let Options { me, nodes, .. } = self.options;
        let refuse = |why| refusal(header, why);
        if to != me || from >= nodes || from == me || self.lost.has(from) {
            let refused = refuse("has a wrong receiver, or an unknown or lost sender");
            return Err(refused.with("receiver", to));
        }
        let Some(entry) = self.pages.get(page) else {
            return Err(refuse("names a page that does not exist").with("pages", self.pages()));
        };
        match op {
            Op::AskRead | Op::AskWrite => self.asked(header, entry, content, actions),
            Op::GrantRead | Op::GrantWrite => self.granted(header, entry, &content, actions),
            Op::Invalidate => self.invalidation_arrives(header, entry, actions),
            Op::Acknowledge => self.acknowledgement_arrives(header, actions),
        }
    }

    /// Handles an invalidation of this node's copy.
    fn invalidation_arrives(
        &mut self,
        header: &Header,
        entry: Entry,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { node, page, .. } = *header;
        let Options { me, nodes, .. } = self.options;
        if node >= nodes || node == me || entry.invalid_for.is_some() {
            let refused = refusal(header, "invalidates a copy for an invalid writer");
            return Err(refused.with("writer", node));
        }
        if entry.state.rule(PageEvent::Invalidate).is_none() {
            return Err(refusal(header, "invalidates the copy of the page's owner"));
        }
        let fresh = entry.state.is_copy() && self.is_fresh(page);
        let entry = self.pages.of(page);
        // A node that has requested ownership knows its successor already.
        if !matches!(entry.state, State::Writing | State::Upgrading) {
            entry.owner = node;
        }
        if entry.state.is_copy() {
            self.counts.invalidated += 1;
        }
        if fresh {
            entry.invalid_for = Some(node);
        } else {
            self.apply(page, PageEvent::Invalidate, Some(Detail::Writer(node)), actions);
        }
        Ok(())
    }

    /// Handles the acknowledgement of an invalidation.
    fn acknowledgement_arrives(
        &mut self,
        header: &Header,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { from, page, .. } = *header;
        let entry = self.pages.of(page);
        let is_new = match entry.state {
            State::Gathering => entry.answers.remove(from),
            State::Writing | State::Upgrading => entry.answers.insert(from),
            _ => false,
        };
        if !is_new {
            let why = "acknowledges an invalidation that was not sent to it";
            return Err(refusal(header, why));
        }
        self.gather(page, actions);
        Ok(())
    }

    /// Handles a request for a page.
    fn asked(
        &mut self,
        header: &Header,
        entry: Entry,
        prefetches: Vec<Run>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { op, node: requester, page, whole: has, hops, .. } = *header;
        let Options { me, nodes, .. } = self.options;
        let refuse = |why| Err(refusal(header, why));
        if requester >= nodes || requester == me {
            return refuse("requests a page for an invalid node");
        }
        if self.lost.has(requester) {
            return Ok(());
        }
        let write = op == Op::AskWrite;
        let waits =
            entry.readers.has(requester) || entry.next.is_some_and(|next| next.node == requester);
        let asks_again = write && entry.owner == requester && entry.state.owns();
        if waits || asks_again {
            return refuse("requests a page twice");
        }
        let mut request = Request { requester, has, hops, prefetches };
        let busy = self.is_fresh(page) && (write || entry.state == State::ReadWrite)
            || entry.next.is_some()
            || !entry.readers.is_empty();
        if entry.state.owns() {
            if busy {
                self.queue(page, &request, write, actions);
                return Ok(());
            }
            if write {
                self.pages.of(page).owner = requester;
            }
        } else if entry.owner == requester {
            return refuse("requests a page of which it is the last known owner");
        }
        let event = match entry.is_new {
            true => PageEvent::AskNew,
            false if write => PageEvent::AskWrite,
            false => self.read_event(page, &mut request),
        };
        self.apply(page, event, Some(Detail::Request(request)), actions);
        Ok(())
    }

    /// Handles a grant.
    fn granted(
        &mut self,
        header: &Header,
        entry: Entry,
        rides: &[Run],
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { op, from, page, set, whole, .. } = *header;
        let Options { me, nodes, .. } = self.options;
        let refuse = |why| Err(refusal(header, why));
        let write = op == Op::GrantWrite;
        let wanted = match entry.state {
            State::Reading => whole && (!write || set == 0),
            State::Writing => write && whole,
            State::Upgrading => write && !whole,
            _ => false,
        };
        if !wanted {
            return refuse("brings a page without a request");
        }
        if !self.are_requested_with(page, rides) {
            return refuse("brings prefetched pages without a request");
        }
        let Some(others) = Nodes::of(set, nodes).filter(|others| !others.has(me)) else {
            return refuse("names copies on invalid nodes");
        };
        if !write && !others.is_empty() || !entry.answers.without(others).is_empty() && write {
            return refuse("names other copies than those that were invalidated");
        }
        let lost = self.lost;
        let event = match write {
            false => {
                self.pages.of(page).owner = from;
                PageEvent::Copy
            }
            true => {
                let entry = self.pages.of(page);
                if entry.state == State::Reading {
                    // This node requested a copy, and no other request is queued behind it yet.
                    (entry.owner, entry.answers) = (me, Nodes::default());
                }
                entry.answers = others.without(entry.answers).without(lost);
                if entry.answers.is_empty() { PageEvent::OwnAlone } else { PageEvent::Own }
            }
        };
        let first = actions.len();
        self.apply(page, event, Some(Detail::Index(0)), actions);
        self.prefetches_arrive(page, from, write, rides, usize::from(whole), actions);
        // Sort neighbours so that they can be filled and mapped together.
        actions[first..].sort_by_key(|action| match *action {
            Action::Fill(page, _) => (0, page),
            Action::MapRead(page) | Action::MapWrite(page) => (1, page),
            _ => (2, 0),
        });
        Ok(())
    }

    /// Handles the loss of a node. No request waits for it any more, and tasks that wait for pages
    /// that it may hold will never resume.
    fn lose(&mut self, node: NodeId, actions: &mut Vec<Action>) {
        assert!(node < self.options.nodes && node != self.options.me, "another node is lost");
        if !self.lost.insert(node) {
            return;
        }
        actions.push(Action::Lost(node, self.pages.only_at(node)));
        self.forget_prefetches_of(node);
        let (mut waiting, mut gathering) = (Vec::new(), Vec::new());
        for (page, entry) in self.pages.used() {
            entry.copies.remove(node);
            if entry.state.waits() {
                waiting.push(page);
            }
            if entry.state == State::Gathering && entry.answers.remove(node) {
                gathering.push(page);
            }
            entry.readers.remove(node);
            entry.next = entry.next.filter(|next| next.node != node);
            // The lost node no longer needs this acknowledgement.
            entry.invalid_for = entry.invalid_for.filter(|writer| *writer != node);
        }
        actions.extend(waiting.into_iter().map(Action::Gone));
        for page in gathering {
            self.gather(page, actions);
            self.settle(page, actions);
        }
    }
}
