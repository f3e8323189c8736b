//! How processes agree on what a window is, without a lock.
//!
//! Memory that is zero is a window yet to be made; whoever finds it so makes it. Each of
//! three words goes from zero to its value once, by compare-and-swap, the magic number
//! last: several may do it at once, on several machines too, and if one dies in between,
//! the next goes on. All the rest of a new window is valid as zero.

use std::sync::atomic::Ordering::Acquire;

use crate::memory::PAGE_SIZE;
use crate::ring::Word64;

/// "nagayaW" and 1.
const MAGIC: u64 = u64::from_le_bytes(*b"nagayaW\x01");
/// Of what lies in a window.
const VERSION: u16 = 1;

/// What a window is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Most members at a time, up to [`MEMBERS_MAX`](crate::window::MEMBERS_MAX).
    pub members: u16,
    /// Bytes for messages, whole pages.
    pub messages: usize,
}

impl Plan {
    fn word(self) -> u64 {
        let pages = (self.messages / PAGE_SIZE) as u64;
        u64::from(VERSION) << 48 | u64::from(self.members) << 32 | pages
    }

    fn parse(word: u64) -> Option<Self> {
        let messages = (word as u32 as usize).checked_mul(PAGE_SIZE)?;
        ((word >> 48) as u16 == VERSION).then_some(Self { members: (word >> 32) as u16, messages })
    }
}

/// The words of a header.
#[derive(Debug)]
pub struct Header<'a, W> {
    /// Zero until the others are there; then it says that this is a window.
    pub magic: &'a W,
    /// Version and plan.
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
        match Plan::parse(self.plan.load(Acquire)) {
            Some(plan) => Agreed::Window(plan, self.size.load(Acquire)),
            None => Agreed::Foreign,
        }
    }
}
