//! The header of a window, by which processes agree on its layout without a lock.
//!
//! Memory that is zero is not a window yet; a process that finds it so makes it one. Each of three
//! words changes once from zero to its value, by compare-and-swap, and the magic number is the
//! last. Several processes may do so at once, on several machines too. If one dies in between, the
//! next continues. All the rest of a new window is valid as zero.

use std::sync::atomic::Ordering::Acquire;

use crate::memory::PAGE_SIZE;
use sync::word::Word64;

/// "nagayaW" and the version of the layout.
const MAGIC: u64 = u64::from_le_bytes(*b"nagayaW\x03");

/// The layout of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Plan {
    /// Largest number of members at a time, up to [`MEMBERS_MAX`](crate::window::MEMBERS_MAX).
    pub members: u16,
    /// Bytes for messages: whole pages, less than 128 GiB.
    pub messages: usize,
    /// Bytes that each member can lend: whole pages, less than 128 GiB; 0 for none.
    pub lendable: usize,
    /// A table lists the receive buffers, for FCP and FCP plus. Otherwise their locations are
    /// computed, for FCP II.
    pub listed: bool,
}

/// Bits of the plan's numbers in its word. Sizes are in pages.
const MEMBERS_BITS: u32 = 13;
const MESSAGES_BITS: u32 = 25;
const LENDABLE_BITS: u32 = 25;
const _: () = assert!(MEMBERS_BITS + MESSAGES_BITS + LENDABLE_BITS + 1 == u64::BITS);

impl Plan {
    /// Returns true if a header can hold the plan.
    pub(crate) fn is_encodable(self) -> bool {
        let fits = |bytes: usize, bits| {
            bytes.is_multiple_of(PAGE_SIZE) && bytes / PAGE_SIZE < 1usize << bits
        };
        self.members < 1 << MEMBERS_BITS
            && fits(self.messages, MESSAGES_BITS)
            && fits(self.lendable, LENDABLE_BITS)
    }

    fn word(self) -> u64 {
        debug_assert!(self.is_encodable(), "{self:?}");
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
    /// The magic number of a window, or zero until the other words are set.
    pub magic: &'a W,
    /// The plan.
    pub plan: &'a W,
    /// Size of the window in bytes.
    pub size: &'a W,
}

/// The contents of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreed {
    /// A window with this plan and size.
    Window(Plan, u64),
    /// Zero, and the caller gave no plan.
    Empty,
    /// Something else.
    Foreign,
}

impl<W: Word64> Header<'_, W> {
    /// Reads the header. Makes it if there is none and `wanted` is a plan.
    pub fn agree(&self, wanted: Option<Plan>, size: u64) -> Agreed {
        match (self.magic.load(Acquire), wanted) {
            (MAGIC, _) => return self.read(),
            (0, None) => return Agreed::Empty,
            (0, Some(wanted)) => {
                // Another process may have been first: then its values are valid.
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
