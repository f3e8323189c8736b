//! The tree over which nodes tell each other of barriers.
//!
//! Nodes whose numbers follow each other often share data, at the borders of their parts of it;
//! and what goes up and down the tree can bring along pages. So most of them are neighbours in the
//! tree: four make a group, 0 → 1 ← 2 ← 3, whose second node is its head; and the heads are a
//! binomial tree, as that of JIAJIA's broadcasts. That is as high as a binomial tree of all nodes.
//! A node and its descendants have numbers that follow each other.

use std::ops::Range;

use crate::message::NodeId;

/// Nodes of a group.
const GROUP: NodeId = 4;

/// Who has no parent.
pub fn root(nodes: u32) -> NodeId {
    head(0, nodes)
}

/// The head of a group; of one or two nodes, the first is.
fn head(group: NodeId, nodes: u32) -> NodeId {
    let first = group * GROUP;
    first + NodeId::from(first + 2 < nodes)
}

/// Who hears of a node's arrival, and tells it that all are there; the root's is itself.
pub fn parent(node: NodeId, nodes: u32) -> NodeId {
    let group = node / GROUP;
    match head(group, nodes) {
        head if node % GROUP == 3 => head + 1,
        of_group if node == of_group => head(group & group.wrapping_sub(1), nodes),
        of_group => of_group,
    }
}

/// A node and its descendants, of so many nodes.
pub fn descendants(node: NodeId, nodes: u32) -> Range<NodeId> {
    let group = node / GROUP;
    let all = match head(group, nodes) {
        head if node == head && group == 0 => 0..nodes,
        head if node == head => group * GROUP..(group + (1 << group.trailing_zeros())) * GROUP,
        _ if node % GROUP == 2 => node..node + 2,
        _ => node..node + 1,
    };
    all.start..all.end.min(nodes)
}

/// Whose parent a node is: those with most descendants first.
pub fn children(node: NodeId, nodes: u32) -> impl Iterator<Item = NodeId> {
    let below = descendants(node, nodes);
    let group = node / GROUP;
    let groups = (0..u32::BITS - 2).rev().map(move |bit| group.saturating_add(1 << bit));
    let groups = groups.filter(move |group| below.contains(&group.saturating_mul(GROUP)));
    let heads = groups.map(move |group| head(group, nodes));
    let beside = [2, 3, 1, 0].map(|at| group * GROUP + at);
    let is_child = move |child: &NodeId| {
        let is_there = *child < nodes && *child != node;
        is_there && parent(*child, nodes) == node
    };
    heads.chain(beside).filter(is_child)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_nodes_are_in_the_tree_once() {
        for nodes in 1..200 {
            let mut seen = vec![root(nodes)];
            let mut at = 0;
            while at < seen.len() {
                let node = seen[at];
                let mut below = vec![node];
                for child in children(node, nodes) {
                    assert_eq!(parent(child, nodes), node, "{child} of {nodes}");
                    below.extend(descendants(child, nodes));
                    seen.push(child);
                }
                below.sort_unstable();
                assert!(below.into_iter().eq(descendants(node, nodes)), "{node} of {nodes}");
                at += 1;
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..nodes).collect::<Vec<_>>());
        }
        assert_eq!(children(root(1024), 1024).count(), 10);
    }

    /// As high as the binomial tree of as many nodes, whose height is the number of bits.
    #[test]
    fn it_is_no_higher_than_a_binomial_tree() {
        for nodes in 2..200 {
            let height = |mut node| {
                let mut height = 0;
                while node != root(nodes) {
                    (node, height) = (parent(node, nodes), height + 1);
                }
                height
            };
            let most = (0..nodes).map(height).max().expect("there are some");
            assert!(most <= nodes.ilog2() + u32::from(!nodes.is_power_of_two()), "{nodes}");
        }
    }
}
