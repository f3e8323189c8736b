//! A posted receive, and which messages match it.

use crate::protocol::parts::Parts;
use crate::protocol::place::Place;

/// A receive.
#[derive(Debug, Clone, Copy)]
pub struct Receive {
    /// What its completion gives back.
    pub context: usize,
    /// From whom only.
    pub source: Option<u32>,
    /// By which tag.
    pub tag: u64,
    /// Bits of the tag that may be any.
    pub ignore: u64,
    /// Where to.
    pub buffer: Parts,
    /// A completion is wanted.
    pub completes: bool,
    /// Takes messages until less than this is left; 0: takes one.
    pub multiple: u64,
    /// Senders find it there.
    pub place: Option<Place>,
}

/// Whether a tag is the one that is wanted, but for the bits that may be any.
#[inline]
pub fn fits(tag: u64, wanted: u64, ignore: u64) -> bool {
    (tag ^ wanted) & !ignore == 0
}
