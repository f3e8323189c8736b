//! Changes of pages that all nodes make together. A reset unmaps pages or fills them with zeros.
//! Users define other changes of a single step, such as a change of protection. This module
//! performs no I/O.
//!
//! One node *coordinates* a change. It asks the participants to take a step, and continues with the
//! next step when all have acknowledged. A reset has the steps that
//! [`coherence::sequential`](coherence::sequential#reset-of-pages) describes:
//! 1. Each node *closes* the pages: no fault there reaches the protocol. It acknowledges when no
//!    request for these pages is in flight.
//! 2. Each node drops its copies and its state of the pages.
//! 3. Each node *opens* the pages.
//!
//! Threads that use the pages meanwhile see the old contents until the second step. After it their
//! faults wait until the pages are opened.
//!
//! Changes of overlapping page ranges run in the order of their requests. Changes of disjoint
//! ranges run concurrently.

use std::collections::VecDeque;
use std::ops::Range;

use coherence::message::{NodeId, Page};

/// A step that participants acknowledge. A reset ends with an open message, which needs no
/// acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Close the pages. A node acknowledges when no request for these pages is in flight.
    Close,
    /// Drop all copies and all state of the pages.
    Reset,
    /// Apply the change that the user of this module defines.
    Apply,
}

/// Steps of a change without a reset.
pub const APPLY: &[Step] = &[Step::Apply];
/// Steps of a reset.
pub const RESET: &[Step] = &[Step::Close, Step::Reset];
/// Steps of a reset that ends with a user-defined change.
pub const RESET_AND_APPLY: &[Step] = &[Step::Close, Step::Reset, Step::Apply];

/// A change that this node coordinates. `T` is the user's description of it.
#[derive(Debug)]
pub struct Change<T> {
    /// The number that acknowledgements of this change carry.
    pub number: u64,
    /// The pages that change.
    pub pages: Range<Page>,
    /// The user's description of the change.
    pub what: T,
    steps: &'static [Step],
    /// Number of steps that have begun.
    begun: usize,
    /// All participants, and those that have not acknowledged the current step.
    nodes: Vec<NodeId>,
    missing: Vec<NodeId>,
}

/// The result of the last acknowledgement of a step.
#[derive(Debug)]
pub enum Next<T> {
    /// The next step begins.
    Step(Step),
    /// The change is complete.
    Finished(Change<T>),
}

/// An acknowledgement that no change or step expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexpected;

/// The changes that a node coordinates, in the order of their requests.
#[derive(Debug)]
pub struct Changes<T> {
    all: VecDeque<Change<T>>,
    last: u64,
}

impl<T> Default for Changes<T> {
    fn default() -> Self {
        Self { all: VecDeque::new(), last: 0 }
    }
}

impl<T> Changes<T> {
    /// Returns true if there is no change that is not finished.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds a change. It begins when [`begin_next`](Self::begin_next) returns it.
    ///
    /// # Panics
    /// `steps` or `pages` is empty.
    pub fn add(&mut self, steps: &'static [Step], pages: Range<Page>, what: T) {
        assert!(!steps.is_empty() && !pages.is_empty(), "a change of something");
        self.last += 1;
        let (number, nodes, missing) = (self.last, Vec::new(), Vec::new());
        self.all.push_back(Change { number, pages, what, steps, begun: 0, nodes, missing });
    }

    /// Begins the oldest change that overlaps no earlier one. `nodes` returns its participants.
    /// Returns the number and the first step of the change.
    ///
    /// # Panics
    /// `nodes` returns no participants.
    pub fn begin_next(&mut self, nodes: impl FnOnce() -> Vec<NodeId>) -> Option<(u64, Step)> {
        let is_free = |(at, it): (usize, &Change<T>)| {
            let overlaps = |other: &Change<T>| {
                other.pages.start < it.pages.end && it.pages.start < other.pages.end
            };
            it.begun == 0 && !self.all.iter().take(at).any(overlaps)
        };
        let at = self.all.iter().enumerate().position(is_free)?;
        let change = &mut self.all[at];
        change.nodes = nodes();
        assert!(!change.nodes.is_empty(), "a change has participants");
        change.missing.clone_from(&change.nodes);
        change.begun = 1;
        Some((change.number, change.steps[0]))
    }

    /// Records a node's acknowledgement of the current step.
    ///
    /// # Errors
    /// The change is complete or unknown, or the node has acknowledged this step already or takes
    /// no part.
    pub fn acknowledge(
        &mut self,
        node: NodeId,
        number: u64,
    ) -> Result<Option<Next<T>>, Unexpected> {
        let at = self.all.iter().position(|it| it.number == number).ok_or(Unexpected)?;
        let change = &mut self.all[at];
        let missing = change.missing.iter().position(|other| *other == node).ok_or(Unexpected)?;
        change.missing.swap_remove(missing);
        if !change.missing.is_empty() {
            return Ok(None);
        }
        if let Some(&step) = change.steps.get(change.begun) {
            change.begun += 1;
            change.missing.clone_from(&change.nodes);
            return Ok(Some(Next::Step(step)));
        }
        Ok(self.all.remove(at).map(Next::Finished))
    }

    /// Returns a change that has not completed.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Change<T>> {
        self.all.iter_mut().find(|it| it.number == number)
    }
}

