//! The counters of a run ([`Report`]), which show where its time went, and the estimate for more
//! nodes ([`estimate`](crate::estimate)).

use serde::{Deserialize, Serialize};

use crate::packing::Change;
pub use crate::packing::Why;

/// Of a whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// From the nodes' meeting to the end.
    pub seconds: f64,
    /// In order, the origin first.
    pub nodes: Vec<Counts>,
    /// The mappings in the segment.
    pub areas: Vec<Area>,
    /// When threads went to other nodes by themselves, in order.
    pub placed: Vec<Placed>,
}

/// Threads went to other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    /// When, since the nodes met.
    pub seconds: f64,
    /// To the first nodes of this number.
    pub nodes: u32,
    /// Why.
    pub why: Why,
    /// On how many processors threads ran before.
    pub running: f64,
    /// And for how many they waited for other nodes.
    pub waited: f64,
}

impl Placed {
    /// At this time in ns.
    pub(crate) fn new(at: u64, change: &Change) -> Self {
        Self {
            seconds: at as f64 / 1e9,
            nodes: change.nodes as u32,
            why: change.why,
            running: change.rates.running,
            waited: change.rates.waited,
        }
    }
}

/// Of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Its name.
    pub name: String,
    /// Those for the program.
    pub processors: u32,
    /// Threads that ran here.
    pub threads: Vec<Thread>,
    /// Threads were stopped because they could not read a page, and write it.
    pub read_faults: u64,
    /// As above.
    pub write_faults: u64,
    /// Pages that came from other nodes.
    pub pages_in: u64,
    /// And went there.
    pub pages_out: u64,
    /// Copies that went since another node wrote the page.
    pub invalidated: u64,
    /// Messages to others, and their bytes.
    pub messages: u64,
    /// As above.
    pub bytes: u64,
    /// Waits for copies, and for pages to write; and how long they took in all, in ns.
    pub fetches: u64,
    /// As above.
    pub fetch_ns: u64,
    /// Memory for pages, at most, in bytes.
    pub memory_most: u64,
    /// The pages at which threads were stopped most.
    pub pages: Vec<Page>,
}

/// Of a thread, on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its ID, as the program knows it.
    pub tid: i32,
    /// Its number among those that are there at once.
    pub slot: u32,
    /// Its processor time.
    pub running_ns: u64,
    /// Time that it waited at pages.
    pub stopped_ns: u64,
    /// Number of faults, to read and to write.
    pub reads: u64,
    /// As above.
    pub writes: u64,
    /// System calls that were made at the origin for it, by number.
    pub calls: Vec<(u64, u64)>,
    /// It stood in line at a futex so often.
    pub futex_waits: u64,
    /// Number of its waits that ended while it drove the engine of its node.
    pub driven: u64,
    /// The last known place of its stack.
    pub stack_pointer: u64,
}

/// Of a page, on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Its start.
    pub address: u64,
    /// Threads were stopped there, to read and to write.
    pub reads: u64,
    /// As above.
    pub writes: u64,
    /// It came from another node.
    pub came: u64,
    /// Some of those times.
    pub accesses: Vec<Access>,
}

/// The place at which a thread faulted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// The data's address.
    pub address: u64,
    /// The instruction's, or that behind a system call.
    pub code: u64,
    /// The system call that it was in.
    pub call: Option<u64>,
    /// It wanted to write.
    pub writes: bool,
    /// The thread's number.
    pub slot: u32,
    /// Number of observations.
    pub times: u64,
}

/// The mapping at some addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Area {
    /// The first.
    pub start: u64,
    /// And the one behind the last.
    pub end: u64,
    /// Its kind.
    pub what: What,
}

/// See [`Area`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// An executable file, its variables included, or any other file, with the file's own address
    /// at `start`.
    File {
        /// Its name.
        path: String,
        /// See above.
        address: u64,
    },
    /// The memory from brk(2).
    Heap,
    /// A stack.
    Stack,
}

impl Report {
    /// As the origin writes it.
    pub fn bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// Of what it has written.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }

    /// All threads of all nodes.
    pub fn threads(&self) -> impl Iterator<Item = &Thread> {
        self.nodes.iter().flat_map(|node| &node.threads)
    }

    /// Returns the mapping at an address, if known: the last one reported.
    pub fn area(&self, address: u64) -> Option<&Area> {
        self.areas.iter().rev().find(|area| (area.start..area.end).contains(&address))
    }
}

impl Thread {
    /// Number of its calls that were made at the origin.
    pub fn calls(&self) -> u64 {
        self.calls.iter().map(|(_, times)| times).sum()
    }
}
