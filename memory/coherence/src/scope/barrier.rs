//! Barriers. The node's side waits until all its tasks have arrived and nothing is in flight. The
//! manager's side finds the pages that only one node wrote.
//!
//! All nodes take part in managing barriers, over a [`tree`](super::tree). A node notifies its
//! parent when it and all its children have arrived. The root's grant goes down the same tree. So
//! every grant comes from a node that can piggyback pages on it.

use super::event::{Action, Body, Misuse, Options, Task, refusal};
use super::homes::Homes;
use super::node::Node;
use super::page::{PageEvent, State};
use super::state::barrier::Arrivals;
use super::tree::{children, descendants, parent, root};
use crate::message::{Header, NodeId, Op, Page};
use crate::refusal::Refused;
use crate::ride::{Carrier, Policy, Ride};
use crate::run::{self, NOBODY, Run};

/// The manager of barriers without consistency.
const MANAGER: NodeId = 0;
/// Reason to refuse an arrival that lists a page of which only its home has a copy.
const NO_COPY: &str = "lists written pages of which it has had no copy";
/// With the `auto` policy, grants to a child carry pages only if its subtree has at most this
/// number of nodes.
const DESCENDANTS_MAX: usize = 2;

impl Node {
    /// Handles the arrival of a task.
    pub(super) fn reach_barrier(&mut self, task: Task, actions: &mut Vec<Action>) {
        if let Some(lock) = self.lock_of(task) {
            return actions.push(Action::Misuse(task, Misuse::Holds(lock)));
        }
        self.barrier.arrived[task as usize] = true;
        if self.barrier.arrived.iter().all(|&arrived| arrived) {
            self.barrier.is_quiet = true;
            self.barrier.since = self.now;
        }
    }

    /// Notifies the node's manager side, when all tasks have arrived and nothing is in flight.
    /// Returns false if it was notified before.
    pub(super) fn report_arrival(&mut self, actions: &mut Vec<Action>) -> bool {
        if self.barrier.is_reported {
            return false;
        }
        debug_assert!(self.fetches == 0 && self.later.is_empty(), "something is in flight");
        self.barrier.is_reported = true;
        let written = std::mem::take(&mut self.scopes[0].written);
        let runs = self.flush(written, actions);
        self.send_later(self.options.me, Op::Barrier, 0, Body::Runs(runs));
        true
    }

    /// Handles the arrival of a node at the manager.
    pub(super) fn node_arrives(
        &mut self,
        header: Header,
        runs: Vec<Run>,
        rides: &[Ride],
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { from, epoch, .. } = header;
        let Options { me, nodes, .. } = self.options;
        let refuse = |why| Err(refusal(&header, why).with("epoch", epoch));
        let is_ours = from == me || parent(from, nodes) == me;
        let Arrivals { nodes: arrived, is_complete, .. } = &self.arrivals;
        if !is_ours || epoch != self.epoch || *is_complete || arrived.contains(&from) {
            return refuse("reaches a barrier twice, or at the wrong node");
        }
        let subtree = if from == me { me..me + 1 } else { descendants(from, nodes) };
        let mut parts = self.list_parts(from, &runs);
        if !parts.all(|run| subtree.contains(&run.writer) || run.writer == NOBODY) {
            return refuse("lists pages that nodes outside its subtree wrote");
        }
        drop(parts);
        if !self.list_parts(from, &runs).all(|run| self.can_have_written(from, run)) {
            return refuse(NO_COPY);
        }
        self.keep(&header, rides, actions)?;
        self.learn_fates(from, rides);
        let runs = self.take_list(from, runs);
        self.arrivals.nodes.push(from);
        self.arrivals.written.extend(runs.into_iter().map(|run| (from, run)));
        if from == me {
            self.mark_idle();
        }
        if self.arrivals.nodes.len() == 1 + children(me, nodes).count() {
            self.arrivals.nodes.clear();
            self.arrivals.is_complete = true;
            let runs = run::merge(&std::mem::take(&mut self.arrivals.written));
            let is_root = me == root(nodes);
            let (to, op, precede) = match is_root {
                true => (me, Op::BarrierGrant, Op::Invalidate),
                false => (parent(me, nodes), Op::Barrier, Op::WriteNotice),
            };
            let rides = match is_root {
                true => Vec::new(),
                false => self.send_rides(to, Carrier::Arrival, None, &[], actions),
            };
            let header = self.header(to, op, 0);
            self.send_runs(header, precede, runs, rides, actions);
        }
        if from == me {
            self.push_pages(actions);
        }
        Ok(())
    }

