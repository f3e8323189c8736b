//! The step of a node: it handles an event, then all work that has become possible.

use super::event::{Action, Body, Event, Options, refusal};
use super::homes::Homes;
use super::node::Node;
use super::page::{PageEvent, State};
use super::pages::Detail;
use crate::content::Content;
use crate::message::{Header, Op, Page};
use crate::refusal::Refused;
use crate::ride::{self, Carrier, Fate, Ride};

/// Maximum number of early page requests that are stored per node. No node has more threads.
const EARLY_MAX: usize = 1 << 16;

impl Node {
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
            Event::Read(page) => self.fault(page, PageEvent::Read, actions),
            Event::Write(page) => self.fault(page, PageEvent::Write, actions),
            Event::Acquire(task, lock) => self.acquire(task, lock, actions),
            Event::Release(task, lock) => self.release(task, lock, actions),
            Event::Barrier(task) => self.reach_barrier(task, actions),
            Event::Meet(task) => self.meet(task, actions),
            Event::Set(_, lock) => self.set(lock, actions),
            Event::Reset(_, lock) => self.reset(lock),
            Event::Wait(task, lock) => self.wait(task, lock, actions),
            Event::Message(header, ..) if header.from == self.options.me => {
                return Err(refusal(&header, "names this node as its sender"));
            }
            Event::Message(header, ..) if !self.continues_list(&header) => {
                return Err(refusal(&header, "interrupts a list").with("lock", header.lock));
            }
            Event::Message(header, content, rides) => {
                self.message(header, content, &rides, actions)?;
            }
        }
        self.settle(actions);
        self.forget_suggested();
        self.check();
        Ok(())
    }

    /// Checks the invariants that hold between two steps.
    fn check(&self) {
        debug_assert!(self.to_self.is_empty(), "all messages to this node are handled");
        debug_assert!(self.batched_diffs.is_empty(), "no diffs stay in a batch");
        debug_assert!(self.scopes[0].lock.is_none(), "the first scope is the barrier's");
        debug_assert!(
            self.diffs_applied.len() as u64 <= self.diffs_sent,
            "only diffs that were sent are missing"
        );
        debug_assert!(
            self.rides.notices.is_empty() || self.fetches + self.locks_requested > 0,
            "write notices are stored only while a request is in flight"
        );
        debug_assert!(
            self.fetches > 0 || self.rides.coming.is_empty() && self.rides.stopped.is_empty(),
            "pages come along only while a request is in flight"
        );
        debug_assert!(
            self.barrier.is_quiet || self.waiting_faults.is_empty(),
            "faults wait only for a barrier"
        );
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

    /// Performs all work that has become possible.
    fn settle(&mut self, actions: &mut Vec<Action>) {
        loop {
            while self.diffs_applied.front() == Some(&None) {
                self.diffs_applied.pop_front();
            }
            let applied = self.diffs_sent - self.diffs_applied.len() as u64;
            if self.later.front().is_some_and(|later| later.after <= applied) {
                let later = self.later.pop_front().expect("checked by the condition");
                match later.body {
                    Body::Runs(runs) => {
                        self.send_runs(later.header, Op::WriteNotice, runs, Vec::new(), actions);
                    }
                    body => self.post(later.header, body, Vec::new(), actions),
                }
                if later.header.op == Op::Release {
                    self.lock_is_released(later.header.lock, actions);
                }
            } else if let Some((header, content)) = self.to_self.pop_front() {
                self.message(header, content, &[], actions)
                    .expect("a node's messages to itself follow the protocol");
            } else if self.barrier.is_quiet && self.fetches == 0 && self.later.is_empty() {
                if !self.report_arrival(actions) {
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
        self.check_header(&header, rides)?;
        match (header.op, content) {
            (Op::GetPage, Content::Empty) => self.page_is_requested(header, rides, actions),
            (Op::GetPageGrant, Content::Page) => self.page_arrives(header, rides, actions),
            (Op::Diff, Content::Diffs(pages)) => self.diffs_arrive(header, pages, actions),
            (Op::DiffGrant, Content::Empty) => self.diffs_are_applied(&header),
            (Op::Invalidate | Op::WriteNotice, Content::Runs(runs)) => {
                self.list_part_arrives(&header, runs)
            }
            (Op::Acquire, Content::Empty) => self.lock_is_requested(header, rides, actions),
            (Op::AcquireGrant, Content::Runs(runs)) => {
                self.lock_is_granted(header, runs, rides, actions)
            }
            (Op::Release, Content::Runs(runs)) => self.lock_is_returned(header, runs, actions),
            (Op::Barrier, Content::Runs(runs)) => self.node_arrives(header, runs, rides, actions),
            (Op::BarrierGrant, Content::Runs(runs)) => {
                self.barrier_is_granted(header, runs, rides, actions)
            }
            (Op::Set, Content::Runs(runs)) => self.condition_is_set(header, runs, actions),
            (Op::Reset, Content::Empty) => self.condition_is_reset(header),
            (Op::Wait, Content::Empty) => self.task_waits(header, actions),
            (Op::WaitGrant, Content::Runs(runs)) => self.wait_is_granted(header, runs, actions),
            (Op::Push, Content::Empty) => self.push_arrives(header, rides, actions),
            (Op::Meet, Content::Empty) => self.node_meets(header, actions),
            (Op::MeetGrant, Content::Empty) => self.meeting_is_granted(header, actions),
            _ => Err(refusal(&header, "has the body of another operation")),
        }
    }

    /// Checks the parts of a message that all operations have.
    fn check_header(&self, header: &Header, rides: &[Ride]) -> Result<(), Refused> {
        let Header { op, from, to, epoch, .. } = *header;
        if to != self.options.me || from >= self.options.nodes {
            let refused = refusal(header, "has a wrong receiver or an unknown sender");
            return Err(refused.with("receiver", to).with("nodes", self.options.nodes));
        }
        if epoch > self.epoch + 1 {
            let refused = refusal(header, "is two barriers ahead");
            return Err(refused.with("epoch", epoch).with("own epoch", self.epoch));
        }
        let aboard = ride::aboard(rides);
        let may_ride = match (Carrier::of(op).is_some(), ride::reports_fates(op)) {
            (true, true) => true,
            (true, false) => aboard == rides.len(),
            (false, true) => aboard == 0,
            (false, false) => rides.is_empty(),
        };
        let wants = rides.iter().any(|ride| ride.fate == Fate::Wanted);
        if !may_ride || wants && op != Op::GetPage {
            let refused = refusal(header, "has ride records that the operation must not have");
            return Err(refused.with("records", rides.len() as u64).with("aboard", aboard as u64));
        }
        Ok(())
    }

    /// Handles a page request at the page's home.
    fn page_is_requested(
        &mut self,
        header: Header,
        rides: &[Ride],
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { from, scope: page, epoch, .. } = header;
        let refuse = |why| Err(refusal(&header, why).with("page", page));
        if epoch > self.epoch || page >= self.pages() {
            let mut theirs = self.early.iter().filter(|(early, _)| early.from == from);
            if theirs.clone().any(|(early, _)| early.scope == page) {
                return refuse("requests a page twice");
            }
            if theirs.nth(EARLY_MAX - 1).is_some() {
                return refuse("requests too many pages that do not exist");
            }
            self.learn_fates(from, rides);
            self.early.push((header, self.wanted(rides).copied().collect()));
            return Ok(());
        }
        if !self.is_possible(page, PageEvent::Ask) {
            return refuse("requests a page whose home is elsewhere");
        }
        self.learn_fates(from, rides);
        self.learn_request(from, page);
        self.rides.wanted = self.wanted(rides).map(|ride| ride.page).collect();
        self.apply(page, PageEvent::Ask, Some(Detail::Requester(from)), actions);
        self.rides.wanted.clear();
        Ok(())
    }

    /// Returns the records of the pages that a request wants along, as many as a grant can carry.
    fn wanted<'a>(&self, rides: &'a [Ride]) -> impl Iterator<Item = &'a Ride> + use<'a> {
        let most = self.options.pages_max as usize;
        rides.iter().filter(|ride| ride.fate == Fate::Wanted).take(most)
    }

    /// Handles the arrival of a requested page.
    fn page_arrives(
        &mut self,
        header: Header,
        rides: &[Ride],
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { from, scope: page, .. } = header;
        if !self.is_possible(page, PageEvent::Arrive) || self.home(page) != Some(from) {
            return Err(refusal(&header, "brings a page without a request").with("page", page));
        }
        let acceptable = self.acceptable(&header, rides);
        self.apply(page, PageEvent::Arrive, None, actions);
        self.accept_rides(&header, rides, &acceptable, actions);
        self.end_request(page, actions);
        Ok(())
    }

    /// Handles diffs at the pages' home.
    fn diffs_arrive(
        &mut self,
        header: Header,
        pages: Vec<Page>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { from, scope: number, epoch, .. } = header;
        let can_change = |page: Page| {
            let state = self.state(page);
            self.is_possible(page, PageEvent::Change)
                && (state != Some(State::Clean) || epoch > self.epoch)
        };
        if let Some(&page) = pages.iter().find(|&&page| !can_change(page)) {
            let why = "changes a page whose home is elsewhere, or of which it has no copy";
            return Err(refusal(&header, why).with("page", page));
        }
        for page in pages {
            self.learn_change(from, page..page + 1);
            self.apply(page, PageEvent::Change, None, actions);
        }
        self.send(from, Op::DiffGrant, 0, number, Body::Empty, actions);
        Ok(())
    }

    /// Handles the acknowledgement of diffs.
    fn diffs_are_applied(&mut self, header: &Header) -> Result<(), Refused> {
        let oldest = self.diffs_sent - self.diffs_applied.len() as u64;
        let at = header.scope.checked_sub(oldest + 1).map(|at| at as usize);
        match at.and_then(|at| self.diffs_applied.get_mut(at)) {
            Some(home) if *home == Some(header.from) => *home = None,
            _ => {
                let refused = refusal(header, "acknowledges diffs that were not sent to it");
                return Err(refused.with("diff", header.scope).with("sent", self.diffs_sent));
            }
        }
        Ok(())
    }

    /// Handles the early requests again after a barrier or an allocation.
    pub(super) fn answer_early(&mut self, actions: &mut Vec<Action>) {
        for (header, wanted) in std::mem::take(&mut self.early) {
            // A refused request is dropped without an answer: only its sender waits for it.
            let _ = self.message(header, Content::Empty, &wanted, actions);
        }
    }
}
