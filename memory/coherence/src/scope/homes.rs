//! Where the pages of an allocation live.

use serde::{Deserialize, Serialize};

use crate::message::NodeId;

/// How the pages of an allocation are given to nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Homes {
    /// Blocks of so many pages, node by node in turns, from this one on. A block of one page is
    /// "cyclic"; with as many blocks as nodes, every node has one piece.
    Blocks {
        /// Pages of a block; at least one.
        pages: u64,
        /// Whose the first block is.
        first: NodeId,
    },
    /// All at one node.
    At(NodeId),
}

impl Homes {
    /// The home of the allocation's page number `page`, of `nodes`.
    pub fn of(self, page: u64, nodes: u32) -> NodeId {
        match self {
            Homes::Blocks { pages, first } => {
                ((page / pages + u64::from(first)) % u64::from(nodes)) as NodeId
            }
            Homes::At(node) => node,
        }
    }
}
