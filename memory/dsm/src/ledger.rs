//! What a node and those that tell it allocate. The same calls in the same order give the same
//! addresses and homes everywhere; other ones would show as other data, or not at all.

use std::collections::BTreeMap;
use std::fmt;

use coherence::message::NodeId;

/// An allocation, as a task asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Allocation {
    /// How much.
    pub bytes: u64,
    /// Bytes of a block; tasks get blocks in turns.
    pub block: u64,
    /// The task that gets the first.
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

/// Some nodes' allocations.
#[derive(Debug)]
pub struct Ledger {
    /// In order, with the node that was the first to make it.
    made: Vec<(Allocation, NodeId)>,
    /// How many each node has made.
    counts: BTreeMap<NodeId, usize>,
}

/// Two nodes that allocate differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// Their allocations of this number, from 1, are not the same.
    Kind(usize, [(NodeId, Allocation); 2]),
    /// They have made so many, and are at one barrier.
    Count([(NodeId, usize); 2]),
}

impl Ledger {
    /// Of these nodes.
    pub fn new(nodes: impl Iterator<Item = NodeId>) -> Self {
        Self { made: Vec::new(), counts: nodes.map(|node| (node, 0)).collect() }
    }

    /// Whether a node is one of them.
    pub fn is_of(&self, node: NodeId) -> bool {
        self.counts.contains_key(&node)
    }

    /// A node has made its next allocation.
    pub fn add(&mut self, node: NodeId, next: Allocation) -> Result<(), Difference> {
        let count = self.counts.get_mut(&node).expect("one of those");
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

    /// All of them are at a barrier: whether all have made as many.
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
    fn the_same_calls_in_the_same_order_are_right() {
        let mut ledger = Ledger::new(0..3);
        for (node, bytes) in [(1, 10), (1, 20), (0, 10), (2, 10), (0, 20), (2, 20)] {
            assert_eq!(ledger.add(node, of(bytes)), Ok(()));
        }
        assert_eq!(ledger.compare(), Ok(()));
    }

    #[test]
    fn another_size_block_or_place_is_told_with_both_nodes() {
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
    fn another_count_is_told_at_a_barrier() {
        let mut ledger = Ledger::new(0..3);
        assert_eq!(ledger.compare(), Ok(()));
        for node in [0, 2, 1, 2] {
            assert_eq!(ledger.add(node, of(10)), Ok(()));
        }
        assert_eq!(ledger.compare(), Err(Difference::Count([(2, 2), (0, 1)])));
    }
}
