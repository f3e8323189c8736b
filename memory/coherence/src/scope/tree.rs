//! The barrier tree: nodes send arrivals up and grants down this tree.
//!
//! Nodes with neighbouring numbers often share data at the borders of their parts. Messages of the
//! barrier can carry pages. So neighbours in the numbering should be neighbours in the tree. Four
//! nodes form a group, 0 → 1 ← 2 ← 3, whose second node is its head. The heads form a binomial
//! tree, as in JIAJIA's broadcasts. The whole tree is as high as a binomial tree of all nodes. A
//! node and its descendants have consecutive numbers.

use std::ops::Range;

use crate::message::NodeId;

/// Nodes of a group.
const GROUP: NodeId = 4;

/// Returns the root of the tree.
pub fn root(nodes: u32) -> NodeId {
    head(0, nodes)
}

/// Returns the head of a group. In a group of one or two nodes it is the first node.
fn head(group: NodeId, nodes: u32) -> NodeId {
    let first = group * GROUP;
    first + NodeId::from(first + 2 < nodes)
}

/// Returns the parent of a node: it receives the node's arrival and sends its grant. The root is
/// its own parent.
pub fn parent(node: NodeId, nodes: u32) -> NodeId {
    let group = node / GROUP;
    match head(group, nodes) {
        head if node % GROUP == 3 => head + 1,
        of_group if node == of_group => head(group & group.wrapping_sub(1), nodes),
        of_group => of_group,
    }
}

/// Returns a node and its descendants, in a tree of `nodes` nodes.
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

/// Returns the children of a node. Those with the most descendants come first.
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

    /// The height of a binomial tree is the number of bits of its size.
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
