//! Twins of pages, the diffs against them, and message bodies that are kept until a barrier. Scope
//! consistency needs this memory besides the pages. Pages are read and written through
//! the mapping that never stops a thread.

use std::collections::HashMap;

use coherence::diff;
use coherence::message::{NodeId, Page};
use coherence::scope::event::Kept;
use pager::PagerError;

use crate::memory::Contents;

/// The twins of a node's pages, and the diffs that wait to be sent.
pub struct Twins {
    twins: HashMap<Page, Box<[u8]>>,
    /// Memory of twins that were dropped.
    spare: Vec<Box<[u8]>>,
    /// The diffs that wait to be sent, by home.
    diffs: HashMap<NodeId, Vec<u8>>,
    /// Bodies of messages that arrived before the barrier after which they are valid.
    kept: HashMap<Kept, Vec<u8>>,
    /// A buffer for one page.
    buffer: Box<[u8]>,
    /// Sum of the bytes of all diffs.
    pub diff_bytes: u64,
}

/// Maximum number of dropped twins whose memory is kept for reuse.
const SPARE_MAX: usize = 1024;

impl Twins {
    /// Returns an empty set of twins of pages of `page_bytes`.
    pub fn new(page_bytes: usize) -> Self {
        Self {
            twins: HashMap::new(),
            spare: Vec::new(),
            diffs: HashMap::new(),
            kept: HashMap::new(),
            buffer: vec![0; page_bytes].into_boxed_slice(),
            diff_bytes: 0,
        }
    }

    /// Keeps the body of a message.
    pub fn keep(&mut self, kept: Kept, body: Vec<u8>) {
        self.kept.insert(kept, body);
    }

    /// Returns the page with this index in a kept body.
    ///
    /// # Panics
    /// The body is not kept, or has fewer pages.
    pub fn kept(&self, kept: Kept, index: usize) -> &[u8] {
        let bytes = self.buffer.len();
        let pages = self.kept.get(&kept).expect("the protocol uses a body before it forgets it");
        &pages[index * bytes..][..bytes]
    }

    /// Drops a kept body.
    pub fn forget(&mut self, kept: Kept) {
        self.kept.remove(&kept);
    }

    /// Makes a twin of a page.
    pub fn twin(&mut self, memory: &impl Contents, page: Page) -> Result<(), PagerError> {
        let lacks = |_| PagerError::Memory;
        let mut twin = match self.spare.pop() {
            Some(twin) => twin,
            None => {
                let mut twin = Vec::new();
                twin.try_reserve_exact(self.buffer.len()).map_err(lacks)?;
                twin.extend_from_slice(&self.buffer);
                twin.into_boxed_slice()
            }
        };
        memory.read(page, &mut twin);
        self.twins.try_reserve(1).map_err(lacks)?;
        let before = self.twins.insert(page, twin);
        assert!(before.is_none(), "page {page} has one twin");
        Ok(())
    }

    /// Appends the diff against the twin to the batch for `home`, and drops the twin.
    pub fn compare(&mut self, memory: &impl Contents, page: Page, home: NodeId) {
        let twin = self.twins.remove(&page).expect("the protocol makes a twin first");
        memory.read(page, &mut self.buffer);
        let body = self.diffs.entry(home).or_default();
        self.diff_bytes += diff::append(body, page, &twin, &self.buffer) as u64;
        if self.spare.len() < SPARE_MAX {
            self.spare.push(twin);
        }
    }

    /// Takes the batch of diffs for `home`.
    pub fn take_diffs(&mut self, home: NodeId) -> Vec<u8> {
        self.diffs.remove(&home).unwrap_or_default()
    }
}

/// Applies the diffs of a message body.
///
/// # Panics
/// The body is malformed: the protocol checks it when it arrives.
pub fn apply_diffs(memory: &mut impl Contents, body: &[u8]) -> Result<(), PagerError> {
    let page_bytes = memory.page_bytes();
    let pages =
        diff::pages(body, page_bytes).expect("the protocol checked the body when it arrived");
    for (page, runs) in pages {
        let mut result = Ok(());
        diff::each(runs, |at, bytes| {
            if result.is_ok() {
                result = memory.write(page, at, bytes);
            }
        });
        result?;
    }
    Ok(())
}

/// Appends the contents of a page to a message.
pub fn append_page(memory: &impl Contents, page: Page, bytes: &mut Vec<u8>) {
    let before = bytes.len();
    bytes.resize(before + memory.page_bytes(), 0);
    memory.read(page, &mut bytes[before..]);
}
