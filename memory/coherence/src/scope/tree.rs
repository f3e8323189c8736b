//! The tree over which nodes tell each other of barriers: a binomial one with node 0 as root, as
//! that of JIAJIA's broadcasts. Nobody has more than log₂(nodes) neighbours in it, and every
//! other node is its predecessor's child.

use crate::message::NodeId;

/// Who has no parent.
pub const ROOT: NodeId = 0;

/// Who hears of a node's arrival, and tells it that all are there; the root's is itself.
pub fn parent(node: NodeId) -> NodeId {
    node & node.wrapping_sub(1)
}

/// How many numbers from its own on are a node's and its descendants', of so many nodes.
pub fn descent(node: NodeId, nodes: u32) -> u32 {
    let all = if node == ROOT { nodes } else { 1 << node.trailing_zeros() };
    all.min(nodes - node)
}

/// Whose parent a node is: those with most descendants first.
pub fn children(node: NodeId, nodes: u32) -> impl Iterator<Item = NodeId> {
    let here = descent(node, nodes);
    let distances = (0..u32::BITS).rev().map(|bit| 1 << bit);
    distances.filter(move |&distance| distance < here).map(move |distance| node + distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_nodes_are_in_the_tree_once() {
        for nodes in 1..200 {
            let mut seen = vec![ROOT];
            let mut at = 0;
            while at < seen.len() {
                let node = seen[at];
                for child in children(node, nodes) {
                    assert_eq!(parent(child), node);
                    assert!((node..node + descent(node, nodes)).contains(&child));
                    seen.push(child);
                }
                at += 1;
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..nodes).collect::<Vec<_>>());
        }
        assert_eq!(children(ROOT, 1024).count(), 10);
    }
}
