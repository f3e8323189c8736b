//! How processes agree on what a window is, without a lock.
//!
//! Memory that is zero is a window yet to be made; whoever finds it so makes it. Each of
//! three words goes from zero to its value once, by compare-and-swap, the magic number
//! last: several may do it at once, on several machines too, and if one dies in between,
//! the next goes on. All the rest of a new window is valid as zero.

use std::sync::atomic::Ordering::Acquire;

use crate::memory::PAGE_SIZE;
use sync::word::Word64;

/// "nagayaW" and the version of what lies in a window.
const MAGIC: u64 = u64::from_le_bytes(*b"nagayaW\x02");

/// What a window is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Plan {
    /// Most members at a time, up to [`MEMBERS_MAX`](crate::window::MEMBERS_MAX).
    pub members: u16,
    /// Bytes for messages, whole pages, less than 128 GiB.
    pub messages: usize,
    /// Bytes that each member can lend, whole pages, less than 128 GiB; 0 for none.
    pub lendable: usize,
    /// A table lists the receive buffers, for FCP and FCP plus (`classic`). Otherwise their
    /// places are computed, for FCP II (`port`).
    pub listed: bool,
}

/// Bits of the plan's numbers in its word; sizes in pages.
const MEMBERS_BITS: u32 = 13;
const MESSAGES_BITS: u32 = 25;
const LENDABLE_BITS: u32 = 25;
const _: () = assert!(MEMBERS_BITS + MESSAGES_BITS + LENDABLE_BITS + 1 == u64::BITS);

impl Plan {
    /// Whether a header can tell it.
    pub(crate) fn can_be_told(self) -> bool {
        let is_told = |bytes: usize, bits| {
            bytes.is_multiple_of(PAGE_SIZE) && bytes / PAGE_SIZE < 1usize << bits
        };
        self.members < 1 << MEMBERS_BITS
            && is_told(self.messages, MESSAGES_BITS)
            && is_told(self.lendable, LENDABLE_BITS)
    }

    fn word(self) -> u64 {
        let members = u64::from(self.members) << (MESSAGES_BITS + LENDABLE_BITS);
        let messages = (self.messages / PAGE_SIZE) as u64;
        let sizes = messages << LENDABLE_BITS | (self.lendable / PAGE_SIZE) as u64;
        u64::from(self.listed) << 63 | members | sizes
    }

    fn parse(word: u64) -> Self {
        let pages = |shift: u32, bits: u32| (word >> shift & ((1 << bits) - 1)) as usize;
        Self {
            listed: word >> 63 != 0,
            members: (word >> (MESSAGES_BITS + LENDABLE_BITS)) as u16 & ((1 << MEMBERS_BITS) - 1),
            messages: pages(LENDABLE_BITS, MESSAGES_BITS) * PAGE_SIZE,
            lendable: pages(0, LENDABLE_BITS) * PAGE_SIZE,
        }
    }
}

/// The words of a header.
#[derive(Debug)]
pub struct Header<'a, W> {
    /// Zero until the others are there; then it says that this is a window.
    pub magic: &'a W,
    /// The plan.
    pub plan: &'a W,
    /// Bytes of the window.
    pub size: &'a W,
}

/// What a header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreed {
    /// This is a window, with this plan and size.
    Window(Plan, u64),
    /// It holds nothing, and nobody said what it should be.
    Empty,
    /// It holds something else.
    Foreign,
}

impl<W: Word64> Header<'_, W> {
    /// Reads the header; makes it, if there is none and `wanted` says what for.
    pub fn agree(&self, wanted: Option<Plan>, size: u64) -> Agreed {
        match (self.magic.load(Acquire), wanted) {
            (MAGIC, _) => return self.read(),
            (0, None) => return Agreed::Empty,
            (0, Some(wanted)) => {
                // Somebody else may have been first: then what is there holds.
                let _ = self.plan.compare_exchange(0, wanted.word());
                let _ = self.size.compare_exchange(0, size);
            }
            _ => return Agreed::Foreign,
        }
        let agreed = self.read();
        if matches!(agreed, Agreed::Window(_, has) if has == size) {
            let _ = self.magic.compare_exchange(0, MAGIC);
        }
        agreed
    }

    fn read(&self) -> Agreed {
        Agreed::Window(Plan::parse(self.plan.load(Acquire)), self.size.load(Acquire))
    }
}
