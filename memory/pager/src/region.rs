//! One memory with two views. In the programs' view, threads stop at pages that they may not
//! access. The alias never stops a thread, and the code that installs and removes pages uses it.
//!
//! The memory is a memfd that only this process has. The user selects the address of the programs'
//! view, so it can be the same on every machine; the alias lies [`ALIAS`] bytes above. Both are
//! few large mappings, which are opened page by page as the region grows. An access beyond the
//! region gives SIGSEGV. A page may be any multiple of the system's page.

use std::cell::OnceCell;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::with_exposed_provenance_mut;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mprotect, munmap};

use crate::access::{Access, Fault, Place, Stops};
use crate::error::PagerError;
use crate::pages::{Page, Pages};
use crate::ranges::Ranges;
use crate::userfault::{Stopped, Userfault};

/// From the programs' view to the alias; also the most that a region can hold.
pub const ALIAS: usize = 16 << 40;
/// The content of zero pages that may only be read.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// Size of the first mapping. The mapping doubles each time. If the limit of addresses is lower,
/// only the needed size is mapped.
const MAPPED_MIN: usize = 64 << 30;

/// Memory in its two views.
pub struct Region {
    pub(crate) userfault: Userfault,
    pub(crate) memory: OwnedFd,
    pub(crate) place: Place,
    /// Number of pages.
    pub(crate) count: u64,
    pub(crate) pages: Pages,
    /// Bytes of each view that are mapped; those beyond the pages are closed.
    mapped: usize,
    /// Of a region that is everywhere, and has no alias: the addresses that are mapped.
    pub(crate) opened: Option<Ranges>,
    /// Threads stop at pages. If not, they use all pages as they use other memory.
    pub(crate) is_watched: bool,
    /// The empty file of [`lay_end`](Self::lay_end).
    pub(crate) empty: OnceCell<OwnedFd>,
    stopped: Vec<Stopped>,
}

impl Region {
    /// An empty one.
    pub fn new(place: Place, stops: Stops) -> Result<Self, PagerError> {
        let Place { start, page_bytes } = place;
        let system = rustix::param::page_size();
        let is_page = page_bytes > 0 && page_bytes.is_multiple_of(system);
        if !is_page || !start.is_multiple_of(system) || start.checked_add(2 * ALIAS).is_none() {
            return Err(PagerError::Alignment { page_bytes });
        }
        let userfault = Userfault::new(stops)?;
        let memory = memfd_create("nagaya-pages", MemfdFlags::CLOEXEC)
            .map_err(|why| PagerError::System { doing: "make shared memory", why })?;
        let (count, mapped, pages, opened, stopped) = Default::default();
        let (is_watched, empty) = (true, OnceCell::new());
        Ok(Self {
            userfault,
            memory,
            place,
            count,
            pages,
            mapped,
            opened,
            is_watched,
            empty,
            stopped,
        })
    }

    /// Adds zero pages without access. Returns the number of the first new page.
    pub fn grow(&mut self, pages: u64) -> Result<u64, PagerError> {
        let first = self.count;
        let bytes = usize::try_from(first + pages)
            .ok()
            .and_then(|pages| pages.checked_mul(self.place.page_bytes))
            .filter(|&bytes| bytes <= ALIAS)
            .ok_or(PagerError::Full)?;
        if pages == 0 {
            return Ok(first);
        }
        let system = |doing| move |why| PagerError::System { doing, why };
        ftruncate(&self.memory, bytes as u64).map_err(system("let shared memory grow"))?;
        self.map_until(bytes)?;
        let new = self.view(first..first + pages);
        for view in [new.clone(), new.start + ALIAS..new.end + ALIAS] {
            let open = MprotectFlags::READ | MprotectFlags::WRITE;
            let start = with_exposed_provenance_mut(view.start);
            // SAFETY: the region mapped this part of the view, and no thread has access to it yet.
            match unsafe { mprotect(start, view.len(), open) } {
                Ok(()) => {}
                Err(Errno::NOMEM) => return Err(PagerError::Mappings),
                Err(why) => return Err(system("open shared memory")(why)),
            }
        }
        match self.userfault.register(new) {
            Ok(()) => {}
            Err(Errno::NOMEM) => return Err(PagerError::Mappings),
            Err(why) => return Err(system("register shared memory with userfaultfd")(why)),
        }
        self.count += pages;
        Ok(first)
    }

