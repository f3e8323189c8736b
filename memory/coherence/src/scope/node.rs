//! A node's state machine for scope consistency: it takes events and returns actions.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::barrier::{Arrivals, Barrier};
use super::condition::{Condition, Waiting};
use super::event::{Action, Body, Event, Kept, Options, Refused, Task};
use super::homes::Homes;
use super::list::Partial;
use super::lock::{Local, Managed};
use super::page::{Do, Happens, State, rule_of};
use super::rides::Rides;
use super::statistics::{PageStatistics, Statistics};
use super::table::Table;
use crate::message::{Content, Header, Lock, NodeId, Op, Page};
use crate::ride::forecast::Forecast;
use crate::ride::{self, Carrier, Ride};
use crate::run::{self, Run};

/// Maximum number of pages whose diffs one message carries.
const DIFFS: usize = 64;
/// Maximum number of early page requests that are stored per node. No node has more threads.
const EARLY_MAX: usize = 1 << 16;

/// An open scope, of a lock that this node holds or of the barrier, and the pages written in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Scope {
    /// The lock, or `None` for the barrier's scope.
    pub lock: Option<Lock>,
    /// The written pages, unordered and with duplicates.
    pub written: Vec<Page>,
}

/// A message that waits until the diffs sent before it are applied.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Later {
    /// The number of the last of these diffs.
    after: u64,
    header: Header,
    body: Body,
}

/// Further details of a page's event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Detail {
    /// The node that requests the page.
    Asker(NodeId),
    /// The page's index in the message that just arrived.
    Place(usize),
    /// The page's index in a kept message.
    Kept(Kept, usize),
}

/// The state machine of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub(super) options: Options,
    pub(super) now: u64,
    /// Number of barriers passed.
    pub(super) epoch: u64,
    pub(super) pages: Table,
    /// Pages that may be Dirty or HomeDirty. Some are in another state, and some appear twice.
    pub(super) writable: Vec<Page>,
    /// The open scopes. The first is the barrier's.
    pub(super) scopes: Vec<Scope>,
    /// Number of diff messages sent. They are numbered from 1.
    pub(super) diffs_sent: u64,
    /// The homes of the diff messages that are not applied yet, from the oldest on. `None` if that
    /// home has applied its message before an older one.
    diffs_applied: VecDeque<Option<NodeId>>,
    /// Number of diffs that are batched but not sent yet, by home.
    collected: BTreeMap<NodeId, usize>,
    later: VecDeque<Later>,
    /// Number of pages in flight to this node.
    pub(super) fetches: u64,
    /// Number of lock requests without an answer.
    pub(super) locks_asked: u64,
    pub(super) rides: Rides,
    /// Page requests that came before this node made the same allocation or passed the same
    /// barrier.
    early: Vec<Header>,
    /// Faults that wait for the barrier.
    held: Vec<Page>,
    pub(super) locks: BTreeMap<Lock, Local>,
    pub(super) managed: BTreeMap<Lock, Managed>,
    pub(super) conditions: BTreeMap<Lock, Condition>,
    pub(super) waiting: BTreeMap<Task, Waiting>,
    /// Pages that other nodes wrote, learnt from condition variables since the barrier.
    pub(super) heard: Vec<Run>,
    pub(super) barrier: Barrier,
    pub(super) arrivals: Arrivals,
    /// Incomplete lists, at most one of each node.
    pub(super) partial: BTreeMap<NodeId, Partial>,
    /// Messages from this node to itself.
    own: VecDeque<(Header, Content)>,
    pub(super) counts: Statistics,
}

impl Node {
    /// Creates a node without pages.
    pub fn new(options: Options) -> Self {
        assert!(options.me < options.nodes && options.tasks > 0, "a node among nodes, with tasks");
        Self {
            options,
            now: 0,
            epoch: 0,
            pages: Table::default(),
            writable: Vec::new(),
            scopes: vec![Scope { lock: None, written: Vec::new() }],
            diffs_sent: 0,
            diffs_applied: VecDeque::new(),
            collected: BTreeMap::new(),
            later: VecDeque::new(),
            fetches: 0,
            locks_asked: 0,
            rides: Rides::new(Forecast::new(options.rides)),
            early: Vec::new(),
            held: Vec::new(),
            locks: BTreeMap::new(),
            managed: BTreeMap::new(),
            conditions: BTreeMap::new(),
            waiting: BTreeMap::new(),
            heard: Vec::new(),
            barrier: Barrier::new(options.tasks),
            arrivals: Arrivals::default(),
            partial: BTreeMap::new(),
            own: VecDeque::new(),
            counts: Statistics::default(),
        }
    }

