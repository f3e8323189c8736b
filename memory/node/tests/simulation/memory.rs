//! Memory that exists in this process only: pages with an access, and threads that stop at them. It
//! fails as the kernel may.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use coherence::message::Page;
use fastrand::Rng;
use node::memory::{Contents, Memory};
use pager::{Access, Fault, PagerError};
use rustix::io::Errno;

/// The contents of a page whose memory was freed.
const POISON: u8 = 0xdd;

/// A fault of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No memory for a page (ENOMEM).
    NoMemory,
    /// The file system is full (ENOSPC).
    NoSpace,
    /// Too many mappings.
    NoMapping,
    /// A page cannot be read (SIGBUS, EIO).
    Unread,
    /// The kernel has dropped a mapping under memory pressure: a thread stops without a reason.
    Unmapped,
}

/// All of them.
pub const FAILURES: [Failure; 5] =
    [Failure::NoMemory, Failure::NoSpace, Failure::NoMapping, Failure::Unread, Failure::Unmapped];

/// How often each fault has happened in a run.
pub type Failures = Rc<RefCell<[u64; FAILURES.len()]>>;

struct Frame {
    bytes: Box<[u8]>,
    access: Access,
    is_there: bool,
    /// Its last fill or write has failed.
    is_stale: bool,
}

/// The memory of a node.
pub struct Pages {
    page_bytes: usize,
    frames: Vec<Frame>,
    faults: Vec<Fault>,
    /// Pages whose threads resume.
    resumed: Vec<Page>,
    maps_reads: bool,
    random: RefCell<Rng>,
    /// Calls until one fails, on average; 0 for never.
    failing: u32,
    failures: Failures,
    /// A call has failed, and the engine is about to end.
    has_failed: Cell<bool>,
}

impl Pages {
    pub fn new(pages: u64, page_bytes: usize, random: Rng, failing: u32, all: Failures) -> Self {
        let frame = || Frame {
            bytes: vec![0; page_bytes].into(),
            access: Access::None,
            is_there: false,
            is_stale: false,
        };
        let mut random = random;
        Self {
            page_bytes,
            frames: (0..pages).map(|_| frame()).collect(),
            faults: Vec::new(),
            resumed: Vec::new(),
            maps_reads: random.u32(0..4) > 0,
            random: RefCell::new(random),
            failing,
            failures: all,
            has_failed: Cell::new(false),
        }
    }

    /// Decides whether a call fails, and counts it.
    fn fails(&self, failure: Failure, n: u32) -> bool {
        let fails = n > 0 && self.random.borrow_mut().u32(0..n) == 0;
        self.failures.borrow_mut()[failure as usize] += u64::from(fails);
        self.has_failed.set(self.has_failed.get() || fails && failure != Failure::Unmapped);
        fails
    }

    fn check_memory(&self) -> Result<(), PagerError> {
        if self.fails(Failure::NoMemory, self.failing) {
            return Err(PagerError::Memory);
        }
        if self.fails(Failure::NoSpace, self.failing) {
            return Err(PagerError::System { doing: "make shared memory", why: Errno::NOSPC });
        }
        Ok(())
    }

    /// The same for the contents of a page.
    fn check_fill(&mut self, page: Page) -> Result<(), PagerError> {
        let checked = self.check_memory();
        self.frames[page as usize].is_stale = checked.is_err();
        checked
    }

    fn check_mapping(&self) -> Result<(), PagerError> {
        match self.fails(Failure::NoMapping, self.failing) {
            true => Err(PagerError::Mappings),
            false => Ok(()),
        }
    }

    fn frames(&mut self, pages: Range<Page>) -> &mut [Frame] {
        &mut self.frames[pages.start as usize..pages.end as usize]
    }

    /// A thread accesses a byte. Returns `None` if it stops there.
    pub fn touch(&mut self, page: Page, at: usize, wants: Access, thread: u32) -> Option<&mut u8> {
        let is_allowed = self.frames[page as usize].access >= wants;
        if !is_allowed || self.fails(Failure::Unmapped, 64) {
            self.faults.push(Fault { page, at, wants, thread });
            return None;
        }
        Some(&mut self.frames[page as usize].bytes[at])
    }

