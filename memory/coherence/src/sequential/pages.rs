//! The pages of a node: page faults, the rules that events apply, and the messages of their
//! actions.

use super::event::Action;
use super::message::{Body, Header, Op};
use super::node::Node;
use super::nodes::Nodes;
use super::page::{PageAction, PageEvent, Rule, State};
use super::table::{Entry, Fresh, Next};
use crate::message::{NodeId, Page};
use crate::ride::Fate;
use crate::run::{self, Run};

/// Further details of a page's event.
#[derive(Clone, Debug)]
pub(super) enum Detail {
    /// The page's index in the message that just arrived.
    Index(usize),
    /// The request of another node.
    Request(Request),
    /// The node that will write the page.
    Writer(NodeId),
}

/// A request of another node.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub requester: NodeId,
    /// The requester has a copy, according to its request.
    pub has: bool,
    pub hops: u16,
    pub prefetches: Vec<Run>,
}

impl Node {
    /// Handles a page fault of a task.
    pub(super) fn fault(&mut self, page: Page, write: bool, actions: &mut Vec<Action>) {
        assert!(page < self.pages(), "page {page} is not allocated");
        let now = self.now;
        *(if write { &mut self.counts.write_faults } else { &mut self.counts.read_faults }) += 1;
        let entry = self.pages.of(page);
        entry.since = now;
        let event = match (write, entry.state) {
            (false, _) => PageEvent::Read,
            (true, State::ReadOwner) if entry.copies.is_empty() => PageEvent::Claim,
            (true, _) => PageEvent::Write,
        };
        if event == PageEvent::Write && entry.state == State::ReadOwner {
            entry.migratory.copies_are_in_the_way();
        }
        entry.is_wanted = matches!(entry.state, State::PrefetchingRead | State::PrefetchingWrite);
        if !self.lost.is_empty() && self.rule(page, event).next.waits() {
            actions.push(Action::Gone(page));
            return;
        }
        let Entry { is_new, state, .. } = *self.pages.of(page);
        self.apply(page, event, None, actions);
        if is_new {
            self.map_ahead(page, actions);
        } else if write && matches!(state, State::ReadOnly | State::ReadOwner) {
            self.write_ahead(page, actions);
        }
    }

