//! A node's state machine for sequential consistency: it takes events and returns actions.

use std::ops::Range;

use super::ahead::{Ahead, runs};
use super::copies::Copies;
use super::event::{Action, Event, Options, Refused};
use super::message::{Body, Content, Header, Op, PAGES_MAX};
use super::nodes::{NODES_MAX, Nodes};
use super::page::{Do, Happens, State, rule_of};
use super::statistics::Statistics;
use super::table::{Entry, First, Fresh, Next, Table};
use crate::message::{NodeId, Page};
use crate::ride::{Fate, forecast::Forecast};
use crate::run::Run;

/// Further details of a page's event.
#[derive(Clone, Debug)]
pub(super) enum Detail {
    /// The page's index in the message that just arrived.
    Place(usize),
    /// The request of another node.
    Asked(Request),
    /// The node that will write the page.
    Writer(NodeId),
}

/// A request of another node.
#[derive(Clone, Debug)]
pub(super) struct Request {
    asker: NodeId,
    /// The requester has a copy, according to its request.
    has: bool,
    hops: u16,
    hopes: Vec<Run>,
}

/// The state machine of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub(super) options: Options,
    pub(super) now: u64,
    pub(super) pages: Table,
    pub(super) copies: Copies,
    pub(super) ahead: Ahead,
    /// Pages that are being reset: nothing of them is prefetched.
    pub(super) closed: Vec<Range<Page>>,
    pub(super) lost: Nodes,
    pub(super) counts: Statistics,
}

impl Node {
    /// Creates a node without pages.
    ///
    /// # Panics
    /// The options are invalid.
    pub fn new(options: Options) -> Self {
        let Options { nodes, me, pages_max, .. } = options;
        assert!(me < nodes && nodes <= NODES_MAX, "a node among nodes");
        assert!((1..=PAGES_MAX).contains(&pages_max), "a message has room for a page");
        Self {
            options,
            now: 0,
            pages: Table::default(),
            copies: Copies::default(),
            ahead: Ahead::new(Forecast::new(options.rides)),
            closed: Vec::new(),
            lost: Nodes::default(),
            counts: Statistics::default(),
        }
    }

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
                assert!(pages.end <= self.pages(), "pages that are not allocated begin anew");
                assert!(self.is_quiet(&pages), "pages that are asked for begin anew");
                let mut page = self.pages.next_used(pages.clone());
                while page < pages.end {
                    self.copies.set(page, false);
                    self.mark_is(page, Fate::Wasted);
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
        Ok(())
    }

    /// Returns the node's statistics.
    pub fn statistics(&self) -> &Statistics {
        &self.counts
    }