    /// Takes the pages whose threads resume.
    pub fn take_resumed(&mut self) -> Vec<Page> {
        std::mem::take(&mut self.resumed)
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u64 {
        self.frames.len() as u64
    }

    /// Returns the page size.
    pub fn page_bytes_u64(&self) -> u64 {
        self.page_bytes as u64
    }

    /// Returns the bytes of memory in use.
    pub fn used_bytes(&self) -> u64 {
        (self.frames.iter().filter(|frame| frame.is_there).count() * self.page_bytes) as u64
    }
}

impl Memory for Pages {
    fn descriptor(&self) -> BorrowedFd<'_> {
        unreachable!("a simulated node never sleeps")
    }

    fn faults(&mut self, faults: &mut Vec<Fault>) -> Result<(), PagerError> {
        faults.append(&mut self.faults);
        Ok(())
    }

    fn can_allow_read(&self) -> bool {
        self.maps_reads
    }

    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn allow(&mut self, pages: Range<Page>, access: Access) -> Result<(), PagerError> {
        self.check_mapping()?;
        self.resumed.extend(pages.clone());
        for frame in self.frames(pages) {
            assert!(!frame.is_stale, "a page is opened whose fill has failed");
            frame.access = frame.access.max(access);
            frame.is_there = true;
        }
        Ok(())
    }

    fn bring(
        &mut self,
        pages: Range<Page>,
        bytes: Option<&[u8]>,
        access: Access,
    ) -> Result<(), PagerError> {
        for (index, page) in pages.clone().enumerate() {
            let is_open = self.frames[page as usize].access > Access::None;
            let is_right = !is_open || self.has_failed.get();
            assert!(is_right, "page {page} is filled while threads may use it");
            let bytes = bytes.map(|bytes| &bytes[index * self.page_bytes..][..self.page_bytes]);
            self.fill(page, bytes)?;
        }
        self.allow(pages, access)
    }

    fn fill(&mut self, page: Page, bytes: Option<&[u8]>) -> Result<(), PagerError> {
        self.check_fill(page)?;
        let frame = &mut self.frames[page as usize];
        match bytes {
            Some(bytes) => frame.bytes.copy_from_slice(bytes),
            None => frame.bytes.fill(0),
        }
        frame.is_there = true;
        Ok(())
    }

    fn protect(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        self.check_mapping()?;
        let lower = |frame: &mut Frame| frame.access = frame.access.min(Access::Read);
        self.frames(pages).iter_mut().for_each(lower);
        Ok(())
    }

    fn forbid(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        self.check_mapping()?;
        self.frames(pages).iter_mut().for_each(|frame| frame.access = Access::None);
        Ok(())
    }

    fn discard(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        for frame in self.frames(pages) {
            frame.bytes.fill(0);
            (frame.access, frame.is_there) = (Access::None, false);
        }
        Ok(())
    }

    fn free(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        let has_failed = self.has_failed.get();
        for frame in self.frames(pages) {
            let is_closed = frame.access == Access::None;
            assert!(is_closed || has_failed, "memory is freed while threads may use it");
            frame.bytes.fill(POISON);
            frame.is_there = false;
        }
        Ok(())
    }

    fn retry(&mut self, page: Page) -> Result<(), PagerError> {
        self.check_mapping()?;
        self.resumed.push(page);
        Ok(())
    }

    fn append(&self, pages: Range<Page>, to: &mut Vec<u8>) -> Result<(), PagerError> {
        for page in pages {
            if self.fails(Failure::Unread, self.failing) {
                return Err(PagerError::Unread { at: page as usize, why: Errno::IO });
            }
            to.extend_from_slice(&self.frames[page as usize].bytes);
        }
        Ok(())
    }
}

impl Contents for Pages {
    fn read(&self, page: Page, to: &mut [u8]) {
        to.copy_from_slice(&self.frames[page as usize].bytes[..to.len()]);
    }

    fn write(&mut self, page: Page, at: usize, bytes: &[u8]) -> Result<(), PagerError> {
        self.check_fill(page)?;
        let frame = &mut self.frames[page as usize];
        frame.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        frame.is_there = true;
        Ok(())
    }
}
