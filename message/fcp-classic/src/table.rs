//! The table that lists the receive buffers of FCP and FCP plus: four words for each member, so
//! that a sender finds a buffer by ID and group (Kikuchi et al., §3.4). FCP II computes the
//! location instead.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fcp::window::{TABLE_ENTRY_WORDS, Window, size_of_table};
use sync::ring::LINE_SIZE;
use sync::word::Word32;

/// The words of an entry: 0 or the buffer's index and 1; the machine; the ID; the group.
const BUFFER: usize = 0;
const HOST: usize = 1;
const ID: usize = 2;
const GROUP: usize = 3;

/// Returns the bytes of messages in the plan of a window in which each member has a buffer of
/// `size` bytes, a power of two.
pub fn size_of_buffers(members: u16, size: usize) -> usize {
    debug_assert!(size.is_power_of_two());
    size_of_table(members) + usize::from(members) * (LINE_SIZE + size)
}

/// The table of a window.
#[derive(Debug)]
pub(crate) struct Table<'a>(pub &'a Window);

impl Table<'_> {
    /// Lists the buffer of member `index`.
    pub fn enter(&self, index: u16, host: u32, id: u32, group: u32) {
        let entry = self.0.table_entry(index);
        entry[HOST].store(host, Relaxed);
        entry[ID].store(id, Relaxed);
        entry[GROUP].store(group, Relaxed);
        entry[BUFFER].store(u32::from(index) + 1, Release);
    }

    /// Removes the buffer of member `index` from the list.
    pub fn remove(&self, index: u16) {
        self.0.table_entry(index)[BUFFER].store(0, Release);
    }

    /// Returns the member that the table lists with this ID and group. The search begins at entry
    /// `first`.
    pub fn find(&self, id: u32, group: u32, first: u16) -> Option<u16> {
        let members = u32::from(self.0.plan().members);
        let mut indices = (0..members).map(|n| ((u32::from(first) + n) % members) as u16);
        indices.find(|&index| lists(self.0.table_entry(index), id, group))
    }
}

/// Returns true if an entry lists the buffer of the member with this ID and group.
pub fn lists<W: Word32>(entry: &[W; TABLE_ENTRY_WORDS], id: u32, group: u32) -> bool {
    entry[BUFFER].load(Acquire) != 0
        && entry[ID].load(Relaxed) == id
        && entry[GROUP].load(Relaxed) == group
}