    /// Handles the grant of the barrier.
    pub(super) fn barrier_is_granted(
        &mut self,
        header: Header,
        runs: Vec<Run>,
        rides: &[Ride],
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let from = header.from;
        let Options { me, nodes, .. } = self.options;
        if from != parent(me, nodes) || !self.arrivals.is_complete {
            let refused = refusal(&header, "grants a barrier that not all nodes have reached");
            return Err(refused.with("epoch", self.epoch));
        }
        if !self.can_pass(self.list_parts(from, &runs)) {
            let refused =
                refusal(&header, "has an invalid list, or moves the home of shared pages");
            return Err(refused.with("epoch", self.epoch));
        }
        let acceptable = self.acceptable(&header, rides);
        let runs = self.take_list(from, runs);
        let kept = self.take_kept(&runs);
        self.learn_barrier(&runs);
        for child in children(me, nodes) {
            let rides = match self.may_carry_rides(child) {
                true => self.send_rides(child, Carrier::Barrier, None, &runs, actions),
                false => Vec::new(),
            };
            let header = self.header(child, Op::BarrierGrant, 0);
            self.send_runs(header, Op::Invalidate, runs.clone(), rides, actions);
        }
        debug_assert!(self.barrier.is_quiet && self.barrier.is_reported, "no arrival was reported");
        self.epoch += 1;
        let pages = self.pages();
        for run in runs {
            let mut pages = run.first..run.range().end.min(pages);
            // If no home moves and other nodes wrote the pages, nothing happens to pages without a
            // copy here.
            let moves = self.options.migrate && run.writer != NOBODY;
            let mut next = |node: &mut Self| match moves || run.writer == node.options.me {
                true => pages.next(),
                false => node.next_noticed(&mut pages),
            };
            while let Some(page) = next(self) {
                self.pass_page(page, run.writer, actions);
            }
        }
        // Writes after the barrier need new notices, so no page may stay writable.
        for page in std::mem::take(&mut self.writable) {
            if self.pages.of(page).state == State::HomeDirty {
                self.apply(page, PageEvent::Open, None, actions);
            }
        }
        self.mark_sent_again(actions);
        self.learnt.clear();
        self.barrier.is_quiet = false;
        self.barrier.is_reported = false;
        self.arrivals.is_complete = false;
        self.counts.barriers.add(self.now.saturating_sub(self.barrier.since));
        self.retry_faults(actions);
        for (task, arrived) in self.barrier.arrived.iter_mut().enumerate() {
            *arrived = false;
            actions.push(Action::Grant(task as Task));
        }
        self.accept_rides(&header, rides, &acceptable, actions);
        self.accept_kept(kept, actions);
        self.prefetch_phase(actions);
        self.answer_early(actions);
        Ok(())
    }

    /// Returns true if the grant to a child may carry pages. A larger message to a child with many
    /// descendants would delay all of them.
    pub(super) fn may_carry_rides(&self, child: NodeId) -> bool {
        let descendants = descendants(child, self.options.nodes);
        self.options.rides != Policy::Auto || descendants.len() <= DESCENDANTS_MAX
    }

    /// Returns true if another node can have written these pages: those whose home is here must
    /// have been sent to some node.
    fn can_have_written(&self, from: NodeId, run: &Run) -> bool {
        let mut pages = run.first..run.range().end.min(self.pages());
        std::iter::from_fn(|| {
            pages.start = self.pages.next_touched(pages.clone());
            self.pages.get(pages.next()?)
        })
        .all(|entry| entry.state != State::Alone || from == self.options.me)
    }

    /// Checks an allocation against the arrivals at the barrier. No other node may list new pages
    /// whose home is this node.
    pub(super) fn check_arrivals(&self, pages: u64, homes: Homes) -> Result<(), Refused> {
        let Options { me, nodes, .. } = self.options;
        let ours = homes.at(me, nodes, pages);
        let first = self.pages();
        let others = || self.arrivals.written.iter().filter(|(from, _)| *from != me);
        for piece in ours.take_while(|_| others().next().is_some()) {
            let (start, end) = (first + piece.start, first + piece.end);
            let lies = |run: &Run| run.first < end && start < run.range().end;
            if let Some(&(from, _)) = others().find(|(_, run)| lies(run)) {
                let refused = Refused::new(from, Op::Barrier.name(), NO_COPY);
                return Err(refused.with("first page", start).with("end", end));
            }
        }
        Ok(())
    }

