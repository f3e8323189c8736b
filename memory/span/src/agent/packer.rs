//! The origin's state of packing threads (`--place auto`).

use std::collections::HashSet;

use coherence::message::NodeId;

use crate::packing::{Packing, Spent};
use crate::report::Placed;

/// At the origin: where threads are to be.
#[derive(Debug)]
pub(super) struct Packer {
    pub packing: Packing,
    pub spent: Vec<Spent>,
    /// Nodes that have been asked, and have not answered.
    pub asked: HashSet<NodeId>,
    /// Threads that have the order to move, and have not yet moved.
    pub sent: HashSet<u32>,
    /// The program or its user controls the placement.
    pub is_off: bool,
    pub placed: Vec<Placed>,
}
