//! The pages of a node, as the protocol wants them: filled, twinned, compared, changed; all
//! through the view that never stops anybody.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use coherence::diff;
use coherence::message::{NodeId, Page};
use coherence::scope::event::Kept;
use pager::{Access, PagerError, Region};

/// A node's pages.
pub struct Memory {
    region: Region,
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

impl Memory {
    /// Of a region.
    pub fn new(region: Region) -> Self {
        let page = vec![0; region.place().page_bytes].into_boxed_slice();
        Self {
            region,
            twins: HashMap::new(),
            spare: Vec::new(),
            changes: HashMap::new(),
            kept: HashMap::new(),
            copy: page,
            changed: 0,
        }
    }

    /// What programs use.
    pub fn region(&mut self) -> &mut Region {
        &mut self.region
    }

    /// Readable when threads are stopped.
    pub fn faults(&self) -> BorrowedFd<'_> {
        self.region.descriptor()
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.region.place().page_bytes
    }

    /// Where shared memory begins.
    pub fn start(&self) -> usize {
        self.region.place().start
    }

    /// The page holds this.
    pub fn fill(&mut self, page: Page, bytes: &[u8]) -> Result<(), PagerError> {
        self.region.write(page, 0, bytes)
    }

    /// Keeps a message's body.
    pub fn keep(&mut self, kept: Kept, body: Vec<u8>) {
        self.kept.insert(kept, body);
    }

    /// The page holds one of those that such a body begins with.
    pub fn fill_kept(&mut self, page: Page, kept: Kept, place: usize) -> Result<(), PagerError> {
        let bytes = self.page_bytes();
        let pages = self.kept.get(&kept).expect("the protocol forgets them later");
        self.region.write(page, 0, &pages[place * bytes..][..bytes])
    }

    /// It is of no use any more.
    pub fn forget(&mut self, kept: Kept) {
        self.kept.remove(&kept);
    }

    /// Remembers the page as it is.
    pub fn twin(&mut self, page: Page) -> Result<(), PagerError> {
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
        self.region.read(page, &mut twin);
        self.twins.try_reserve(1).map_err(lacks)?;
        self.twins.insert(page, twin);
        Ok(())
    }

    /// Tasks may read it.
    pub fn map_read(&mut self, page: Page) -> Result<(), PagerError> {
        match self.region.can_allow_read() {
            true => self.region.allow(page, Access::Read),
            // Who wants to read says that they want to write: see `faulted`.
            false => self.region.wake(page),
        }
    }

    /// Tasks may write it.
    pub fn map_write(&mut self, page: Page) -> Result<(), PagerError> {
        self.region.allow(page, Access::Write)
    }

    /// What a task wants that faulted. Where pages cannot be given for reading only (Linux
    /// before 6.4), all of them are written.
    pub fn wanted(&self, wants: Access) -> Access {
        if self.region.can_allow_read() { wants } else { Access::Write }
    }

    /// Puts what differs from the twin with what is for `home`, and drops the twin.
    pub fn compare(&mut self, page: Page, home: NodeId) {
        let twin = self.twins.remove(&page).expect("the protocol makes a twin first");
        self.region.read(page, &mut self.copy);
        let body = self.changes.entry(home).or_default();
        self.changed += diff::append(body, page, &twin, &self.copy) as u64;
        if self.spare.len() < SPARE_MAX {
            self.spare.push(twin);
        }
    }

    /// What was put with what is for `home`.
    pub fn take_changes(&mut self, home: NodeId) -> Vec<u8> {
        self.changes.remove(&home).unwrap_or_default()
    }

    /// Changes pages as a body says that was checked.
    pub fn change(&mut self, body: &[u8]) -> Result<(), PagerError> {
        let pages = diff::pages(body, self.page_bytes()).expect("it was checked when it came");
        for (page, runs) in pages {
            let mut result = Ok(());
            diff::each(runs, |at, bytes| {
                if result.is_ok() {
                    result = self.region.write(page, at, bytes);
                }
            });
            result?;
        }
        Ok(())
    }

    /// Appends a copy to what is sent.
    pub fn append_page(&self, page: Page, bytes: &mut Vec<u8>) {
        let before = bytes.len();
        bytes.resize(before + self.page_bytes(), 0);
        self.region.read(page, &mut bytes[before..]);
    }
}