    /// Returns true if a barrier's list is valid: it lists each page once, and each change of a
    /// home is possible.
    fn can_pass<'a>(&self, runs: impl Iterator<Item = &'a Run>) -> bool {
        let me = self.options.me;
        let mut end = 0;
        for run in runs {
            let known = run.writer < self.options.nodes || run.writer == NOBODY;
            if run.first < end || !known {
                return false;
            }
            end = run.range().end;
            let mut pages = run.first..end.min(self.pages());
            // Pages that other nodes wrote and that have no copy here need no check.
            let mut next = || {
                if run.writer != me {
                    pages.start = self.pages.next_touched(pages.clone());
                }
                pages.next()
            };
            while let Some(page) = next() {
                let entry = self.pages.get(page).expect("a page below the limit");
                let event = self.barrier_event(entry.home, run.writer);
                if event.is_some_and(|event| entry.state.rule(event).is_none()) {
                    return false;
                }
            }
        }
        true
    }

    /// Returns the event at a barrier for a page. `writer` is the only node that wrote the page and
    /// has a complete copy, or [`NOBODY`].
    fn barrier_event(&self, home: NodeId, writer: NodeId) -> Option<PageEvent> {
        let me = self.options.me;
        let moves = self.options.migrate && writer != NOBODY && writer != home;
        if home == me {
            match writer == me || writer == NOBODY {
                true if self.options.alone => Some(PageEvent::Settle),
                true => None,
                false => moves.then_some(PageEvent::Lose),
            }
        } else if writer == me {
            moves.then_some(PageEvent::Gain)
        } else {
            Some(PageEvent::Notice)
        }
    }

    /// Handles a page that the barrier lists.
    fn pass_page(&mut self, page: Page, writer: NodeId, actions: &mut Vec<Action>) {
        let home = self.pages.of(page).home;
        let moves = self.options.migrate && writer != NOBODY && writer != home;
        if let Some(event) = self.barrier_event(home, writer) {
            self.counts.gained += u64::from(event == PageEvent::Gain);
            self.apply(page, event, None, actions);
        }
        if moves {
            self.pages.of(page).home = writer;
        }
    }

    /// Handles the arrival of a task at a barrier without consistency.
    pub(super) fn meet(&mut self, task: Task, actions: &mut Vec<Action>) {
        self.barrier.meeting[task as usize] = true;
        if self.barrier.all_meet() {
            self.send(MANAGER, Op::Meet, 0, 0, Body::Empty, actions);
        }
    }

    /// Handles a node's arrival at a barrier without consistency, at the manager.
    pub(super) fn node_meets(
        &mut self,
        header: Header,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let from = header.from;
        if self.options.me != MANAGER || self.arrivals.meeting.contains(&from) {
            return Err(refusal(&header, "reaches a meeting twice, or at the wrong node"));
        }
        self.arrivals.meeting.push(from);
        if self.arrivals.meeting.len() == self.options.nodes as usize {
            self.arrivals.meeting.clear();
            for node in 0..self.options.nodes {
                self.send(node, Op::MeetGrant, 0, 0, Body::Empty, actions);
            }
        }
        Ok(())
    }

    /// Handles the grant of a barrier without consistency.
    pub(super) fn meeting_is_granted(
        &mut self,
        header: Header,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let from = header.from;
        if from != MANAGER || !self.barrier.all_meet() {
            return Err(refusal(&header, "grants a meeting that not all tasks have reached"));
        }
        for (task, meets) in self.barrier.meeting.iter_mut().enumerate() {
            *meets = false;
            actions.push(Action::Grant(task as Task));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;
    use crate::ride::Policy;
    use crate::scope::homes::Homes;
    use crate::scope::{Event, Options};

    /// The node's own grant would have to move the home of the page, or to claim that no other node
    /// has a copy.
    #[test]
    fn a_write_notice_for_a_page_never_held_is_refused() {
        for writer in [1, NOBODY] {
            let options = Options {
                nodes: 2,
                me: MANAGER,
                tasks: 1,
                migrate: true,
                alone: true,
                rides: Policy::Normal,
                pages_max: 1,
            };
            let mut node = Node::new(options);
            let mut actions = Vec::new();
            let allocate =
                Event::Allocate { pages: 100, homes: Homes::Blocks { pages: 50, first: 0 } };
            node.step(allocate, 0, &mut actions).expect("no message");
            node.step(Event::Barrier(0), 0, &mut actions).expect("no message");
            let arrives = |runs| {
                let header = Header {
                    op: Op::Barrier,
                    from: 1,
                    to: MANAGER,
                    lock: 0,
                    scope: 0,
                    epoch: 0,
                    rides: 0,
                };
                Event::Message(header, Content::Runs(runs), Vec::new())
            };
            let before = node.clone();
            let lie = vec![Run { first: 49, pages: 2, writer }];
            assert!(node.step(arrives(lie), 0, &mut actions).is_err());
            assert!(node == before, "and nothing has changed");
            let truth = vec![Run { first: 50, pages: 2, writer }];
            node.step(arrives(truth), 0, &mut actions).expect("those live there");
            assert_eq!(node.epoch(), 1);
        }
    }
}
