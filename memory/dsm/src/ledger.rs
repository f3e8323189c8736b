//! The allocations of a node and its children. The same calls in the same order give the same
//! addresses and homes on all nodes. Different calls would show up as wrong data, or not at all.

use std::collections::BTreeMap;
use std::fmt;

use coherence::message::{NodeId, Page};

/// An allocation, as a task requests it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Allocation {
    /// Its size.
    pub bytes: u64,
    /// Bytes of a block. Tasks get blocks in turns.
    pub block: u64,
    /// The task that gets the first block.
    pub first: u32,
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, block, first } = self;
        match block < bytes {
            true => write!(f, "{bytes} B in blocks of {block} B from task {first} on"),
            false => write!(f, "{bytes} B on task {first}"),
        }
    }
}

/// An allocation that a task of this node has made.
#[derive(Debug)]
pub struct LocalAllocation {
    /// The allocation.
    pub allocation: Allocation,
    /// Its address.
    pub address: u64,
    /// The place in the program that requested it, by the observer's number.
    pub caller: Option<usize>,
}

impl LocalAllocation {
    /// Returns its first page and its bytes, in memory that begins at `start`.
    pub fn place(&self, start: usize, page_bytes: usize) -> (Page, u64) {
        ((self.address - start as u64) / page_bytes as u64, self.allocation.bytes)
    }
}

/// The allocations of some nodes.
#[derive(Debug)]
pub struct Ledger {
    /// All allocations in order, each with the node that made it first.
    made: Vec<(Allocation, NodeId)>,
    /// The number of each node's allocations.
    counts: BTreeMap<NodeId, usize>,
}

/// A difference between the allocations of two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// The allocations with this number, counted from 1, differ.
    Kind(usize, [(NodeId, Allocation); 2]),
    /// The numbers of allocations at one barrier differ.
    Count([(NodeId, usize); 2]),
}

impl Ledger {
    /// Returns an empty ledger of these nodes.
    pub fn new(nodes: impl Iterator<Item = NodeId>) -> Self {
        Self { made: Vec::new(), counts: nodes.map(|node| (node, 0)).collect() }
    }

    /// Returns true if the ledger contains a node.
    pub fn is_of(&self, node: NodeId) -> bool {
        self.counts.contains_key(&node)
    }

    /// Records the next allocation of a node.
    pub fn add(&mut self, node: NodeId, next: Allocation) -> Result<(), Difference> {
        let count = self.counts.get_mut(&node).expect("a node of this ledger");
        *count += 1;
        match self.made.get(*count - 1) {
            None => self.made.push((next, node)),
            Some((made, _)) if *made == next => {}
            Some(&(made, by)) => {
                return Err(Difference::Kind(*count, [(by, made), (node, next)]));
            }
        }
        Ok(())
    }

    /// Compares the numbers of allocations of all nodes, which are at a barrier.
    pub fn compare(&self) -> Result<(), Difference> {
        let most = self.made.len();
        let count = |wanted: bool| {
            let found = self.counts.iter().find(|&(_, &count)| (count == most) == wanted);
            found.map(|(&node, &count)| (node, count))
        };
        match (count(true), count(false)) {
            (Some(most), Some(less)) => Err(Difference::Count([most, less])),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: u64) -> Allocation {
        Allocation { bytes, block: 4096, first: 0 }
    }

    #[test]
    fn the_same_calls_in_the_same_order_are_accepted() {
        let mut ledger = Ledger::new(0..3);
        for (node, bytes) in [(1, 10), (1, 20), (0, 10), (2, 10), (0, 20), (2, 20)] {
            assert_eq!(ledger.add(node, of(bytes)), Ok(()));
        }
        assert_eq!(ledger.compare(), Ok(()));
    }

    #[test]
    fn a_different_size_block_or_task_is_reported_with_both_nodes() {
        for other in [of(11), Allocation { block: 1, ..of(10) }, Allocation { first: 1, ..of(10) }]
        {
            let mut ledger = Ledger::new(0..2);
            assert_eq!(ledger.add(1, of(10)), Ok(()));
            let wanted = Difference::Kind(1, [(1, of(10)), (0, other)]);
            assert_eq!(ledger.add(0, other), Err(wanted));
        }
        assert_eq!(of(10).to_string(), "10 B on task 0");
        assert_eq!(of(8000).to_string(), "8000 B in blocks of 4096 B from task 0 on");
    }

    #[test]
    fn a_different_count_is_reported_at_a_barrier() {
        let mut ledger = Ledger::new(0..3);
        assert_eq!(ledger.compare(), Ok(()));
        for node in [0, 2, 1, 2] {
            assert_eq!(ledger.add(node, of(10)), Ok(()));
        }
        assert_eq!(ledger.compare(), Err(Difference::Count([(2, 2), (0, 1)])));
    }
}
