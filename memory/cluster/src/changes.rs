//! Changes of memory that all machines make together: their kinds, and the actions after them. The
//! engine's [`node::changes`] has their steps.

use std::sync::mpsc::Sender;

/// The purpose of a change.
#[derive(Debug)]
pub struct Goal {
    /// The kind of change.
    pub what: What,
    /// The action after all machines have made it.
    pub then: Then,
}

/// The changes that this machine coordinates: those of its own segments.
pub type Changes = node::changes::Changes<Goal>;

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The pages are reset: zero-filled everywhere.
    Reset,
    /// Pages that lookups of other machines found unmapped are mapped now.
    Mapped,
}

/// The action after a change.
#[derive(Debug)]
pub enum Then {
    /// The task that asked for it is answered.
    Answer(u32),
    /// The blocks are not published any more. The sender is dropped then.
    Unpublish(Sender<()>),
}
