//! Blocks of memory: those of this machine that are published, and those of others that are known.
//! A block is published when another machine first looks up one of its pages.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;

use coherence::message::Page;
use nagaya_gate::abi::PUBLISHED_BLOCK;
use pager::shared::PAGE;

/// Pages of a block.
pub const BLOCK: u64 = PUBLISHED_BLOCK / PAGE;

/// A set of pages of one block: one bit a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bits([u64; (BLOCK / 64) as usize]);

impl Bits {
    /// Returns the bits as a message carries them.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Parses the bits of a message.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut bits = Self::default();
        if bytes.len() != size_of_val(&bits.0) {
            return None;
        }
        for (word, bytes) in bits.0.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        Some(bits)
    }

    /// Adds a page.
    pub fn set(&mut self, page: Page) {
        let bit = page % BLOCK;
        self.0[(bit / 64) as usize] |= 1 << (bit % 64);
    }

    /// Returns true if the set contains a page.
    pub fn is_set(&self, page: Page) -> bool {
        let bit = page % BLOCK;
        self.0[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }
}

/// Returns the block of a page.
pub fn block_of(page: Page) -> u64 {
    page / BLOCK
}

/// Returns the pages of a block.
pub fn pages_of(block: u64) -> Range<Page> {
    block * BLOCK..(block + 1) * BLOCK
}

/// A lookup of a page that its home has not answered yet.
#[derive(Debug)]
pub struct Lookup {
    /// The page that was looked up.
    pub page: Page,
    /// The lookup carried the protocol's request for the page.
    pub carries_request: bool,
    /// Faults in the same block since then: the page, and true for a write access.
    pub waiting: VecDeque<(Page, bool)>,
}

/// The agent's state of blocks.
#[derive(Debug, Default)]
pub struct Blocks {
    /// Blocks of this machine that others know.
    pub published: BTreeSet<u64>,
    /// Blocks of other machines, with the pages that are mapped there. A page stays mapped until it
    /// is reset; more pages may become mapped.
    pub known: HashMap<u64, Bits>,
    /// Pages of this machine that others looked up while they were not mapped.
    pub refused: BTreeSet<Page>,
    /// The pending lookup of each block of another machine.
    pub lookups: HashMap<u64, Lookup>,
    /// The page whose request, which the protocol is about to send, is to carry a lookup.
    pub looked_up: Option<Page>,
}

impl Blocks {
    /// Returns the published blocks that overlap `pages`.
    pub fn published_in(&self, pages: &Range<Page>) -> Vec<u64> {
        assert!(pages.start < pages.end, "a range of pages");
        let blocks = block_of(pages.start)..=block_of(pages.end - 1);
        self.published.range(blocks).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_parsed_as_they_were_sent() {
        let mut bits = Bits::default();
        [3, BLOCK + 64, 2 * BLOCK - 1].into_iter().for_each(|page| bits.set(page));
        assert_eq!(Bits::parse(&bits.bytes()), Some(bits));
        assert_eq!(Bits::parse(&bits.bytes()[1..]), None);
        let set: Vec<Page> = pages_of(7).filter(|&page| bits.is_set(page)).collect();
        assert_eq!(set, [7 * BLOCK + 3, 7 * BLOCK + 64, 8 * BLOCK - 1]);
    }

    #[test]
    fn published_blocks_that_overlap_a_range_are_found() {
        let blocks = Blocks { published: [1, 2, 4].into(), ..Blocks::default() };
        assert_eq!(blocks.published_in(&(2 * BLOCK - 1..4 * BLOCK)), [1, 2]);
        assert_eq!(blocks.published_in(&(4 * BLOCK..4 * BLOCK + 1)), [4]);
    }
}