    /// Sets the processor's protection of pages: none, read, write, execute. It limits threads in
    /// addition to [`allow`](Self::allow); a violation gives SIGSEGV. New pages are readable and
    /// writable. Each border between two protections costs one mapping.
    ///
    /// # Panics
    /// Pages beyond the region.
    pub fn restrict(&self, pages: Range<u64>, to: MprotectFlags) -> Result<(), PagerError> {
        assert!(pages.end <= self.pages(), "beyond the region's end");
        let view = self.view(pages);
        // SAFETY: the region mapped this view. A thread that violates the protection gets a
        // signal.
        match unsafe { mprotect(with_exposed_provenance_mut(view.start), view.len(), to) } {
            Ok(()) => Ok(()),
            Err(Errno::NOMEM) => Err(PagerError::Mappings),
            Err(why) => Err(PagerError::System { doing: "restrict shared memory", why }),
        }
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u64 {
        self.count
    }

    /// Bytes of memory that its pages take.
    pub fn memory(&self) -> u64 {
        /// The unit of `st_blocks` in bytes.
        const BLOCK: u64 = 512;
        rustix::fs::fstat(&self.memory).map_or(0, |of| of.st_blocks as u64 * BLOCK)
    }

    /// Returns the address range and the page size.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The page at an address of the programs' view.
    pub fn page_at(&self, address: usize) -> Option<u64> {
        let page = (address.checked_sub(self.place.start)? / self.place.page_bytes) as u64;
        (page < self.pages()).then_some(page)
    }

    /// Returns the access that threads have to a page.
    pub fn access(&self, page: u64) -> Access {
        self.pages.get(page).access
    }

    /// Returns true if the memory has the page, because it was written or threads may access it.
    /// All other pages hold zeros. True for all pages that are not watched.
    pub fn has(&self, page: u64) -> bool {
        !self.is_watched || self.pages.get(page).is_there
    }

    /// Returns true if pages can be mapped read-only. If not (Linux before 6.4),
    /// [`allow`](Self::allow) cannot change access from `None` to `Read`: allow `Write` and then
    /// [`protect`](Self::protect).
    pub fn can_allow_read(&self) -> bool {
        self.userfault.maps_to_read
    }

    /// Readable, for poll(2), when threads are stopped.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.userfault.descriptor()
    }

    /// Appends the faults since the last call. Never waits. A fault may be reported although its
    /// page has been allowed in the meantime: [`wake`](Self::wake) its thread.
    pub fn faults(&mut self, faults: &mut Vec<Fault>) -> Result<(), PagerError> {
        let mut all = std::mem::take(&mut self.stopped);
        self.userfault
            .stopped(&mut all)
            .map_err(|why| PagerError::System { doing: "ask userfaultfd for faults", why })?;
        for stopped in all.drain(..) {
            let page = self.page_at(stopped.address).expect("only our pages are registered");
            let wants = if stopped.writes { Access::Write } else { Access::Read };
            let at = (stopped.address - self.place.start) % self.place.page_bytes;
            faults.push(Fault { page, at, wants, thread: stopped.thread });
        }
        self.stopped = all;
        Ok(())
    }

    /// Threads may do at least that with a page from now on, and those go on that were stopped.
    ///
    /// # Panics
    /// From `None` to `Read` where that cannot be: see [`can_allow_read`](
    /// Self::can_allow_read).
    pub fn allow(&mut self, page: u64, access: Access) -> Result<(), PagerError> {
        self.allow_all(page..page + 1, access)
    }

    /// The same of many.
    ///
    /// # Panics
    /// As [`allow`](Self::allow).
    pub fn allow_all(&mut self, pages: Range<u64>, access: Access) -> Result<(), PagerError> {
        self.each(pages, |region, pages, before| {
            if before.access >= access {
                // Under memory pressure the kernel forgets what was mapped.
                region.establish(pages.clone())?;
                return region.wake_all(pages);
            }
            if !before.is_there {
                return region.bring(pages, None, access);
            }
            region.is_allowed(pages.clone(), access);
            match before.access {
                Access::None => region.establish(pages),
                // The kernel may have let go of a page meanwhile: then it is mapped as it
                // should be at the next fault.
                _ => region.protect_view(pages, false),
            }
        })
    }

