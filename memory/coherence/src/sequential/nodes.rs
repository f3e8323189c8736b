//! Sets of nodes: who has a copy of a page, who waits for one, who has not answered yet.

use serde::{Deserialize, Serialize};

use crate::message::NodeId;

/// Nodes that can share an address space, at most.
pub const NODES_MAX: u32 = u64::BITS;

/// Some nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Nodes(u64);

impl Nodes {
    /// All of so many.
    pub fn all(nodes: u32) -> Self {
        Self(u64::MAX >> (NODES_MAX - nodes))
    }

    /// Of what a message says: nothing, if there are not so many nodes.
    pub fn of(bits: u64, nodes: u32) -> Option<Self> {
        Some(Self(bits)).filter(|set| set.without(Self::all(nodes)).is_empty())
    }

    /// As messages have it: node 0 is the lowest bit.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// There are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// That one is there.
    pub fn has(self, node: NodeId) -> bool {
        self.0 >> node & 1 == 1
    }

    /// That one, too: whether it was not there.
    pub fn insert(&mut self, node: NodeId) -> bool {
        let was = self.has(node);
        self.0 |= 1 << node;
        !was
    }

    /// That one no more: whether it was there.
    pub fn remove(&mut self, node: NodeId) -> bool {
        let was = self.has(node);
        self.0 &= !(1 << node);
        was
    }

    /// But for these.
    pub fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// That one only.
    pub fn one(node: NodeId) -> Self {
        Self(1 << node)
    }

    /// The lowest.
    pub fn first(self) -> Option<NodeId> {
        (self.0 != 0).then(|| self.0.trailing_zeros())
    }

    /// One after the other.
    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        (0..NODES_MAX).filter(move |&node| self.has(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_is_there_until_it_goes() {
        let mut set = Nodes::default();
        assert!(set.insert(63) && set.insert(5) && !set.insert(5));
        assert_eq!((set.first(), set.iter().collect::<Vec<_>>()), (Some(5), vec![5, 63]));
        assert_eq!(Nodes::of(set.bits(), 64), Some(set));
        assert_eq!(Nodes::of(set.bits(), 63), None, "there is no node 63");
        assert!(set.without(Nodes::one(5)).has(63) && set.remove(5) && !set.remove(5));
        assert_eq!(Nodes::all(64).without(Nodes::all(63)), set);
    }
}
