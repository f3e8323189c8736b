//! Changes of pages that all nodes make together, without I/O: pages are reset (unmapped, or
//! zero-filled), and users have changes of a single step, such as another protection.
//!
//! One node *coordinates* a change. It asks the participants to take a step and goes on to the
//! next when all have acknowledged. A reset has the steps of
//! [`coherence::sequential`](coherence::sequential#pages-that-begin-anew): the pages are
//! *closed*, and no fault there reaches the protocol, until nothing about them is under way;
//! then every node drops what it has of them; then they are *opened*. Threads that use the pages
//! meanwhile see the old contents until those are dropped, and then wait.
//!
//! Changes of the same pages follow each other in the order in which they were requested; changes
//! of other pages proceed at the same time.

use std::collections::VecDeque;
use std::ops::Range;

use coherence::message::{NodeId, Page};

/// A step that participants acknowledge. After the last one a reset is opened, which needs no
/// acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The pages are closed. Acknowledged when nothing about them is under way.
    Close,
    /// Every node drops what it has of them.
    Reset,
    /// Every node does what the user of this module wants done.
    Apply,
}

/// The steps of a change without a reset.
pub const APPLY: &[Step] = &[Step::Apply];
/// The steps of a reset.
pub const RESET: &[Step] = &[Step::Close, Step::Reset];
/// The steps of a reset after which the user still does something.
pub const RESET_AND_APPLY: &[Step] = &[Step::Close, Step::Reset, Step::Apply];

/// A change that this node coordinates; `T` is the user's.
#[derive(Debug)]
pub struct Change<T> {
    /// Its number, which acknowledgements name.
    pub number: u64,
    /// The pages that change.
    pub pages: Range<Page>,
    /// What the user wants.
    pub what: T,
    steps: &'static [Step],
    /// The steps that have begun.
    begun: usize,
    /// The participants, and those that have not acknowledged the present step.
    nodes: Vec<NodeId>,
    missing: Vec<NodeId>,
}

/// What follows when all have acknowledged a step.
#[derive(Debug)]
pub enum Next<T> {
    /// The next step begins.
    Step(Step),
    /// The change is over.
    Finished(Change<T>),
}

/// An acknowledgement of a change or step that does not wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexpected;

/// The changes that a node coordinates, in the order in which they were requested.
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
    /// Adds a change, which begins when [`begin_next`](Self::begin_next) returns it.
    ///
    /// # Panics
    /// It has no steps, or no pages.
    pub fn add(&mut self, steps: &'static [Step], pages: Range<Page>, what: T) {
        assert!(!steps.is_empty() && !pages.is_empty(), "a change of something");
        self.last += 1;
        let (number, nodes, missing) = (self.last, Vec::new(), Vec::new());
        self.all.push_back(Change { number, pages, what, steps, begun: 0, nodes, missing });
    }

    /// Begins the oldest change that no earlier one has to precede, with these participants.
    /// Returns its number and first step.
    ///
    /// # Panics
    /// There are no participants.
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

    /// Takes a node's acknowledgement of the present step.
    ///
    /// # Errors
    /// The change is over, or unknown, or does not wait for this node.
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

    /// Returns a change that goes on.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Change<T>> {
        self.all.iter_mut().find(|it| it.number == number)
    }
}

/// Pages that are closed on this node.
#[derive(Debug, Default)]
pub struct Closed {
    all: Vec<ClosedRange>,
}

#[derive(Debug)]
struct ClosedRange {
    coordinator: NodeId,
    change: u64,
    pages: Range<Page>,
    /// Something may be under way of the pages from here on.
    busy: Page,
    is_acknowledged: bool,
}

impl Closed {
    /// Closes pages for a change.
    pub fn close(&mut self, coordinator: NodeId, change: u64, pages: Range<Page>) {
        let busy = pages.start;
        self.all.push(ClosedRange { coordinator, change, pages, busy, is_acknowledged: false });
    }

    /// Opens pages again, as they were closed.
    pub fn open(&mut self, pages: &Range<Page>) {
        self.all.retain(|closed| closed.pages != *pages);
    }

    /// Returns whether a page is closed: threads that are stopped there have to wait.
    pub fn contains(&self, page: Page) -> bool {
        self.all.iter().any(|closed| closed.pages.contains(&page))
    }

    /// Takes the coordinators and numbers of changes whose pages have become quiet. `first_busy`
    /// returns the first page of a range of which something is under way, or its end.
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

    /// All nodes acknowledge the present step.
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
        // What lies before a page that was busy stays quiet.
        busy.set(12);
        assert_eq!(closed.take_quiet(first_busy), [(2, 7)]);
        assert_eq!(closed.take_quiet(first_busy), []);
        closed.open(&(10..20));
        assert!(!closed.contains(15) && closed.contains(30));
    }
}