    /// Fills pages without access with these bytes, or with zeros if there are none, allows the
    /// access `to` them, and resumes stopped threads.
    ///
    /// # Panics
    /// If threads have access, if the bytes have another length, or as [`allow`](Self::allow).
    pub fn bring(
        &mut self,
        pages: Range<u64>,
        bytes: Option<&[u8]>,
        access: Access,
    ) -> Result<(), PagerError> {
        let is_used = |page: u64| self.pages.get(page).access != Access::None;
        assert!(!pages.clone().any(is_used), "pages that are used");
        self.is_allowed(pages.clone(), access);
        let writable = access == Access::Write;
        let view = self.view(pages.clone());
        assert!(bytes.is_none_or(|bytes| bytes.len() == view.len()), "as many bytes as pages have");
        let (system, bytes_of) = (rustix::param::page_size(), self.place.page_bytes);
        let (mut at, mut end) = (view.start, view.end);
        while at < view.end {
            let part = at - view.start..end - view.start;
            let page = pages.start + ((at - view.start) / bytes_of) as u64;
            let (first, count) = self.pages.alike(page..pages.end);
            if first.is_there {
                let run = at..self.view(page..page + count).end;
                let bytes = bytes.map(|bytes| &bytes[at - view.start..run.end - view.start]);
                self.refill(run.clone(), bytes, writable)?;
                (at, end) = (run.end, view.end);
                continue;
            }
            let done = match bytes {
                Some(bytes) => self.userfault.copy(at, &bytes[part], writable),
                None if writable => self.userfault.zero(at..end),
                None => self.userfault.copy(at, &ZEROS[..part.len().min(ZEROS.len())], writable),
            };
            match done {
                Ok(bytes) => (at, end) = (at + bytes, view.end),
                // The memory has it already.
                Err(Errno::EXIST) => {
                    let bytes = bytes.map_or(&ZEROS[..], |bytes| &bytes[at - view.start..]);
                    self.store(at, &bytes[..system], false)?;
                    self.map_view(at..at + system, writable)?;
                    (at, end) = (at + system, view.end);
                }
                // They are in several mappings.
                Err(Errno::NOENT) if end - at > system => end = at + system,
                Err(Errno::AGAIN) => {}
                Err(Errno::NOMEM) => return Err(PagerError::Memory),
                Err(why) => {
                    return Err(PagerError::System { doing: "bring pages by userfaultfd", why });
                }
            }
        }
        self.pages.change(pages, |page| page.is_there = true);
        Ok(())
    }

    /// Writes these bytes, or zeros, to pages that the memory has, and maps them: all with one
    /// call each, since a run of pages comes with one message.
    fn refill(
        &self,
        run: Range<usize>,
        bytes: Option<&[u8]>,
        writable: bool,
    ) -> Result<(), PagerError> {
        match bytes {
            Some(bytes) => self.store(run.start, bytes, true)?,
            None => {
                for at in run.clone().step_by(ZEROS.len()) {
                    self.store(at, &ZEROS[..ZEROS.len().min(run.end - at)], true)?;
                }
            }
        }
        self.map_view(run, writable)
    }

    /// Threads may do that with pages, as soon as those are mapped so.
    fn is_allowed(&mut self, pages: Range<u64>, access: Access) {
        assert!(
            access == Access::Write || self.userfault.maps_to_read,
            "this kernel cannot map pages for reading only"
        );
        self.pages.change(pages, |page| page.access = access);
    }

    /// Does something with neighbours of which the same is known.
    fn each(
        &mut self,
        mut pages: Range<u64>,
        mut does: impl FnMut(&mut Self, Range<u64>, Page) -> Result<(), PagerError>,
    ) -> Result<(), PagerError> {
        while !pages.is_empty() {
            let (first, count) = self.pages.alike(pages.clone());
            does(self, pages.start..pages.start + count, first)?;
            pages.start += count;
        }
        Ok(())
    }

