//! Programs: the operations of their tasks. Each program has a file. [`known`] lists all programs.
//!
//! They are the programs of `examples/dsm/`, with the same parameters. The first lines of each file
//! there describe the layout of memory and the order of accesses, which are the same here. Large
//! programs have no contents: only their accesses are simulated. Programs whose messages depend on
//! values compute these like the real ones.

mod ep;
mod is;
pub mod kernels;
pub mod known;
mod lu;
mod mm;
mod parameters;
mod random;
mod sor;
mod tsp;
mod water;

use coherence::message::NodeId;
use coherence::scope::Event;
use coherence::scope::homes::Homes;

use crate::setup::Setup;
use crate::task::{Task, TaskFuture};

/// A program with its parameters.
pub trait Program {
    /// Returns the allocations of shared memory, in their order, for this number of tasks and this
    /// page size.
    fn allocations(&self, tasks: u64, page_bytes: u64) -> Vec<Allocation>;

    /// Returns the future of a task. The allocations begin at `bases`.
    fn task(&self, me: Task, bases: &[u64]) -> TaskFuture;

    /// Returns true if memory has contents.
    fn has_contents(&self) -> bool {
        false
    }
}

/// An allocation of shared memory, as JIAJIA's calls make it. It begins at the border of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Size in bytes.
    pub bytes: u64,
    /// The homes of its pages.
    pub home: Home,
}

/// The tasks whose nodes are the homes of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// One task (`jia_alloc2p`).
    Task(u64),
    /// Blocks of this number of bytes, rounded up to pages, distributed round-robin over the tasks
    /// (`jia_alloc2`).
    Blocks(u64),
}

impl Allocation {
    /// Returns an array of rows in bands, one per task (`jia_alloc2`).
    pub fn bands(rows: u64, row_bytes: u64, tasks: u64) -> Self {
        Self { bytes: rows * row_bytes, home: Home::Blocks(rows.div_ceil(tasks) * row_bytes) }
    }

    /// Returns an allocation on the node of one task.
    pub fn on(task: u64, bytes: u64) -> Self {
        Self { bytes, home: Home::Task(task) }
    }
}

/// Returns the nodes' events of these allocations, and the address of each allocation.
pub(crate) fn layout(allocations: &[Allocation], setup: &Setup) -> (Vec<Event>, Vec<u64>) {
    let Setup { nodes, tasks, page_bytes, .. } = *setup;
    let size = page_bytes as u64;
    let (mut events, mut bases, mut end) = (Vec::new(), Vec::new(), 0);
    let node = |task: u64| (task / u64::from(tasks) % u64::from(nodes)) as NodeId;
    for allocation in allocations {
        bases.push(end * size);
        let pages = allocation.bytes.div_ceil(size);
        end += pages;
        let homes = match allocation.home {
            Home::Task(task) => Homes::At(node(task)),
            // The blocks of a node's tasks are consecutive.
            Home::Blocks(bytes) => {
                let pages = bytes.div_ceil(size).max(1) * u64::from(tasks);
                Homes::Blocks { pages, first: 0 }
            }
        };
        match events.last_mut() {
            // Consecutive allocations at one node are one event.
            Some(Event::Allocate { pages: before, homes: last })
                if *last == homes && matches!(homes, Homes::At(_)) =>
            {
                *before += pages;
            }
            _ => events.push(Event::Allocate { pages, homes }),
        }
    }
    (events, bases)
}

/// Returns the doubles in memory.
pub(crate) fn doubles(bytes: &[u8]) -> impl Iterator<Item = f64> {
    let (doubles, _) = bytes.as_chunks();
    doubles.iter().map(|bytes| f64::from_le_bytes(*bytes))
}

/// Returns a task's part of a range. All tasks have equal parts, in their order; the last parts can
/// be smaller or empty.
pub(crate) fn part(count: u64, task: u64, tasks: u64) -> std::ops::Range<u64> {
    let share = count.div_ceil(tasks);
    (share * task).min(count)..(share * (task + 1)).min(count)
}
