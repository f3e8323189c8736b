//! A change of the memory map on all nodes.

use coherence::message::NodeId;

use crate::shared::Overlay;

/// The new state of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// This may be done with them.
    Protect(u32),
    /// They are zeros; and this may be done with them, if that changes.
    Reset(Option<u32>),
    /// Nothing may be done with them, and they are zeros when they are used again.
    Unmap,
    /// Nobody has anything of them, and they are not opened: another mapping shows them.
    Overlay(Overlay),
}

/// The purpose of a change.
#[derive(Debug)]
pub struct Request {
    pub effect: Effect,
    /// The owner of pages that are reset.
    pub owner: NodeId,
    /// The thread that wants it, and the answer that it gets.
    pub answer: Option<(u32, i64)>,
}

/// The changes that the origin coordinates.
pub type Changes = node::changes::Changes<Request>;