    /// Handles an event at the time `now` and appends the resulting actions.
    ///
    /// # Errors
    /// A message that violates the protocol, or an allocation that shows that an earlier message
    /// did. The node's state does not change, and there are no actions.
    pub fn step(
        &mut self,
        event: Event,
        now: u64,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        self.now = now;
        match event {
            Event::Allocate { pages, homes } => self.allocate(pages, homes, actions)?,
            Event::Configure { migrate, alone } => {
                self.options = Options { migrate, alone, ..self.options };
            }
            Event::Read(page) => self.fault(page, Happens::Read, actions),
            Event::Write(page) => self.fault(page, Happens::Write, actions),
            Event::Acquire(task, lock) => self.acquire(task, lock, actions),
            Event::Release(task, lock) => self.release(task, lock, actions),
            Event::Barrier(task) => self.reach(task, actions),
            Event::Meet(task) => self.meet(task, actions),
            Event::Set(_, lock) => self.set(lock, actions),
            Event::Reset(_, lock) => self.reset(lock),
            Event::Wait(task, lock) => self.wait(task, lock, actions),
            Event::Message(header, ..) if header.from == self.options.me => {
                return Err(Refused::of(&header, "comes from this node, and from outside"));
            }
            Event::Message(header, ..) if !self.can_follow(&header) => {
                return Err(Refused::of(&header, "breaks a list off"));
            }
            Event::Message(header, content, rides) => {
                self.message(header, content, &rides, actions)?;
            }
        }
        self.settle(actions);
        self.forget_suggested();
        Ok(())
    }

    /// Returns the node's statistics.
    pub fn statistics(&self) -> &Statistics {
        &self.counts
    }

    /// Returns the statistics of a page.
    pub fn page_statistics(&self, page: Page) -> Option<PageStatistics> {
        Some(self.pages.get(page)?.counts)
    }

