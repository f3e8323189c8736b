//! Placement of the homes of an allocation's pages.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::message::NodeId;

/// The distribution of an allocation's pages over nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Homes {
    /// Blocks of `pages` pages, distributed round-robin from node `first` on. Blocks of one page
    /// are a cyclic distribution. With as many blocks as nodes, every node has one block.
    Blocks {
        /// Pages of a block; at least one.
        pages: u64,
        /// The node of the first block.
        first: NodeId,
    },
    /// All pages at one node.
    At(NodeId),
}

impl Homes {
    /// Returns the home of page `page` of the allocation, with `nodes` nodes.
    pub fn of(self, page: u64, nodes: u32) -> NodeId {
        match self {
            Homes::Blocks { pages, first } => {
                ((page / pages + u64::from(first)) % u64::from(nodes)) as NodeId
            }
            Homes::At(node) => node,
        }
    }

    /// Returns those of the allocation's first `pages` pages whose home is `node`, as ascending
    /// ranges.
    pub fn at(self, node: NodeId, nodes: u32, pages: u64) -> impl Iterator<Item = Range<u64>> {
        let (first, piece, step) = match self {
            Homes::Blocks { pages: block, first } => {
                let turn = (node + nodes - first % nodes) % nodes;
                (u64::from(turn).saturating_mul(block), block, block.saturating_mul(nodes.into()))
            }
            Homes::At(home) if home == node => (0, pages, pages),
            Homes::At(_) => (pages, 0, 0),
        };
        let next = move |at: &u64| at.checked_add(step);
        std::iter::successors(Some(first), next)
            .take_while(move |at| *at < pages)
            .map(move |at| at..at.saturating_add(piece).min(pages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_at_nodes_are_all_pages_that_live_there() {
        let all = [Homes::At(1), Homes::At(4), Homes::Blocks { pages: u64::MAX, first: 3 }];
        let blocks = [(1, 0), (3, 2), (10, 4), (3, 7)];
        let blocks = blocks.map(|(pages, first)| Homes::Blocks { pages, first });
        for homes in all.into_iter().chain(blocks) {
            for (node, pages) in (0..5).flat_map(|node| [0, 1, 31, 100].map(|pages| (node, pages)))
            {
                let there: Vec<u64> = homes.at(node, 5, pages).flatten().collect();
                let wanted = (0..pages).filter(|page| homes.of(*page, 5) == node);
                assert_eq!(there, wanted.collect::<Vec<_>>(), "{homes:?} at {node}, {pages}");
            }
        }
    }
}
