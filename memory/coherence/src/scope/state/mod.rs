//! The parts of a node's state. They hold data and know neither messages nor actions; the methods
//! of [`Node`](super::node::Node) change them.

pub mod barrier;
pub mod condition;
pub mod list;
pub mod lock;
pub mod rides;