    /// Threads that were stopped at a page try again.
    pub fn wake(&mut self, page: u64) -> Result<(), PagerError> {
        if self.access(page) > Access::None {
            // Under memory pressure the kernel forgets what was mapped.
            self.establish(page..page + 1)?;
        }
        self.wake_all(page..page + 1)
    }

    /// Threads that were stopped at pages which they may not use try again, and are stopped again.
    pub fn wake_all(&self, pages: Range<u64>) -> Result<(), PagerError> {
        self.wake_view(self.view(pages))
    }

    /// Threads that could write a page may only read it from now on.
    pub fn protect(&mut self, page: u64) -> Result<(), PagerError> {
        self.protect_all(page..page + 1)
    }

    /// The same of many.
    pub fn protect_all(&mut self, pages: Range<u64>) -> Result<(), PagerError> {
        self.each(pages, |region, pages, before| {
            if before.access < Access::Write {
                return Ok(());
            }
            region.pages.change(pages.clone(), |page| page.access = Access::Read);
            region.protect_view(pages, true)
        })
    }

    /// Withdraws all access to a page. Its content stays.
    pub fn forbid(&mut self, page: u64) -> Result<(), PagerError> {
        self.forbid_all(page..page + 1)
    }

    /// The same of many.
    pub fn forbid_all(&mut self, pages: Range<u64>) -> Result<(), PagerError> {
        if pages.clone().all(|page| self.pages.get(page).access == Access::None) {
            return Ok(());
        }
        self.pages.change(pages.clone(), |page| page.access = Access::None);
        let view = self.view(pages);
        // SAFETY: for shared memory this only unmaps the page; a thread that accesses it stops.
        unsafe {
            madvise(with_exposed_provenance_mut(view.start), view.len(), Advice::LinuxDontNeed)
        }
        .map_err(|why| PagerError::System { doing: "take a page from threads", why })
    }

    /// Threads may do nothing with a page from now on, and its memory is given back to the
    /// system: it holds zeros.
    pub fn discard(&mut self, page: u64) -> Result<(), PagerError> {
        self.discard_all(page..page + 1)
    }

