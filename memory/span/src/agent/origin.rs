//! The data of the origin's agent: the memory map, futex queues, and the placement of threads.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use coherence::message::NodeId;

use super::change::Changes;
use super::fork_queue::Forks;
use crate::addresses::{Addresses, PAGE};
use crate::balance::Balance;
use crate::frame::Message;
use crate::futex_queues::Futexes;
use crate::limits;
use crate::place::{Policy, Room};
use crate::ranges::Ranges;
use crate::request::Request;
use crate::snapshot::MemoryMap;

/// The data of the origin.
pub struct Origin {
    pub(super) addresses: Addresses,
    /// Accessible addresses, by their protection as in mprotect(2).
    pub(super) protections: [Ranges; 8],
    /// Memory whose protection threads change themselves.
    pub(super) published: Ranges,
    /// The end of the room into which threads move the heap's end themselves, or 0.
    pub(super) heap_limit: u64,
    pub(super) map: MemoryMap,
    pub(super) futexes: Futexes,
    pub(super) policy: Policy,
    pub(super) balance: Balance,
    pub(super) rooms: Vec<Room>,
    /// The node of each thread.
    pub(super) nodes: Vec<Option<NodeId>>,
    /// The nodes that have had threads since memory was [local](super::local): they may have pages.
    pub(super) is_used: Vec<bool>,
    /// Messages about the memory map that are not sent yet, by node.
    pub(super) late: Vec<Vec<(Message, Vec<u8>)>>,
    /// The nodes that have begun.
    pub(super) has_begun: Vec<bool>,
    pub(super) changes: Changes,
    /// Segments of System V shared memory: start address and bytes.
    pub(super) attached: BTreeMap<u64, u64>,
    /// The addresses of code with patched system-call sites, and of its stubs.
    pub(super) stubs: Vec<(Range<u64>, Range<u64>)>,
    /// The number of calls that shadows make now.
    pub(super) at_work: u32,
    pub(super) forks: Forks,
    /// Threads with a signal that they have not acknowledged.
    pub(super) signalled: HashSet<u32>,
    /// Threads that the program has bound to another node than theirs, with that node.
    pub(super) bound: HashMap<u32, NodeId>,
    /// The program has bound a thread, so the origin balances no more.
    pub(super) binds: bool,
    pub(super) status: i32,
}

impl Origin {
    /// Of a program with one thread, on the origin; `map` is the memory layout of its children.
    pub fn new(addresses: Addresses, map: MemoryMap, policy: Policy, mut rooms: Vec<Room>) -> Self {
        rooms[0].threads = 1;
        let nodes = vec![Some(0)];
        Self {
            addresses,
            protections: Default::default(),
            published: Ranges::default(),
            heap_limit: 0,
            map,
            futexes: Futexes::default(),
            policy,
            balance: Balance::default(),
            nodes,
            is_used: (0..rooms.len()).map(|node| node == 0).collect(),
            late: vec![Vec::new(); rooms.len()],
            has_begun: vec![false; rooms.len()],
            rooms,
            changes: Changes::default(),
            attached: BTreeMap::new(),
            stubs: Vec::new(),
            at_work: 0,
            forks: Forks::default(),
            signalled: HashSet::new(),
            bound: HashMap::new(),
            binds: false,
            status: 0,
        }
    }
}

impl Origin {
    /// Returns true if the thread runs on the origin.
    pub(super) fn runs_here(&self, thread: u32) -> bool {
        self.nodes.get(thread as usize) == Some(&Some(0))
    }

    /// Returns true if RLIMIT_AS allows the program `bytes` more.
    pub(super) fn may_have(&self, bytes: u64) -> bool {
        let bytes = bytes.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        limits::allows(|| self.addresses.taken_bytes(), bytes)
    }

    /// Returns true if RLIMIT_AS allows this heap end. The heap may always shrink.
    pub(super) fn may_have_heap(&self, end: u64) -> bool {
        let more = end.saturating_sub(self.addresses.heap_end());
        more == 0 || self.may_have(more)
    }

    /// Returns the addresses of the heap.
    pub(super) fn heap(&self) -> Range<u64> {
        self.addresses.heap()
    }

    /// Returns the memory layout of a child that is forked now.
    pub(super) fn memory_map(&self) -> MemoryMap {
        let heap = self.heap();
        MemoryMap { heap: [heap.start, heap.end], ..self.map }
    }

    /// Returns the answer to [`Request::Inspect`].
    pub(super) fn inspect(&self, address: u64) -> i64 {
        let page = address..address + 1;
        let has = |ranges: &Ranges| ranges.covers(&page);
        let protection = self.protections.iter().position(has).unwrap_or(0);
        let is_file = self.addresses.not_of_file(page.clone()).is_empty();
        protection as i64 | if is_file { Request::OF_FILE } else { 0 }
    }

    /// Sets the protection of addresses.
    pub(super) fn protects(&mut self, range: &Range<u64>, protection: u32) {
        self.protections.iter_mut().for_each(|ranges| ranges.remove(range.clone()));
        if let Some(ranges) = self.protections.get_mut(protection as usize)
            && protection != 0
        {
            ranges.insert(range.clone());
        }
    }
}