    /// Resets the statistics.
    pub fn forget_statistics(&mut self) {
        self.counts = Statistics::default();
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u64 {
        self.pages.pages()
    }

    /// Returns the number of copies of other nodes' pages.
    pub fn copies(&self) -> u64 {
        self.copies.count()
    }

    /// Returns the state of a page on this node.
    pub fn state(&self, page: Page) -> Option<State> {
        Some(self.pages.get(page)?.state)
    }

    /// Returns the first of these pages that tasks here have used or other nodes have requested
    /// here, or the end of the range. A page's initial owner knows of its use on any node.
    pub fn next_touched(&self, pages: Range<Page>) -> Page {
        self.pages.next_touched(pages)
    }

    /// Returns true if the bytes here are the current contents of the page.
    pub fn can_be_read(&self, page: Page) -> bool {
        self.state(page).is_some_and(State::has_bytes)
    }

    /// Returns the last known owner of a page.
    pub fn owner(&self, page: Page) -> Option<NodeId> {
        let entry = self.pages.get(page)?;
        let is_ours = entry.state.owns() || entry.state == State::Gathering;
        Some(if is_ours { self.options.me } else { entry.owner })
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the time of the last step.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns true if no request of this node's tasks for these pages is in flight.
    pub fn is_quiet(&self, pages: &Range<Page>) -> bool {
        self.first_busy(pages.clone()) == pages.end
    }

    /// Returns the first of these pages for which a request of this node's tasks is in flight, or
    /// the end of the range.
    pub fn first_busy(&self, pages: Range<Page>) -> Page {
        let rests = |entry: Entry| !entry.state.waits() && entry.state != State::Gathering;
        self.first_not(pages, rests)
    }

    /// Returns the first of these pages with an entry for which `is_so` is false, or the end.
    fn first_not(&self, pages: Range<Page>, is_so: impl Fn(Entry) -> bool) -> Page {
        let end = pages.end;
        let mut page = self.pages.next_used(pages);
        while page < end && self.pages.get(page).is_some_and(&is_so) {
            page = self.pages.next_used(page + 1..end);
        }
        page
    }

    /// Returns the initial state of pages.
    fn first(&self, owner: NodeId, everywhere: bool) -> First {
        let Options { me, nodes, .. } = self.options;
        assert!(owner < nodes, "a node owns the pages");
        First { owner, everywhere, me, nodes }
    }

    /// Returns true if no request is in flight and no node waits.
    pub fn is_idle(&self) -> bool {
        let pages = 0..self.pages();
        let rests = |entry: Entry| {
            entry.readers.is_empty() && entry.next.is_none() && entry.invalid_for.is_none()
        };
        self.ahead.is_idle()
            && self.is_quiet(&pages)
            && self.first_not(pages.clone(), rests) == pages.end
    }

    /// Handles a page fault of a task.
    fn fault(&mut self, page: Page, write: bool, actions: &mut Vec<Action>) {
        assert!(page < self.pages(), "page {page} is not allocated");
        let now = self.now;
        *(if write { &mut self.counts.write_faults } else { &mut self.counts.read_faults }) += 1;
        let entry = self.pages.of(page);
        entry.since = now;
        let on = match (write, entry.state) {
            (false, _) => Happens::Read,
            (true, State::ReadOwner) if entry.copies.is_empty() => Happens::Claim,
            (true, _) => Happens::Write,
        };
        if on == Happens::Write && entry.state == State::ReadOwner {
            entry.migratory.copies_are_in_the_way();
        }
        entry.is_wanted = matches!(entry.state, State::HopingToRead | State::HopingToWrite);
        if !self.lost.is_empty() && self.rule(page, on).next.waits() {
            actions.push(Action::Gone(page));
            return;
        }
        let Entry { is_new, state, .. } = *self.pages.of(page);
        self.happens(page, on, None, actions);
        if is_new {
            self.use_ahead(page, actions);
        } else if write && matches!(state, State::ReadOnly | State::ReadOwner) {
            self.write_ahead(page, actions);
        }
    }

    fn rule(&mut self, page: Page, on: Happens) -> super::page::Rule {
        let state = self.pages.of(page).state;
        rule_of(state, on).unwrap_or_else(|| panic!("page {page}, {state:?}: {on:?} cannot happen"))
    }

    /// Applies the rule for an event. A local event without a rule is a bug of this node. Events
    /// that messages cause are checked before.
    pub(super) fn happens(
        &mut self,
        page: Page,
        on: Happens,
        detail: Option<Detail>,
        actions: &mut Vec<Action>,
    ) {
        let rule = self.rule(page, on);
        self.counts.rules[rule.state as usize][on as usize] += 1;
        let now = self.now;
        let entry = self.pages.of(page);
        entry.state = rule.next;
        entry.is_new = false;
        let waited = now.saturating_sub(entry.since);
        match (rule.state, on) {
            (State::Reading, Happens::Copy | Happens::OwnAlone) => self.counts.reading.add(waited),
            (_, Happens::OwnAlone | Happens::Gathered) => self.counts.writing.add(waited),
            _ => {}
        }
        if matches!(rule.state, State::Ahead | State::AheadOwner) && rule.next != rule.state {
            let is_used = matches!(on, Happens::Read | Happens::Write);
            self.mark_is(page, if is_used { Fate::Used } else { Fate::Wasted });
        }
        if rule.state.is_copy() != rule.next.is_copy() {
            self.copies.set(page, rule.next.is_copy());
        }
        for action in rule.actions {
            match (action, &detail) {
                (Do::Ask, _) => self.ask(page, &rule, actions),
                (Do::Fill, Some(Detail::Place(place))) => actions.push(Action::Fill(page, *place)),
                (Do::MapRead | Do::MapWrite, _) => {
                    self.pages.of(page).fresh = Fresh::Yes;
                    actions.push(match action {
                        Do::MapRead => Action::MapRead(page),
                        _ => Action::MapWrite(page),
                    });
                }
                (Do::Protect, _) => actions.push(Action::Protect(page)),
                (Do::Unmap, _) => {
                    self.pages.of(page).fresh = Fresh::No;
                    actions.push(Action::Unmap(page));
                }
                (Do::Wake, _) => actions.push(Action::Wake(page)),
                (Do::GrantRead, Some(Detail::Asked(request))) => {
                    self.grant(page, request, false, actions);
                }
                (Do::GrantWrite, Some(Detail::Asked(request))) => {
                    self.grant(page, request, true, actions);
                }
                (Do::GrantNew, Some(Detail::Asked(request))) => {
                    self.grant_new(page, request, actions);
                }
                (Do::Forward, Some(Detail::Asked(request))) => {
                    self.forward(page, request, on == Happens::AskWrite, actions);
                }
                (Do::Queue, Some(Detail::Asked(request))) => {
                    self.queue(page, request, on == Happens::AskWrite, actions);
                }
                (Do::Invalidate, _) => {
                    let entry = self.pages.of(page);
                    let others = std::mem::take(&mut entry.copies).without(self.lost);
                    entry.answers = others;
                    self.invalidate(page, others, self.options.me, actions);
                    self.gather(page, actions);
                }
                (Do::Acknowledge, Some(Detail::Writer(writer))) => {
                    self.is_out_of_date(page, *writer);
                    self.send(*writer, Op::Acknowledge, page, actions);
                }
                (action, detail) => unreachable!("{action:?} needs more than {detail:?}"),
            }
        }
    }

    /// Sends a request to the last known owner.
    fn ask(&mut self, page: Page, rule: &super::page::Rule, actions: &mut Vec<Action>) {
        let me = self.options.me;
        let write = rule.next != State::Reading;
        let entry = self.pages.of(page);
        let to = entry.owner;
        if write {
            entry.owner = me;
            entry.answers = Nodes::default();
        }
        let hopes = self.hope(page, to, write, actions);
        let op = if write { Op::AskWrite } else { Op::AskRead };
        let header = Header { node: me, whole: rule.state.is_copy(), ..self.header(to, op, page) };
        self.post(header, Body::Runs(hopes), actions);
    }

    /// Grants a request.
    fn grant(&mut self, page: Page, request: &Request, write: bool, actions: &mut Vec<Action>) {
        let Request { asker, has, hops, ref hopes } = *request;
        self.counts.hops += u64::from(hops);
        let lost = self.lost;
        let entry = self.pages.of(page);
        let whole = !(write && has && entry.copies.has(asker));
        let mut others = Nodes::default();
        if write {
            others = std::mem::take(&mut entry.copies).without(Nodes::one(asker)).without(lost);
            if !whole && others.is_empty() {
                entry.migratory.copy_is_written(self.options.migratory);
            }
            self.counts.moved += 1;
            self.invalidate(page, others, asker, actions);
        } else {
            entry.copies.insert(asker);
        }
        let room = self.options.pages_max as usize - usize::from(whole);
        let lent = self.lend(asker, page, write, hopes, room, actions);
        self.counts.pages += u64::from(whole) + lent.len() as u64;
        let op = if write { Op::GrantWrite } else { Op::GrantRead };
        let header = Header { set: others.bits(), whole, ..self.header(asker, op, page) };
        let rides = runs(lent.iter().copied());
        self.post(header, Body::Pages { asked: whole.then_some(page), rides }, actions);
        if write {
            // Unmap after the `Send` above, which reads the bytes of these pages.
            actions.extend(lent.into_iter().map(Action::Unmap));
        }
    }

    /// Grants ownership of a page that no task has used. A reader gets ownership too, since it will
    /// write the page sooner or later.
    fn grant_new(&mut self, page: Page, request: &Request, actions: &mut Vec<Action>) {
        let Request { asker, hops, ref hopes, .. } = *request;
        self.counts.hops += u64::from(hops);
        self.pages.of(page).owner = asker;
        let lent = self.lend_new(asker, page, hopes);
        self.counts.moved += 1;
        self.counts.pages += 1 + lent.len() as u64;
        let header = Header { whole: true, ..self.header(asker, Op::GrantWrite, page) };
        self.post(header, Body::New(runs(lent.into_iter())), actions);
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
        let Request { asker, has, hops, ref hopes } = *request;
        let entry = self.pages.of(page);
        let to = entry.owner;
        if write {
            entry.owner = asker;
        }
        let op = if write { Op::AskWrite } else { Op::AskRead };
        let hops = hops.saturating_add(1);
        let header = Header { node: asker, whole: has, hops, ..self.header(to, op, page) };
        self.post(header, Body::Runs(hopes.clone()), actions);
    }

    /// Queues a request here until it can be granted: all read requests, and the first request for
    /// ownership. Later requests for ownership are forwarded to the node that sent the first.
    fn queue(&mut self, page: Page, request: &Request, write: bool, actions: &mut Vec<Action>) {
        let Request { asker, has, hops, ref hopes } = *request;
        let entry = self.pages.of(page);
        match (write, entry.next) {
            (false, _) => {
                entry.readers.insert(asker);
            }
            (true, None) => {
                entry.next = Some(Next { node: asker, has, hops });
                entry.owner = asker;
            }
            (true, Some(_)) => return self.forward(page, request, write, actions),
        }
        self.keep_hopes(page, asker, hopes);
    }

    /// Grants queued requests, unless tasks here must use the page first.
    fn settle(&mut self, page: Page, actions: &mut Vec<Action>) {
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
            let (on, detail) = if let Some(writer) = entry.invalid_for.take() {
                (Happens::Invalidate, Detail::Writer(writer))
            } else if let Some(asker) = reader {
                entry.readers.remove(asker);
                let hopes = self.kept_hopes(page, asker);
                let mut request = Request { asker, has: false, hops: 0, hopes };
                (self.is_to_read(page, &mut request), Detail::Asked(request))
            } else if let Some(Next { node: asker, has, hops }) = next {
                entry.next = None;
                let hopes = self.kept_hopes(page, asker);
                let request = Request { asker, has, hops, hopes };
                (Happens::AskWrite, Detail::Asked(request))
            } else {
                return;
            };
            self.happens(page, on, Some(detail), actions);
        }
    }

    /// Returns true if tasks were resumed at the page and need time to use it.
    pub(super) fn is_fresh(&self, page: Page) -> bool {
        self.pages.get(page).is_some_and(|entry| entry.fresh != Fresh::No)
    }

    /// Completes a write request if all copies of other nodes are gone.
    fn gather(&mut self, page: Page, actions: &mut Vec<Action>) {
        let entry = self.pages.of(page);
        if entry.state == State::Gathering && entry.answers.is_empty() {
            self.happens(page, Happens::Gathered, None, actions);
        }
    }

    fn header(&self, to: NodeId, op: Op, page: Page) -> Header {
        let from = self.options.me;
        Header { op, from, to, node: 0, page, set: 0, whole: false, hops: 0, runs: 0 }
    }

    fn send(&mut self, to: NodeId, op: Op, page: Page, actions: &mut Vec<Action>) {
        self.post(self.header(to, op, page), Body::Runs(Vec::new()), actions);
    }

    fn post(&mut self, header: Header, body: Body, actions: &mut Vec<Action>) {
        if self.lost.has(header.to) {
            return;
        }
        self.counts.messages[header.op as usize - 1] += 1;
        let runs = u16::try_from(body.runs().len()).expect("a message has room for them");
        actions.push(Action::Send(Header { runs, ..header }, body));
    }

    fn message(
        &mut self,
        header: &Header,
        content: Content,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { op, from, to, node, page, .. } = *header;
        let Options { me, nodes, .. } = self.options;
        let refuse = |why| Err(Refused::of(header, why));
        if to != me || from >= nodes || from == me || self.lost.has(from) {
            return refuse("not for this node, or from none");
        }
        let Some(entry) = self.pages.get(page) else {
            return refuse("is of a page that there is not");
        };
        match op {
            Op::AskRead | Op::AskWrite => self.asked(header, entry, content, actions),
            Op::GrantRead | Op::GrantWrite => self.granted(header, entry, &content, actions),
            Op::Invalidate => {
                if node >= nodes || node == me || entry.invalid_for.is_some() {
                    return refuse("is for a writer that cannot be");
                }
                if rule_of(entry.state, Happens::Invalidate).is_none() {
                    return refuse("wants our own page to be dropped");
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
                    let writer = Some(Detail::Writer(node));
                    self.happens(page, Happens::Invalidate, writer, actions);
                }
                Ok(())
            }
            Op::Acknowledge => {
                let entry = self.pages.of(page);
                let is_new = match entry.state {
                    State::Gathering => entry.answers.remove(from),
                    State::Writing | State::Upgrading => entry.answers.insert(from),
                    _ => false,
                };
                if !is_new {
                    return refuse("drops a copy that nobody asked it to");
                }
                self.gather(page, actions);
                Ok(())
            }
        }
    }

    /// Handles a request for a page.
    fn asked(
        &mut self,
        header: &Header,
        entry: Entry,
        hopes: Vec<Run>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { op, node: asker, page, whole: has, hops, .. } = *header;
        let Options { me, nodes, .. } = self.options;
        let refuse = |why| Err(Refused::of(header, why));
        if asker >= nodes || asker == me {
            return refuse("asks for a node that cannot");
        }
        if self.lost.has(asker) {
            return Ok(());
        }
        let write = op == Op::AskWrite;
        let waits = entry.readers.has(asker) || entry.next.is_some_and(|next| next.node == asker);
        let asks_again = write && entry.owner == asker && entry.state.owns();
        if waits || asks_again {
            return refuse("asks twice");
        }
        let mut request = Request { asker, has, hops, hopes };
        let busy = self.is_fresh(page) && (write || entry.state == State::ReadWrite)
            || entry.next.is_some()
            || !entry.readers.is_empty();
        if entry.state.owns() {
            if busy {
                self.queue(page, &request, write, actions);
                return Ok(());
            }
            if write {
                self.pages.of(page).owner = asker;
            }
        } else if entry.owner == asker {
            return refuse("asks for a page that it has, so far as we know");
        }
        let on = match entry.is_new {
            true => Happens::AskNew,
            false if write => Happens::AskWrite,
            false => self.is_to_read(page, &mut request),
        };
        self.happens(page, on, Some(Detail::Asked(request)), actions);
        Ok(())
    }

    /// Returns the event for a read request when no other request is queued. If the page is
    /// migratory, the requester gets ownership, but none of the pages to prefetch.
    fn is_to_read(&mut self, page: Page, request: &mut Request) -> Happens {
        let entry = self.pages.of(page);
        let waits = !entry.readers.is_empty() || entry.next.is_some();
        if entry.state != State::ReadWrite || waits || !entry.migratory.goes() {
            return Happens::AskRead;
        }
        entry.owner = request.asker;
        request.hopes.clear();
        Happens::AskWrite
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
        let refuse = |why| Err(Refused::of(header, why));
        let write = op == Op::GrantWrite;
        let wanted = match entry.state {
            State::Reading => whole && (!write || set == 0),
            State::Writing => write && whole,
            State::Upgrading => write && !whole,
            _ => false,
        };
        if !wanted {
            return refuse("brings a page that nobody asked for");
        }
        if !self.hopes_for(page, rides) {
            return refuse("brings pages along that nobody hopes for");
        }
        let Some(others) = Nodes::of(set, nodes).filter(|others| !others.has(me)) else {
            return refuse("has copies at nodes that there are not");
        };
        if !write && !others.is_empty() || !entry.answers.without(others).is_empty() && write {
            return refuse("does not know of copies that were dropped");
        }
        let lost = self.lost;
        let on = match write {
            false => {
                self.pages.of(page).owner = from;
                Happens::Copy
            }
            true => {
                let entry = self.pages.of(page);
                if entry.state == State::Reading {
                    // This node requested a copy, and no other request is queued behind it yet.
                    (entry.owner, entry.answers) = (me, Nodes::default());
                }
                entry.answers = others.without(entry.answers).without(lost);
                if entry.answers.is_empty() { Happens::OwnAlone } else { Happens::Own }
            }
        };
        let first = actions.len();
        self.happens(page, on, Some(Detail::Place(0)), actions);
        self.came_along(page, from, write, rides, usize::from(whole), actions);
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
        self.forget_hopes_of(node);
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