    /// The same of many.
    ///
    /// # Panics
    /// Beyond the pages that there are.
    pub fn discard_all(&mut self, pages: Range<u64>) -> Result<(), PagerError> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let bytes = self.place.page_bytes as u64;
        assert!(pages.end <= self.pages(), "beyond the region's end");
        self.pages.forget(pages.clone());
        fallocate(&self.memory, flags, pages.start * bytes, (pages.end - pages.start) * bytes)
            .map_err(|why| PagerError::System { doing: "give pages back to the system", why })
    }

    /// Copies the content of a page. If threads write at the same time, the copy may have a part
    /// of their writes.
    ///
    /// # Panics
    /// `to` is longer than a page.
    pub fn read(&self, page: u64, to: &mut [u8]) {
        assert!(to.len() <= self.place.page_bytes, "more than a page");
        assert!(self.opened.is_none(), "there is no alias");
        let from = self.alias(page);
        // SAFETY: the alias is readable over the length of the region, and no Rust reference to it
        // exists. Bytes that other threads write at the same time are copied as bytes.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) }
    }

    /// Appends what pages hold. It takes no memory for pages that were never used.
    ///
    /// # Panics
    /// Beyond the pages that there are.
    pub fn read_all(&self, pages: Range<u64>, to: &mut Vec<u8>) -> Result<(), PagerError> {
        assert!(pages.end <= self.pages(), "beyond the region's end");
        let bytes = self.place.page_bytes as u64;
        let (mut at, end) = (pages.start * bytes, pages.end * bytes);
        to.reserve((end - at) as usize);
        while at < end {
            let space = &mut to.spare_capacity_mut()[..(end - at) as usize];
            match rustix::io::pread(&self.memory, space, at) {
                Ok((read, _)) if !read.is_empty() => {
                    let count = read.len();
                    // SAFETY: the read has initialized `count` bytes behind the vector's end.
                    unsafe { to.set_len(to.len() + count) };
                    at += count as u64;
                }
                Ok(_) => return Err(self.unread(at, Errno::IO)),
                Err(Errno::INTR) => {}
                Err(why) => return Err(self.unread(at, why)),
            }
        }
        Ok(())
    }

    fn unread(&self, offset: u64, why: Errno) -> PagerError {
        let bytes = self.place.page_bytes;
        PagerError::Unread { at: self.place.start + offset as usize / bytes * bytes, why }
    }

    /// Writes into a page, whatever the access of threads.
    ///
    /// # Panics
    /// Beyond the page's end.
    pub fn write(&mut self, page: u64, at: usize, bytes: &[u8]) -> Result<(), PagerError> {
        let end = at.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.place.page_bytes), "beyond the page's end");
        let is_there = self.pages.get(page).is_there;
        let view = self.view(page..page + 1);
        if !is_there && self.opened.is_none() {
            self.populate(view.clone())?;
        }
        self.store(view.start + at, bytes, true)?;
        if !is_there {
            self.pages.change(page..page + 1, |page| page.is_there = true);
        }
        Ok(())
    }

    /// Writes to where the programs' view has this address, whether the memory has that or not.
    fn store(&self, at: usize, bytes: &[u8], is_there: bool) -> Result<(), PagerError> {
        if self.opened.is_some() {
            return self.write_memory(at, bytes);
        }
        if !is_there {
            self.populate(at..at + bytes.len())?;
        }
        let to = with_exposed_provenance_mut::<u8>(at + ALIAS);
        // SAFETY: the alias can be written as long as the region, no Rust reference to it exists,
        // and the memory has the page.
        unsafe { bytes.as_ptr().copy_to_nonoverlapping(to, bytes.len()) };
        Ok(())
    }

    /// Returns the alias of a page: memory that can be read and written as long as the region
    /// lives, and that other threads may access at the same time.
    pub fn alias(&self, page: u64) -> *mut u8 {
        with_exposed_provenance_mut(self.view(page..page + 1).start + ALIAS)
    }

    pub(crate) fn view(&self, pages: Range<u64>) -> Range<usize> {
        let Place { start, page_bytes } = self.place;
        start + pages.start as usize * page_bytes..start + pages.end as usize * page_bytes
    }

    /// The memory gets what it has not of a part of the programs' view: an error, where a first
    /// write would be a signal.
    fn populate(&self, view: Range<usize>) -> Result<(), PagerError> {
        if self.opened.is_some() {
            return self.populate_memory(view);
        }
        let start = with_exposed_provenance_mut(view.start + ALIAS);
        // SAFETY: populates existing pages and changes no content.
        match unsafe { madvise(start, view.len(), Advice::LinuxPopulateWrite) } {
            Ok(()) => Ok(()),
            Err(Errno::NOMEM | Errno::FAULT) => Err(PagerError::Memory),
            Err(why) => Err(PagerError::System { doing: "get memory for a page", why }),
        }
    }

    /// Maps the missing pages of a range with equal state, according to their access, and resumes
    /// threads.
    fn establish(&mut self, pages: Range<u64>) -> Result<(), PagerError> {
        let writable = self.access(pages.start) == Access::Write;
        self.map_view(self.view(pages), writable)
    }

    fn map_view(&self, view: Range<usize>, writable: bool) -> Result<(), PagerError> {
        let system = rustix::param::page_size();
        let (mut at, mut end) = (view.start, view.end);
        while at < view.end {
            match self.userfault.map(at..end, writable) {
                Ok(bytes) => (at, end) = (at + bytes, view.end),
                // Already mapped with the right access. The kernel wakes no thread in this case.
                Err(Errno::EXIST) => {
                    self.wake_view(at..at + system)?;
                    (at, end) = (at + system, view.end);
                }
                // Swapped out since it was there.
                Err(Errno::FAULT) => self.populate(at..at + system)?,
                // They are in several mappings.
                Err(Errno::NOENT) if end - at > system => end = at + system,
                Err(Errno::AGAIN) => {}
                Err(Errno::NOMEM) => return Err(PagerError::Memory),
                Err(why) => {
                    return Err(PagerError::System { doing: "map a page by userfaultfd", why });
                }
            }
        }
        Ok(())
    }

    fn protect_view(&self, pages: Range<u64>, protects: bool) -> Result<(), PagerError> {
        let view = self.view(pages);
        let system = rustix::param::page_size();
        let (mut at, mut end) = (view.start, view.end);
        while at < view.end {
            match self.userfault.protect(at..end, protects) {
                Ok(()) => (at, end) = (end, view.end),
                // They are in several mappings, which older kernels take one by one.
                Err(Errno::NOENT) if end - at > system => end = at + system,
                Err(why) => {
                    return Err(PagerError::System { doing: "protect a page by userfaultfd", why });
                }
            }
        }
        Ok(())
    }

    fn wake_view(&self, view: Range<usize>) -> Result<(), PagerError> {
        self.userfault
            .wake(view)
            .map_err(|why| PagerError::System { doing: "wake threads by userfaultfd", why })
    }

    /// Both views are mapped so far, at least.
    fn map_until(&mut self, bytes: usize) -> Result<(), PagerError> {
        if bytes <= self.mapped {
            return Ok(());
        }
        let generous = (2 * self.mapped).max(MAPPED_MIN).max(bytes).min(ALIAS);
        match self.map_views(generous) {
            Err(PagerError::Mappings) if generous > bytes => self.map_views(bytes),
            done => done,
        }
    }

    fn map_views(&mut self, until: usize) -> Result<(), PagerError> {
        let start = self.place.start;
        let new = start + self.mapped..start + until;
        self.map(new.clone())?;
        let alias = new.start + ALIAS..new.end + ALIAS;
        if let Err(error) = self.map(alias) {
            self.unmap_view(new);
            return Err(error);
        }
        self.mapped = until;
        Ok(())
    }

    /// A part of one of the two views, still closed.
    pub(crate) fn map(&self, at: Range<usize>) -> Result<(), PagerError> {
        let start = with_exposed_provenance_mut(at.start);
        let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        let offset = match self.opened {
            Some(_) => at.start,
            None => (at.start - self.place.start) % ALIAS,
        };
        let taken = PagerError::Taken { start: at.start, bytes: at.len() };
        // SAFETY: replaces nothing.
        let mapped = unsafe {
            mmap(start, at.len(), ProtFlags::empty(), flags, &self.memory, offset as u64)
        };
        match mapped {
            Ok(mapped) if mapped == start => {}
            // A kernel that takes the flag for a hint.
            Ok(mapped) => {
                // SAFETY: this function has just created the mapping, and nothing else has its
                // address.
                let _ = unsafe { munmap(mapped, at.len()) };
                return Err(taken);
            }
            Err(Errno::EXIST) => return Err(taken),
            Err(Errno::NOMEM) => return Err(PagerError::Mappings),
            Err(why) => return Err(PagerError::System { doing: "map shared memory", why }),
        }
        // SAFETY: only excludes this mapping from forked children.
        unsafe { madvise(start, at.len(), Advice::LinuxDontFork) }
            .map_err(|why| PagerError::System { doing: "keep shared memory from children", why })
    }

    pub(crate) fn unmap_view(&self, at: Range<usize>) {
        // SAFETY: the region created this mapping. A thread that still uses it gets a signal.
        let _ = unsafe { munmap(with_exposed_provenance_mut(at.start), at.len()) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let opened: Vec<Range<u64>> = self.opened.iter().flat_map(Ranges::iter).collect();
        opened.into_iter().for_each(|it| self.unmap_view(it.start as usize..it.end as usize));
        let view = self.place.start..self.place.start + self.mapped;
        if !view.is_empty() {
            self.unmap_view(view.clone());
            self.unmap_view(view.start + ALIAS..view.end + ALIAS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_cannot_be_read_is_named() {
        let place = Place { start: 0x1500_0000_0000, page_bytes: 4096 };
        let mut region = Region::new(place, Stops::Programs).unwrap();
        region.grow(8).unwrap();
        region.write(7, 0, b"there").unwrap();
        let mut bytes = Vec::new();
        region.read_all(0..8, &mut bytes).unwrap();
        assert_eq!(&bytes[7 * 4096..][..5], b"there");
        // As if the memory of the last pages had been lost.
        ftruncate(&region.memory, 6 * 4096).unwrap();
        region.read_all(0..6, &mut bytes).unwrap();
        let at = place.start + 6 * 4096;
        let unread = Err(PagerError::Unread { at, why: Errno::IO });
        assert_eq!(region.read_all(0..8, &mut bytes), unread);
    }
}
