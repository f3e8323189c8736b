//! The memory that an engine serves. [`Region`] is a memfd that only the engine's process has;
//! [`Shared`] is a file that other processes map. Both stop a thread that accesses a page without
//! permission.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use coherence::message::Page;
use pager::shared::PAGE;
use pager::{Access, Fault, PagerError, Region, Shared};

/// A system page of zeros.
const ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

/// Memory whose pages an engine provides.
pub trait Memory {
    /// Returns a descriptor that is readable while page faults are pending.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Appends the faults that occurred since the last call. Never blocks.
    fn faults(&mut self, faults: &mut Vec<Fault>) -> Result<(), PagerError>;

    /// Returns true if the kernel can map a page read-only in one step (Linux 6.4 and later).
    /// Without that, an engine treats each read fault as a write fault.
    fn can_allow_read(&self) -> bool;

    /// Returns the page size in bytes.
    fn page_bytes(&self) -> usize;

    /// Grants threads at least `access` to pages, and resumes threads that were stopped there.
    fn allow(&mut self, pages: Range<Page>, access: Access) -> Result<(), PagerError>;

    /// Fills inaccessible pages with `bytes`, or with zeros if `None`, and grants `access` to them.
    fn bring(
        &mut self,
        pages: Range<Page>,
        bytes: Option<&[u8]>,
        access: Access,
    ) -> Result<(), PagerError>;

    /// Fills a page with `bytes`, or with zeros if `None`. Does not change access to it.
    fn fill(&mut self, page: Page, bytes: Option<&[u8]>) -> Result<(), PagerError>;

    /// Revokes write access to pages.
    fn protect(&mut self, pages: Range<Page>) -> Result<(), PagerError>;

    /// Revokes all access to pages. Their contents stay.
    fn forbid(&mut self, pages: Range<Page>) -> Result<(), PagerError>;

    /// Discards the contents of pages and returns their memory to the system. The pages read as
    /// zeros afterwards.
    fn discard(&mut self, pages: Range<Page>) -> Result<(), PagerError>;

    /// Returns the memory of inaccessible pages with obsolete contents to the system.
    fn free(&mut self, pages: Range<Page>) -> Result<(), PagerError>;

    /// Resumes threads that were stopped at a page, so that they retry the access. If access is
    /// granted, maps the page again: under memory pressure the kernel drops mappings.
    fn retry(&mut self, page: Page) -> Result<(), PagerError>;

    /// Appends the contents of pages to `to`.
    fn append(&self, pages: Range<Page>, to: &mut Vec<u8>) -> Result<(), PagerError>;

    /// Returns the access that the engine requests from the protocol for a fault.
    fn wanted(&self, wants: Access) -> Access {
        if self.can_allow_read() { wants } else { Access::Write }
    }
}

/// Memory whose bytes an engine reads and changes through a view that never stops a thread, for
/// twins and diffs.
pub trait Contents: Memory {
    /// Copies the start of a page to `to`.
    ///
    /// # Panics
    /// `to` is longer than a page.
    fn read(&self, page: Page, to: &mut [u8]);

    /// Writes bytes into a page, from `at` on.
    ///
    /// # Panics
    /// The bytes exceed the page.
    fn write(&mut self, page: Page, at: usize, bytes: &[u8]) -> Result<(), PagerError>;
}

impl Contents for Region {
    fn read(&self, page: Page, to: &mut [u8]) {
        Region::read(self, page, to);
    }

    fn write(&mut self, page: Page, at: usize, bytes: &[u8]) -> Result<(), PagerError> {
        Region::write(self, page, at, bytes)
    }
}

impl Memory for Region {
    fn descriptor(&self) -> BorrowedFd<'_> {
        Region::descriptor(self)
    }

    fn faults(&mut self, faults: &mut Vec<Fault>) -> Result<(), PagerError> {
        Region::faults(self, faults)
    }

    fn can_allow_read(&self) -> bool {
        Region::can_allow_read(self)
    }

    fn page_bytes(&self) -> usize {
        self.place().page_bytes
    }

    fn allow(&mut self, pages: Range<Page>, access: Access) -> Result<(), PagerError> {
        self.allow_all(pages, access)
    }

    fn bring(
        &mut self,
        pages: Range<Page>,
        bytes: Option<&[u8]>,
        access: Access,
    ) -> Result<(), PagerError> {
        Region::bring(self, pages, bytes, access)
    }

    fn fill(&mut self, page: Page, bytes: Option<&[u8]>) -> Result<(), PagerError> {
        match bytes {
            Some(bytes) => self.write(page, 0, bytes),
            None => Region::discard(self, page),
        }
    }

    fn protect(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        self.protect_all(pages)
    }

    fn forbid(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        self.forbid_all(pages)
    }

    fn discard(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        self.discard_all(pages)
    }

    fn free(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        self.discard_all(pages)
    }

    fn retry(&mut self, page: Page) -> Result<(), PagerError> {
        Region::wake(self, page)
    }

    fn append(&self, pages: Range<Page>, to: &mut Vec<u8>) -> Result<(), PagerError> {
        self.read_all(pages, to)
    }
}

impl Memory for Shared {
    fn descriptor(&self) -> BorrowedFd<'_> {
        Shared::descriptor(self)
    }

    fn faults(&mut self, faults: &mut Vec<Fault>) -> Result<(), PagerError> {
        Shared::faults(self, faults)
    }

    fn can_allow_read(&self) -> bool {
        Shared::can_allow_read(self)
    }

    fn page_bytes(&self) -> usize {
        PAGE as usize
    }

    fn allow(&mut self, pages: Range<Page>, access: Access) -> Result<(), PagerError> {
        self.allow_all(pages, access)
    }

    fn bring(
        &mut self,
        pages: Range<Page>,
        bytes: Option<&[u8]>,
        access: Access,
    ) -> Result<(), PagerError> {
        self.bring_all(pages, bytes, access)
    }

    fn fill(&mut self, page: Page, bytes: Option<&[u8]>) -> Result<(), PagerError> {
        self.write(page, bytes.unwrap_or(&ZEROS))
    }

    fn protect(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        self.protect_all(pages)
    }

    fn forbid(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        self.forbid_all(pages)
    }

    fn discard(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        Shared::discard(self, pages)
    }

    fn free(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        Shared::free(self, pages)
    }

    fn retry(&mut self, page: Page) -> Result<(), PagerError> {
        Shared::wake(self, page..page + 1)
    }

    fn append(&self, pages: Range<Page>, to: &mut Vec<u8>) -> Result<(), PagerError> {
        let before = to.len();
        to.resize(before + ((pages.end - pages.start) * PAGE) as usize, 0);
        self.copy(pages, &mut to[before..])
    }
}
