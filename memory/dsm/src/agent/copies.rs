//! Twins of pages, the changes that their comparison yields, and message bodies that are kept: what
//! scope consistency needs besides the pages themselves. Pages are read and written through the
//! view that never stops a thread.

use std::collections::HashMap;

use coherence::diff;
use coherence::message::{NodeId, Page};
use coherence::scope::event::Kept;
use pager::{PagerError, Region};

/// The twins of a node's pages, and the diffs that wait to be sent.
pub struct Copies {
    twins: HashMap<Page, Box<[u8]>>,
    /// Memory of twins that are gone.
    spare: Vec<Box<[u8]>>,
    /// Changes on their way to be sent, by home.
    changes: HashMap<NodeId, Vec<u8>>,
    /// Bodies of messages that came ahead of a barrier.
    kept: HashMap<Kept, Vec<u8>>,
    /// A page as it was at one moment.
    copy: Box<[u8]>,
    /// Bytes of changes so far.
    pub changed: u64,
}

/// Twins' memory that is kept.
const SPARE_MAX: usize = 1024;

impl Copies {
    /// None yet, of pages of so many bytes.
    pub fn new(page_bytes: usize) -> Self {
        Self {
            twins: HashMap::new(),
            spare: Vec::new(),
            changes: HashMap::new(),
            kept: HashMap::new(),
            copy: vec![0; page_bytes].into_boxed_slice(),
            changed: 0,
        }
    }

    /// Keeps a message's body.
    pub fn keep(&mut self, kept: Kept, body: Vec<u8>) {
        self.kept.insert(kept, body);
    }

    /// Returns one of the pages that such a body begins with.
    pub fn kept(&self, kept: Kept, place: usize) -> &[u8] {
        let bytes = self.copy.len();
        let pages = self.kept.get(&kept).expect("the protocol forgets them later");
        &pages[place * bytes..][..bytes]
    }

    /// It is of no use any more.
    pub fn forget(&mut self, kept: Kept) {
        self.kept.remove(&kept);
    }

    /// Remembers the page as it is.
    pub fn twin(&mut self, region: &Region, page: Page) -> Result<(), PagerError> {
        let lacks = |_| PagerError::Memory;
        let mut twin = match self.spare.pop() {
            Some(twin) => twin,
            None => {
                let mut twin = Vec::new();
                twin.try_reserve_exact(self.copy.len()).map_err(lacks)?;
                twin.extend_from_slice(&self.copy);
                twin.into_boxed_slice()
            }
        };
        region.read(page, &mut twin);
        self.twins.try_reserve(1).map_err(lacks)?;
        self.twins.insert(page, twin);
        Ok(())
    }

    /// Appends the diff against the twin to the batch for `home`, and drops the twin.
    pub fn compare(&mut self, region: &Region, page: Page, home: NodeId) {
        let twin = self.twins.remove(&page).expect("the protocol makes a twin first");
        region.read(page, &mut self.copy);
        let body = self.changes.entry(home).or_default();
        self.changed += diff::append(body, page, &twin, &self.copy) as u64;
        if self.spare.len() < SPARE_MAX {
            self.spare.push(twin);
        }
    }

    /// The batch for `home`.
    pub fn take_changes(&mut self, home: NodeId) -> Vec<u8> {
        self.changes.remove(&home).unwrap_or_default()
    }
}

/// Changes pages as a body says that was checked.
pub fn change(region: &mut Region, body: &[u8]) -> Result<(), PagerError> {
    let page_bytes = region.place().page_bytes;
    let pages = diff::pages(body, page_bytes).expect("it was checked when it came");
    for (page, runs) in pages {
        let mut result = Ok(());
        diff::each(runs, |at, bytes| {
            if result.is_ok() {
                result = region.write(page, at, bytes);
            }
        });
        result?;
    }
    Ok(())
}

/// Appends a copy of a page to a message.
pub fn append_page(region: &Region, page: Page, bytes: &mut Vec<u8>) {
    let before = bytes.len();
    bytes.resize(before + region.place().page_bytes, 0);
    region.read(page, &mut bytes[before..]);
}
