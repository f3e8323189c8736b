//! A node's state for scope consistency, and what a driver can ask of it.
//!
//! `step` handles events, `pages` applies the rules of pages, and `send` sends messages.

use std::collections::{BTreeMap, VecDeque};

use super::event::{Body, Options, Task};
use super::page::State;
use super::state::barrier::{Arrivals, Barrier};
use super::state::condition::{Condition, Waiting};
use super::state::list::Partial;
use super::state::lock::{Local, Managed};
use super::state::rides::Rides;
use super::statistics::{PageStatistics, Statistics};
use super::table::Table;
use crate::content::Content;
use crate::message::{Header, Lock, NodeId, Page};
use crate::ride::Ride;
use crate::ride::choices::Choices;
use crate::ride::forecast::Forecast;
use crate::ride::tracks::Tracks;
use crate::run::Run;

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
pub(super) struct Later {
    /// The number of the last of these diffs.
    pub after: u64,
    pub header: Header,
    pub body: Body,
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
    pub(super) diffs_applied: VecDeque<Option<NodeId>>,
    /// Number of diffs that are batched but not sent yet, by home.
    pub(super) batched_diffs: BTreeMap<NodeId, usize>,
    /// Messages that wait until diffs are applied, in the order in which they will be sent.
    pub(super) later: VecDeque<Later>,
    /// Number of pages in flight to this node.
    pub(super) fetches: u64,
    /// Number of lock requests without an answer.
    pub(super) locks_requested: u64,
    pub(super) rides: Rides,
    /// Page requests that came before this node made the same allocation or passed the same
    /// barrier, with the records of the pages that they want along.
    pub(super) early: Vec<(Header, Vec<Ride>)>,
    /// Faults that wait for the barrier.
    pub(super) waiting_faults: Vec<Page>,
    pub(super) locks: BTreeMap<Lock, Local>,
    pub(super) managed: BTreeMap<Lock, Managed>,
    pub(super) conditions: BTreeMap<Lock, Condition>,
    pub(super) waiting: BTreeMap<Task, Waiting>,
    /// Pages that other nodes wrote, learnt from condition variables since the barrier.
    pub(super) learnt: Vec<Run>,
    pub(super) barrier: Barrier,
    pub(super) arrivals: Arrivals,
    /// Incomplete lists, at most one of each node.
    pub(super) partial: BTreeMap<NodeId, Partial>,
    /// Messages from this node to itself.
    pub(super) to_self: VecDeque<(Header, Content)>,
    pub(super) counts: Statistics,
}

impl Node {
    /// Creates a node without pages.
    ///
    /// # Panics
    /// The options are invalid.
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
            batched_diffs: BTreeMap::new(),
            later: VecDeque::new(),
            fetches: 0,
            locks_requested: 0,
            rides: Rides::new(
                Tracks::new(options.me, options.group_max()),
                Forecast::new(options.rides),
            ),
            early: Vec::new(),
            waiting_faults: Vec::new(),
            locks: BTreeMap::new(),
            managed: BTreeMap::new(),
            conditions: BTreeMap::new(),
            waiting: BTreeMap::new(),
            learnt: Vec::new(),
            barrier: Barrier::new(options.tasks),
            arrivals: Arrivals::default(),
            partial: BTreeMap::new(),
            to_self: VecDeque::new(),
            counts: Statistics::default(),
        }
    }

    /// Selects other choices for the paper's policies. Call this before the first step. A recording
    /// does not store them, so its replay differs.
    pub fn choose(&mut self, choices: Choices) {
        self.rides.forecast.choose(choices);
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
        let mut early = self.early.iter().map(|(header, _)| header);
        early.find(is_lacked).map(|early| (early.from, early.scope))
    }

    /// Returns true if no request is in flight and no task waits.
    pub fn is_idle(&self) -> bool {
        self.fetches == 0
            && self.diffs_applied.is_empty()
            && self.later.is_empty()
            && self.early.is_empty()
            && self.waiting_faults.is_empty()
            && self.waiting.is_empty()
            && self.locks.values().all(Local::is_idle)
    }

    /// Returns the manager of a lock or condition variable.
    pub fn manager(&self, lock: Lock) -> NodeId {
        lock % self.options.nodes
    }
}