    /// Resets all statistics.
    pub fn forget_statistics(&mut self) {
        self.counts = Statistics::default();
        self.pages.forget_statistics();
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u64 {
        self.pages.pages()
    }

    /// Returns the home of a page.
    pub fn home(&self, page: Page) -> Option<NodeId> {
        Some(self.pages.get(page)?.home)
    }

    /// Returns the state of a page on this node.
    pub fn state(&self, page: Page) -> Option<State> {
        Some(self.pages.get(page)?.state)
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the time of the last step.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns the number of barriers passed.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns a request for a page that this node has not allocated, if all its tasks wait for all
    /// other tasks. That is a deadlock: the requester waits for this node.
    pub fn lacks(&self) -> Option<(NodeId, Page)> {
        if self.early.is_empty() || !self.barrier.waits_for_all() {
            return None;
        }
        let is_lacked = |early: &&Header| early.epoch == self.epoch && early.scope >= self.pages();
        self.early.iter().find(is_lacked).map(|early| (early.from, early.scope))
    }

    /// Returns true if no request is in flight and no task waits.
    pub fn is_idle(&self) -> bool {
        self.fetches == 0
            && self.diffs_applied.is_empty()
            && self.later.is_empty()
            && self.early.is_empty()
            && self.held.is_empty()
            && self.waiting.is_empty()
            && self.locks.values().all(Local::is_idle)
    }

    fn allocate(
        &mut self,
        pages: u64,
        homes: Homes,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        self.check_arrivals(pages, homes)?;
        self.pages.allocate(pages, homes, &self.options);
        self.answer_early(actions);
        Ok(())
    }

    /// Handles a page fault of a task.
    fn fault(&mut self, page: Page, on: Happens, actions: &mut Vec<Action>) {
        assert!(page < self.pages(), "page {page} is not allocated");
        let entry = self.pages.of(page);
        if on == Happens::Write {
            self.counts.write_faults += 1;
            entry.counts.written += 1;
        } else {
            self.counts.read_faults += 1;
        }
        match self.barrier.is_quiet() {
            true => self.held.push(page),
            false => self.happens(page, on, None, actions),
        }
    }

    /// Lets faults that waited for the barrier retry.
    pub(super) fn resume(&mut self, actions: &mut Vec<Action>) {
        actions.extend(std::mem::take(&mut self.held).into_iter().map(Action::Wake));
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
        let entry = self.pages.of(page);
        let rule = rule_of(entry.state, on)
            .unwrap_or_else(|| panic!("page {page}, {:?}: {on:?} cannot happen", entry.state));
        if rule.next == State::Invalid && entry.state != State::Invalid {
            entry.counts.dropped += 1;
            self.counts.dropped += 1;
        }
        self.counts.rules[rule.state as usize][on as usize] += 1;
        entry.state = rule.next;
        let home = entry.home;
        if rule.state == State::Ridden && rule.next != State::Ridden {
            self.alights(page, rule.next != State::Invalid);
        }
        if on == Happens::Arrive {
            let since = self.pages.of(page).since;
            self.fetches -= 1;
            self.counts.fetching.add(self.now.saturating_sub(since));
            self.forget_noticed();
        }
        for action in rule.actions {
            match action {
                Do::Ask => {
                    let entry = self.pages.of(page);
                    entry.since = self.now;
                    entry.counts.fetched += 1;
                    self.fetches += 1;
                    self.send(home, Op::GetPage, 0, page, Body::Empty, actions);
                }
                Do::Fill => actions.push(match detail {
                    Some(Detail::Kept(kept, place)) => Action::FillKept(page, kept, place),
                    Some(Detail::Place(place)) => Action::Fill(page, place),
                    _ => Action::Fill(page, 0),
                }),
                Do::Twin => actions.push(Action::Twin(page)),
                Do::MapRead => actions.push(Action::MapRead(page)),
                Do::MapWrite => actions.push(Action::MapWrite(page)),
                Do::Protect => actions.push(Action::Protect(page)),
                Do::Unmap => actions.push(Action::Unmap(page)),
                Do::Wake => actions.push(Action::Wake(page)),
                // The driver applies the diffs of all pages in a message at once.
                Do::Change if actions.last() == Some(&Action::Change) => {}
                Do::Change => actions.push(Action::Change),
                Do::Record => {
                    self.writable.push(page);
                    for scope in &mut self.scopes {
                        scope.written.push(page);
                    }
                }
                Do::Diff => {
                    self.counts.diffs += 1;
                    actions.push(Action::Diff(page, home));
                    let collected = self.collected.entry(home).or_default();
                    *collected += 1;
                    if *collected == DIFFS {
                        self.collected.remove(&home);
                        self.send_diffs(home, actions);
                    }
                }
                Do::Answer => {
                    let Some(Detail::Asker(asker)) = detail else { panic!("somebody asks") };
                    let rides = self.lend(asker, Carrier::Page, Some(page), &[], actions);
                    let header = self.header(asker, Op::GetPageGrant, 0);
                    let header = Header { scope: page, ..header };
                    self.post(header, Body::Page(page), rides, actions);
                }
            }
        }
    }

    fn send_diffs(&mut self, home: NodeId, actions: &mut Vec<Action>) {
        self.diffs_sent += 1;
        self.diffs_applied.push_back(Some(home));
        self.send(home, Op::Diff, 0, self.diffs_sent, Body::Diffs, actions);
    }

    /// Sends the batched diffs. Call this before any message that tells another node that they were
    /// sent.
    pub(super) fn send_collected(&mut self, actions: &mut Vec<Action>) {
        while let Some((home, _)) = self.collected.pop_first() {
            self.send_diffs(home, actions);
        }
    }

    /// Opens a scope: later writes are recorded in it too.
    pub(super) fn open(&mut self, lock: Lock, actions: &mut Vec<Action>) {
        for page in std::mem::take(&mut self.writable) {
            if matches!(self.pages.of(page).state, State::Dirty | State::HomeDirty) {
                self.happens(page, Happens::Open, None, actions);
            }
        }
        self.scopes.push(Scope { lock: Some(lock), written: Vec::new() });
    }

    /// Sends the diffs of the pages that were written in a scope. Returns the pages as runs.
    pub(super) fn flush(&mut self, mut written: Vec<Page>, actions: &mut Vec<Action>) -> Vec<Run> {
        written.sort_unstable();
        written.dedup();
        for &page in &written {
            self.changed(self.options.me, page..page + 1);
            self.happens(page, Happens::Flush, None, actions);
        }
        self.send_collected(actions);
        let me = self.options.me;
        run::of(written.into_iter().map(|page| {
            let whole = !matches!(self.pages.of(page).state, State::Invalid | State::Ridden);
            (page, if whole { me } else { run::NOBODY })
        }))
    }

    /// Handles write notices: other nodes wrote these pages.
    pub(super) fn notice(&mut self, runs: &[Run], actions: &mut Vec<Action>) {
        let pages = self.pages();
        if self.is_asking() {
            self.rides.noticed(runs);
        }
        for run in runs {
            let mut pages = run.first..run.range().end.min(pages);
            while let Some(page) = self.next_noticed(&mut pages) {
                self.happens(page, Happens::Notice, None, actions);
            }
        }
        self.send_collected(actions);
    }

    /// Returns the next of these pages for which a write notice may have an effect. Counts the
    /// notices of the pages before it: their home is elsewhere, and this node has no copy.
    pub(super) fn next_noticed(&mut self, pages: &mut Range<Page>) -> Option<Page> {
        let next = self.pages.next_touched(pages.clone());
        let rules = &mut self.counts.rules[State::Invalid as usize];
        rules[Happens::Notice as usize] += next - pages.start;
        pages.start = next;
        pages.next()
    }

    /// Returns true if an answer is in flight that could carry rides.
    fn is_asking(&self) -> bool {
        self.fetches > 0 || self.locks_asked > 0
    }

    /// Forgets the write notices if no answer is in flight that they could affect.
    pub(super) fn forget_noticed(&mut self) {
        if !self.is_asking() {
            self.rides.nothing_under_way();
        }
    }

    /// Sends a message as soon as all diffs that were sent before are applied.
    pub(super) fn send_later(&mut self, to: NodeId, op: Op, lock: Lock, body: Body) {
        let header = self.header(to, op, lock);
        self.later.push_back(Later { after: self.diffs_sent, header, body });
    }

    pub(super) fn header(&self, to: NodeId, op: Op, lock: Lock) -> Header {
        Header { op, from: self.options.me, to, lock, scope: 0, epoch: self.epoch, rides: 0 }
    }

    pub(super) fn send(
        &mut self,
        to: NodeId,
        op: Op,
        lock: Lock,
        scope: u64,
        body: Body,
        actions: &mut Vec<Action>,
    ) {
        let header = Header { scope, ..self.header(to, op, lock) };
        self.post(header, body, Vec::new(), actions);
    }

    pub(super) fn post(
        &mut self,
        mut header: Header,
        body: Body,
        mut rides: Vec<Ride>,
        actions: &mut Vec<Action>,
    ) {
        if header.to != self.options.me {
            self.counts.messages[header.op as usize - 1] += 1;
            rides.extend(self.rides.tells(header.to, header.op));
            header.rides = u8::try_from(rides.len()).expect("a message has room for them");
            actions.push(Action::Send(header, body, rides));
            return;
        }
        let content = match body {
            Body::Empty => Content::Empty,
            Body::Runs(runs) => Content::Runs(runs),
            Body::Page(_) | Body::Diffs => unreachable!("our own pages are ours"),
        };
        self.own.push_back((header, content));
    }

    /// Performs all work that has become possible.
    fn settle(&mut self, actions: &mut Vec<Action>) {
        loop {
            while self.diffs_applied.front() == Some(&None) {
                self.diffs_applied.pop_front();
            }
            let applied = self.diffs_sent - self.diffs_applied.len() as u64;
            if self.later.front().is_some_and(|later| later.after <= applied) {
                let later = self.later.pop_front().expect("it is there");
                match later.body {
                    Body::Runs(runs) => {
                        self.send_runs(later.header, Op::WriteNotice, runs, Vec::new(), actions);
                    }
                    body => self.post(later.header, body, Vec::new(), actions),
                }
                if later.header.op == Op::Release {
                    self.released(later.header.lock, actions);
                }
            } else if let Some((header, content)) = self.own.pop_front() {
                self.message(header, content, &[], actions).expect("we talk sense to ourselves");
            } else if self.barrier.is_quiet() && self.fetches == 0 && self.later.is_empty() {
                if !self.arrive(actions) {
                    return;
                }
            } else {
                return;
            }
        }
    }

    fn message(
        &mut self,
        header: Header,
        content: Content,
        rides: &[Ride],
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { op, from, to, scope, epoch, .. } = header;
        let refuse = |why| Err(Refused::of(&header, why));
        if to != self.options.me || from >= self.options.nodes {
            return refuse("not for this node, or from none");
        }
        if epoch > self.epoch + 1 {
            return refuse("two barriers ahead");
        }
        let aboard = ride::aboard(rides);
        let may_ride = match (Carrier::of(op).is_some(), ride::tells(op)) {
            (true, true) => true,
            (true, false) => aboard == rides.len(),
            (false, true) => aboard == 0,
            (false, false) => rides.is_empty(),
        };
        if !may_ride {
            return refuse("says something of rides");
        }
        match (op, content) {
            (Op::GetPage, Content::Empty) => {
                if epoch > self.epoch || scope >= self.pages() {
                    let mut theirs = self.early.iter().filter(|early| early.from == from);
                    if theirs.clone().any(|early| early.scope == scope) {
                        return refuse("asks twice");
                    }
                    if theirs.nth(EARLY_MAX - 1).is_some() {
                        return refuse("asks for too many pages that there are not");
                    }
                    self.told(from, rides);
                    self.early.push(header);
                    return Ok(());
                }
                if !self.can(scope, Happens::Ask) {
                    return refuse("asks for a page that does not live here");
                }
                self.told(from, rides);
                self.asked_for(from, scope);
                self.happens(scope, Happens::Ask, Some(Detail::Asker(from)), actions);
            }
            (Op::GetPageGrant, Content::Page) => {
                if !self.can(scope, Happens::Arrive) || self.home(scope) != Some(from) {
                    return refuse("sends a page that nobody asked for");
                }
                let takable = self.takable(&header, rides);
                self.happens(scope, Happens::Arrive, None, actions);
                self.take_rides(&header, rides, &takable, actions);
            }
            (Op::Diff, Content::Diffs(pages)) => {
                let mine = |&page: &Page| {
                    let state = self.state(page);
                    self.can(page, Happens::Change)
                        && (state != Some(State::Clean) || epoch > self.epoch)
                };
                if !pages.iter().all(mine) {
                    return refuse("changes a page that does not live here, or that it has not");
                }
                for page in pages {
                    self.changed(from, page..page + 1);
                    self.happens(page, Happens::Change, None, actions);
                }
                self.send(from, Op::DiffGrant, 0, scope, Body::Empty, actions);
            }
            (Op::DiffGrant, Content::Empty) => {
                let oldest = self.diffs_sent - self.diffs_applied.len() as u64;
                let at = scope.checked_sub(oldest + 1).map(|at| at as usize);
                match at.and_then(|at| self.diffs_applied.get_mut(at)) {
                    Some(home) if *home == Some(from) => *home = None,
                    _ => return refuse("has applied changes that were not sent there"),
                }
            }
            (Op::Invalidate | Op::WriteNotice, Content::Runs(runs)) => {
                return self.goes_on(&header, runs);
            }
            (Op::Acquire, Content::Empty) => return self.asked(header, rides, actions),
            (Op::AcquireGrant, Content::Runs(runs)) => {
                return self.granted(header, runs, rides, actions);
            }
            (Op::Release, Content::Runs(runs)) => return self.given_back(header, runs, actions),
            (Op::Barrier, Content::Runs(runs)) => {
                return self.arrived(header, runs, rides, actions);
            }
            (Op::BarrierGrant, Content::Runs(runs)) => {
                return self.passed(header, runs, rides, actions);
            }
            (Op::Set, Content::Runs(runs)) => return self.is_set(header, runs, actions),
            (Op::Reset, Content::Empty) => return self.is_reset(header),
            (Op::Wait, Content::Empty) => return self.waits(header, actions),
            (Op::WaitGrant, Content::Runs(runs)) => return self.waited(header, runs, actions),
            (Op::Push, Content::Empty) => return self.pushed(header, rides, actions),
            (Op::Meet, Content::Empty) => return self.met(header, actions),
            (Op::MeetGrant, Content::Empty) => return self.all_met(header, actions),
            _ => return refuse("has another's body"),
        }
        Ok(())
    }

    pub(super) fn can(&self, page: Page, on: Happens) -> bool {
        self.state(page).is_some_and(|state| rule_of(state, on).is_some())
    }

    /// Handles the early requests again after a barrier or an allocation.
    pub(super) fn answer_early(&mut self, actions: &mut Vec<Action>) {
        for header in std::mem::take(&mut self.early) {
            // A refused request is dropped without an answer: only its sender waits for it.
            let _ = self.message(header, Content::Empty, &[], actions);
        }
    }

    /// Returns the manager of a lock or condition variable.
    pub fn manager(&self, lock: Lock) -> NodeId {
        lock % self.options.nodes
    }
}