    /// Returns the rule for an event of a page.
    fn rule(&mut self, page: Page, event: PageEvent) -> &'static Rule {
        let state = self.pages.of(page).state;
        let Some(rule) = state.rule(event) else {
            panic!("page {page}, {state:?}: {event:?} cannot happen");
        };
        rule
    }

    /// Applies the rule for an event. A local event without a rule is a bug of this node. Events
    /// that messages cause are checked before.
    pub(super) fn apply(
        &mut self,
        page: Page,
        event: PageEvent,
        detail: Option<Detail>,
        actions: &mut Vec<Action>,
    ) {
        let rule = self.rule(page, event);
        self.counts.rules[rule.state as usize][event as usize] += 1;
        let now = self.now;
        let entry = self.pages.of(page);
        entry.state = rule.next;
        entry.is_new = false;
        let waited = now.saturating_sub(entry.since);
        match (rule.state, event) {
            (State::Reading, PageEvent::Copy | PageEvent::OwnAlone) => {
                self.counts.reading.add(waited)
            }
            (_, PageEvent::OwnAlone | PageEvent::Gathered) => self.counts.writing.add(waited),
            _ => {}
        }
        if matches!(rule.state, State::Prefetched | State::PrefetchedOwner)
            && rule.next != rule.state
        {
            let is_used = matches!(event, PageEvent::Read | PageEvent::Write);
            self.end_mark(page, if is_used { Fate::Used } else { Fate::Wasted });
        }
        if rule.state.is_copy() != rule.next.is_copy() {
            self.copies.set(page, rule.next.is_copy());
        }
        for action in rule.actions {
            self.act(page, rule, *action, detail.as_ref(), actions);
        }
    }

    /// Carries out an action of a rule.
    fn act(
        &mut self,
        page: Page,
        rule: &Rule,
        action: PageAction,
        detail: Option<&Detail>,
        actions: &mut Vec<Action>,
    ) {
        let asks_write = rule.event == PageEvent::AskWrite;
        match (action, detail) {
            (PageAction::Ask, _) => self.ask(page, rule, actions),
            (PageAction::Fill, Some(Detail::Index(index))) => {
                actions.push(Action::Fill(page, *index))
            }
            (PageAction::MapRead | PageAction::MapWrite, _) => {
                self.pages.of(page).fresh = Fresh::Yes;
                actions.push(match action {
                    PageAction::MapRead => Action::MapRead(page),
                    _ => Action::MapWrite(page),
                });
            }
            (PageAction::Protect, _) => actions.push(Action::Protect(page)),
            (PageAction::Unmap, _) => {
                self.pages.of(page).fresh = Fresh::No;
                actions.push(Action::Unmap(page));
            }
            (PageAction::Wake, _) => actions.push(Action::Wake(page)),
            (PageAction::GrantRead, Some(Detail::Request(request))) => {
                self.grant(page, request, false, actions);
            }
            (PageAction::GrantWrite, Some(Detail::Request(request))) => {
                self.grant(page, request, true, actions);
            }
            (PageAction::GrantNew, Some(Detail::Request(request))) => {
                self.grant_new(page, request, actions);
            }
            (PageAction::Forward, Some(Detail::Request(request))) => {
                self.forward(page, request, asks_write, actions);
            }
            (PageAction::Queue, Some(Detail::Request(request))) => {
                self.queue(page, request, asks_write, actions);
            }
            (PageAction::Invalidate, _) => {
                let entry = self.pages.of(page);
                let others = std::mem::take(&mut entry.copies).without(self.lost);
                entry.answers = others;
                self.invalidate(page, others, self.options.me, actions);
                self.gather(page, actions);
            }
            (PageAction::Acknowledge, Some(Detail::Writer(writer))) => {
                self.learn_invalidation(page, *writer);
                self.send(*writer, Op::Acknowledge, page, actions);
            }
            (action, detail) => unreachable!("page {page}: {action:?} with {detail:?}"),
        }
    }

    /// Sends a request to the last known owner.
    fn ask(&mut self, page: Page, rule: &Rule, actions: &mut Vec<Action>) {
        let me = self.options.me;
        let write = rule.next != State::Reading;
        let entry = self.pages.of(page);
        let to = entry.owner;
        if write {
            entry.owner = me;
            entry.answers = Nodes::default();
        }
        let prefetches = self.prefetch(page, to, write, actions);
        let op = if write { Op::AskWrite } else { Op::AskRead };
        let header = Header { node: me, whole: rule.state.is_copy(), ..self.header(to, op, page) };
        self.post(header, Body::Runs(prefetches), actions);
    }

    /// Grants a request.
    fn grant(&mut self, page: Page, request: &Request, write: bool, actions: &mut Vec<Action>) {
        let Request { requester, has, hops, ref prefetches } = *request;
        debug_assert!(requester != self.options.me, "page {page} is granted to its owner");
        self.counts.hops += u64::from(hops);
        let lost = self.lost;
        let entry = self.pages.of(page);
        let whole = !(write && has && entry.copies.has(requester));
        let mut others = Nodes::default();
        if write {
            others = std::mem::take(&mut entry.copies).without(Nodes::one(requester)).without(lost);
            if !whole && others.is_empty() {
                entry.migratory.copy_is_written(self.options.migratory);
            }
            self.counts.moved += 1;
            self.invalidate(page, others, requester, actions);
        } else {
            entry.copies.insert(requester);
        }
        let room = self.options.pages_max as usize - usize::from(whole);
        let sent = self.send_prefetches(requester, page, write, prefetches, room, actions);
        self.counts.pages += u64::from(whole) + sent.len() as u64;
        let op = if write { Op::GrantWrite } else { Op::GrantRead };
        let header = Header { set: others.bits(), whole, ..self.header(requester, op, page) };
        let rides = run::from_pages(sent.iter().copied());
        self.post(header, Body::Pages { asked: whole.then_some(page), rides }, actions);
        if write {
            // Unmap after the `Send` above, which reads the bytes of these pages.
            actions.extend(sent.into_iter().map(Action::Unmap));
        }
    }

    /// Grants ownership of a page that no task has used. A reader gets ownership too, since it will
    /// write the page sooner or later.
    fn grant_new(&mut self, page: Page, request: &Request, actions: &mut Vec<Action>) {
        let Request { requester, hops, ref prefetches, .. } = *request;
        self.counts.hops += u64::from(hops);
        self.pages.of(page).owner = requester;
        let sent = self.send_new(requester, page, prefetches);
        self.counts.moved += 1;
        self.counts.pages += 1 + sent.len() as u64;
        let header = Header { whole: true, ..self.header(requester, Op::GrantWrite, page) };
        self.post(header, Body::New(run::from_pages(sent.into_iter())), actions);
    }

    /// Sends invalidations to nodes with copies. `writer` is the node that will write the page.
    fn invalidate(&mut self, page: Page, others: Nodes, writer: NodeId, actions: &mut Vec<Action>) {
        for other in others.iter() {
            let header = Header { node: writer, ..self.header(other, Op::Invalidate, page) };
            self.post(header, Body::Runs(Vec::new()), actions);
        }
    }

    /// Forwards a request to the last known owner. A node that requests ownership becomes the last
    /// known owner.
    fn forward(&mut self, page: Page, request: &Request, write: bool, actions: &mut Vec<Action>) {
        let Request { requester, has, hops, ref prefetches } = *request;
        let entry = self.pages.of(page);
        let to = entry.owner;
        if write {
            entry.owner = requester;
        }
        let op = if write { Op::AskWrite } else { Op::AskRead };
        let hops = hops.saturating_add(1);
        let header = Header { node: requester, whole: has, hops, ..self.header(to, op, page) };
        self.post(header, Body::Runs(prefetches.clone()), actions);
    }

    /// Queues a request here until it can be granted: all read requests, and the first request for
    /// ownership. Later requests for ownership are forwarded to the node that sent the first.
    pub(super) fn queue(
        &mut self,
        page: Page,
        request: &Request,
        write: bool,
        actions: &mut Vec<Action>,
    ) {
        let Request { requester, has, hops, ref prefetches } = *request;
        let entry = self.pages.of(page);
        match (write, entry.next) {
            (false, _) => {
                entry.readers.insert(requester);
            }
            (true, None) => {
                entry.next = Some(Next { node: requester, has, hops });
                entry.owner = requester;
            }
            (true, Some(_)) => return self.forward(page, request, write, actions),
        }
        self.keep_prefetches(page, requester, prefetches);
    }

    /// Grants queued requests, unless tasks here must use the page first.
    pub(super) fn settle(&mut self, page: Page, actions: &mut Vec<Action>) {
        loop {
            let is_fresh = self.is_fresh(page);
            let entry = self.pages.of(page);
            let owns = entry.state.owns();
            let reader = entry.readers.first().filter(|_| owns);
            let next = entry.next.filter(|_| owns);
            if reader.is_none() && next.is_none() && entry.invalid_for.is_none() {
                return;
            }
            // A further reader takes no access away from this node's tasks.
            if is_fresh && !(reader.is_some() && entry.state == State::ReadOwner) {
                if entry.fresh == Fresh::Yes {
                    entry.fresh = Fresh::Held;
                    self.counts.held += 1;
                    actions.push(Action::Hold(page));
                }
                return;
            }
            let (event, detail) = if let Some(writer) = entry.invalid_for.take() {
                (PageEvent::Invalidate, Detail::Writer(writer))
            } else if let Some(requester) = reader {
                entry.readers.remove(requester);
                let prefetches = self.kept_prefetches(page, requester);
                let mut request = Request { requester, has: false, hops: 0, prefetches };
                (self.read_event(page, &mut request), Detail::Request(request))
            } else if let Some(Next { node: requester, has, hops }) = next {
                entry.next = None;
                let prefetches = self.kept_prefetches(page, requester);
                let request = Request { requester, has, hops, prefetches };
                (PageEvent::AskWrite, Detail::Request(request))
            } else {
                return;
            };
            self.apply(page, event, Some(detail), actions);
        }
    }

    /// Returns true if tasks were resumed at the page and need time to use it.
    pub(super) fn is_fresh(&self, page: Page) -> bool {
        self.pages.get(page).is_some_and(|entry| entry.fresh != Fresh::No)
    }

    /// Completes a write request if all copies of other nodes are gone.
    pub(super) fn gather(&mut self, page: Page, actions: &mut Vec<Action>) {
        let entry = self.pages.of(page);
        if entry.state == State::Gathering && entry.answers.is_empty() {
            debug_assert!(entry.copies.is_empty(), "page {page} has copies");
            self.apply(page, PageEvent::Gathered, None, actions);
        }
    }

    /// Returns the header of a message about a page.
    fn header(&self, to: NodeId, op: Op, page: Page) -> Header {
        let from = self.options.me;
        Header { op, from, to, node: 0, page, set: 0, whole: false, hops: 0, runs: 0 }
    }

    /// Sends a message without a body.
    fn send(&mut self, to: NodeId, op: Op, page: Page, actions: &mut Vec<Action>) {
        self.post(self.header(to, op, page), Body::Runs(Vec::new()), actions);
    }

    /// Sends a message, unless its receiver is lost.
    fn post(&mut self, header: Header, body: Body, actions: &mut Vec<Action>) {
        debug_assert!(
            header.to < self.options.nodes && header.to != self.options.me,
            "{header:?} has no receiver"
        );
        if self.lost.has(header.to) {
            return;
        }
        self.counts.messages[header.op as usize - 1] += 1;
        let runs = u16::try_from(body.runs().len()).expect("at most PAGES_MAX runs");
        actions.push(Action::Send(Header { runs, ..header }, body));
    }

    /// Returns the event for a read request when no other request is queued. If the page is
    /// migratory, the requester gets ownership, but none of the pages to prefetch.
    pub(super) fn read_event(&mut self, page: Page, request: &mut Request) -> PageEvent {
        let entry = self.pages.of(page);
        let waits = !entry.readers.is_empty() || entry.next.is_some();
        if entry.state != State::ReadWrite || waits || !entry.migratory.goes() {
            return PageEvent::AskRead;
        }
        entry.owner = request.requester;
        request.prefetches.clear();
        PageEvent::AskWrite
    }
}
