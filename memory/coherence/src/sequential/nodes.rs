//! Sets of nodes, for the copies of a page, waiting requests, and missing acknowledgements.

use serde::{Deserialize, Serialize};

use crate::message::NodeId;

/// Maximum number of nodes of an address space.
pub const NODES_MAX: u32 = u64::BITS;

/// A set of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Nodes(u64);

impl Nodes {
    /// Returns the set of `nodes` nodes from 0 on.
    pub fn all(nodes: u32) -> Self {
        Self(u64::MAX >> (NODES_MAX - nodes))
    }

    /// Decodes a set from a message. Returns `None` if it contains a node that does not exist.
    pub fn of(bits: u64, nodes: u32) -> Option<Self> {
        Some(Self(bits)).filter(|set| set.without(Self::all(nodes)).is_empty())
    }

    /// Encodes the set for a message. Node 0 is the lowest bit.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Returns true if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns true if the set contains the node.
    pub fn has(self, node: NodeId) -> bool {
        self.0 >> node & 1 == 1
    }

    /// Adds a node. Returns true if it was not in the set.
    pub fn insert(&mut self, node: NodeId) -> bool {
        let was = self.has(node);
        self.0 |= 1 << node;
        !was
    }

    /// Removes a node. Returns true if it was in the set.
    pub fn remove(&mut self, node: NodeId) -> bool {
        let was = self.has(node);
        self.0 &= !(1 << node);
        was
    }

    /// Returns the set without the nodes of another set.
    pub fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Returns the set of one node.
    pub fn one(node: NodeId) -> Self {
        Self(1 << node)
    }

    /// Returns the lowest node.
    pub fn first(self) -> Option<NodeId> {
        (self.0 != 0).then(|| self.0.trailing_zeros())
    }

    /// Returns the nodes in ascending order.
    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        (0..NODES_MAX).filter(move |&node| self.has(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_stays_until_it_leaves() {
        let mut set = Nodes::default();
        assert!(set.insert(63) && set.insert(5) && !set.insert(5));
        assert_eq!((set.first(), set.iter().collect::<Vec<_>>()), (Some(5), vec![5, 63]));
        assert_eq!(Nodes::of(set.bits(), 64), Some(set));
        assert_eq!(Nodes::of(set.bits(), 63), None, "there is no node 63");
        assert!(set.without(Nodes::one(5)).has(63) && set.remove(5) && !set.remove(5));
        assert_eq!(Nodes::all(64).without(Nodes::all(63)), set);
    }
}
