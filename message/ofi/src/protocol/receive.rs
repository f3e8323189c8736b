//! A posted receive, and the test if a message matches it.

use crate::protocol::parts::Parts;
use crate::protocol::slot_use::SlotUse;

/// A posted receive.
#[derive(Debug, Clone, Copy)]
pub struct Receive {
    /// The context of its completion.
    pub context: usize,
    /// The only sender of its messages.
    pub source: Option<u32>,
    /// The tag of its messages.
    pub tag: u64,
    /// Bits of the tag to ignore.
    pub ignore: u64,
    /// The buffer.
    pub buffer: Parts,
    /// It asks for a completion.
    pub completes: bool,
    /// Takes messages until fewer bytes than this are left; 0: takes one message.
    pub multiple: u64,
    /// The slot in which it is published.
    pub slot_use: Option<SlotUse>,
}

/// Returns true if a tag is the wanted one, apart from the bits to ignore.
#[inline]
pub fn fits(tag: u64, wanted: u64, ignore: u64) -> bool {
    (tag ^ wanted) & !ignore == 0
}