/// The page ranges that are closed on this node.
#[derive(Debug, Default)]
pub struct Closed {
    all: Vec<ClosedRange>,
}

#[derive(Debug)]
struct ClosedRange {
    coordinator: NodeId,
    change: u64,
    pages: Range<Page>,
    /// The first page that may still have a request in flight.
    busy: Page,
    is_acknowledged: bool,
}

impl Closed {
    /// Closes pages for a change.
    pub fn close(&mut self, coordinator: NodeId, change: u64, pages: Range<Page>) {
        let busy = pages.start;
        self.all.push(ClosedRange { coordinator, change, pages, busy, is_acknowledged: false });
    }

    /// Opens a range of pages. The range must be one that was closed.
    pub fn open(&mut self, pages: &Range<Page>) {
        self.all.retain(|closed| closed.pages != *pages);
    }

    /// Returns true if no page is closed.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns true if a page is closed. Faults there must wait.
    pub fn contains(&self, page: Page) -> bool {
        self.all.iter().any(|closed| closed.pages.contains(&page))
    }

    /// Takes the changes whose closed pages have become quiet, each as coordinator and number.
    /// `first_busy` returns the first page of a range that has a request in flight, or the end of
    /// the range.
    pub fn take_quiet(&mut self, first_busy: impl Fn(Range<Page>) -> Page) -> Vec<(NodeId, u64)> {
        let mut quiet = Vec::new();
        for closed in self.all.iter_mut().filter(|closed| !closed.is_acknowledged) {
            closed.busy = first_busy(closed.busy..closed.pages.end);
            closed.is_acknowledged = closed.busy == closed.pages.end;
            if closed.is_acknowledged {
                quiet.push((closed.coordinator, closed.change));
            }
        }
        quiet
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Acknowledges the current step for both nodes.
    fn all_acknowledge(changes: &mut Changes<&'static str>, number: u64) -> Next<&'static str> {
        assert!(matches!(changes.acknowledge(0, number), Ok(None)));
        assert!(matches!(changes.acknowledge(0, number), Err(Unexpected)), "once a step");
        changes.acknowledge(1, number).expect("it is missing").expect("the last one")
    }

    #[test]
    fn a_reset_goes_through_its_steps_and_ends() {
        let mut changes = Changes::default();
        changes.add(RESET_AND_APPLY, 3..9, "lay");
        assert_eq!(changes.begin_next(|| vec![0, 1]), Some((1, Step::Close)));
        assert_eq!(changes.begin_next(|| unreachable!("none is left")), None);
        assert!(matches!(all_acknowledge(&mut changes, 1), Next::Step(Step::Reset)));
        assert!(matches!(all_acknowledge(&mut changes, 1), Next::Step(Step::Apply)));
        assert_eq!(changes.get_mut(1).expect("it goes on").what, "lay");
        let Next::Finished(change) = all_acknowledge(&mut changes, 1) else { panic!("a step") };
        assert_eq!((change.pages, change.what), (3..9, "lay"));
        assert!(changes.acknowledge(0, 1).is_err(), "it is over");
    }

    #[test]
    fn changes_of_the_same_pages_follow_each_other_and_others_do_not_wait() {
        let mut changes = Changes::default();
        for (pages, what) in [(0..4, "a"), (2..6, "b"), (5..8, "c"), (8..9, "d")] {
            changes.add(APPLY, pages, what);
        }
        let mut begun = Vec::new();
        while let Some((number, _)) = changes.begin_next(|| vec![0, 1]) {
            begun.push(number);
        }
        assert_eq!(begun, [1, 4], "b waits for a, and c for b");
        assert!(matches!(all_acknowledge(&mut changes, 1), Next::Finished(_)));
        assert_eq!(changes.begin_next(|| vec![0, 1]), Some((2, Step::Apply)));
        assert_eq!(changes.begin_next(|| vec![0, 1]), None);
    }

    #[test]
    fn a_node_that_takes_no_part_is_not_expected() {
        let mut changes = Changes::default();
        changes.add(RESET, 0..1, ());
        changes.begin_next(|| vec![0, 2]);
        assert_eq!(changes.acknowledge(1, 1).err(), Some(Unexpected));
        assert_eq!(changes.acknowledge(0, 2).err(), Some(Unexpected));
        assert!(matches!(changes.acknowledge(2, 1), Ok(None)));
    }

    #[test]
    fn closed_pages_are_acknowledged_once_when_nothing_is_under_way() {
        let mut closed = Closed::default();
        closed.close(2, 7, 10..20);
        closed.close(0, 8, 30..40);
        assert!(closed.contains(19) && !closed.contains(20));
        let busy = Cell::new(15);
        let first_busy = |pages: Range<Page>| match pages.contains(&busy.get()) {
            true => busy.get(),
            false => pages.end,
        };
        assert_eq!(closed.take_quiet(first_busy), [(0, 8)]);
        // Pages before the one that was busy are not checked again.
        busy.set(12);
        assert_eq!(closed.take_quiet(first_busy), [(2, 7)]);
        assert_eq!(closed.take_quiet(first_busy), []);
        closed.open(&(10..20));
        assert!(!closed.contains(15) && closed.contains(30));
    }
}
