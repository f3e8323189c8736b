//! Memory of a file that other processes map at fixed addresses: an address always shows the same
//! page of the file. The code that installs and removes pages reads and writes the file. Only
//! *watched* ranges stop threads, at pages without access.
//!
//! A page of the file exists also where it is not mapped, or where another mapping lies at its
//! address. Foreign mappings stay unchanged.

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::with_exposed_provenance_mut;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mprotect};

use crate::access::{Access, Fault, Stops};
use crate::error::PagerError;
use crate::userfault::{Stopped, Userfault};

/// Bytes of a page: the system's.
pub const PAGE: u64 = 4096;
/// The content of several zero pages at once.
static ZEROS: [u8; 16 * PAGE as usize] = [0; 16 * PAGE as usize];

/// The state of a page. A page without a state has no access.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Page {
    access: Access,
    /// The file has something there.
    is_there: bool,
    /// Its address shows the file's page.
    is_mapped: bool,
}

const NONE: Page = Page { access: Access::None, is_there: false, is_mapped: true };

/// The file, and the access of threads to its pages.
pub struct Shared {
    userfault: Userfault,
    file: OwnedFd,
    /// The address of the file's first page.
    base: usize,
    pages: HashMap<u64, Page>,
    stopped: Vec<Stopped>,
}

impl Shared {
    /// Nothing of it is watched.
    pub fn new(file: BorrowedFd<'_>, base: usize, stops: Stops) -> Result<Self, PagerError> {
        let file = rustix::io::fcntl_dupfd_cloexec(file, 0).map_err(failed("copy a descriptor"))?;
        let userfault = Userfault::new(stops)?;
        Ok(Self { userfault, file, base, pages: HashMap::new(), stopped: Vec::new() })
    }

    /// Starts to stop threads in this part of a mapping of the file, which must be at the file's
    /// fixed address. Pages that are already mapped stay mapped.
    pub fn watch(&self, at: Range<usize>) -> Result<(), PagerError> {
        match self.userfault.register(at) {
            Ok(()) => Ok(()),
            Err(Errno::NOMEM) => Err(PagerError::Mappings),
            Err(why) => Err(failed("register shared memory with userfaultfd")(why)),
        }
    }

    /// Returns true if pages can be mapped read-only: see
    /// [`Region::can_allow_read`](crate::Region::can_allow_read).
    pub fn can_allow_read(&self) -> bool {
        self.userfault.maps_to_read
    }

    /// Readable, for poll(2), when threads are stopped.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.userfault.descriptor()
    }

    /// Appends the faults since the last call. Never waits.
    pub fn faults(&mut self, faults: &mut Vec<Fault>) -> Result<(), PagerError> {
        let mut all = std::mem::take(&mut self.stopped);
        self.userfault.stopped(&mut all).map_err(failed("ask userfaultfd for faults"))?;
        for Stopped { address, writes, thread } in all.drain(..) {
            let offset = address - self.base;
            let wants = if writes { Access::Write } else { Access::Read };
            let (page, at) = (offset as u64 / PAGE, offset % PAGE as usize);
            faults.push(Fault { page, at, wants, thread });
        }
        self.stopped = all;
        Ok(())
    }

    /// The parts of a range in which the file has pages.
    pub fn held(&self, pages: Range<u64>) -> Result<Vec<Range<u64>>, PagerError> {
        let (mut at, end) = (pages.start * PAGE, pages.end * PAGE);
        let mut held = Vec::new();
        while at < end {
            let data = match seek(&self.file, SeekFrom::Data(at)) {
                Ok(data) if data < end => data,
                Ok(_) | Err(Errno::NXIO) => break,
                Err(why) => return Err(failed("look for pages in shared memory")(why)),
            };
            // SEEK_HOLE would look at all that the file has beyond the end, too.
            at = data + PAGE;
            while at < end && seek(&self.file, SeekFrom::Data(at)) == Ok(at) {
                at += PAGE;
            }
            held.push(data / PAGE..at / PAGE);
        }
        Ok(held)
    }

    /// Threads may use these pages, which the file holds, as they do already.
    pub fn are_used(&mut self, pages: Range<u64>) {
        let used = Page { access: Access::Write, is_there: true, is_mapped: true };
        self.pages.extend(pages.map(|page| (page, used)));
    }

    /// Of a page that is not mapped here, but something else at its address, the file holds this.
    pub fn is_apart(&mut self, page: u64, bytes: &[u8]) -> Result<(), PagerError> {
        let apart = Page { access: Access::Write, is_there: true, is_mapped: false };
        self.pages.insert(page, apart);
        self.store(page, bytes)
    }

    /// Returns true if the page has a state that was not forgotten.
    pub fn knows(&self, page: u64) -> bool {
        self.pages.contains_key(&page)
    }

    fn of(&self, page: u64) -> Page {
        self.pages.get(&page).copied().unwrap_or(NONE)
    }

    fn at(&self, pages: Range<u64>) -> Range<usize> {
        let at = |page: u64| self.base + (page * PAGE) as usize;
        at(pages.start)..at(pages.end)
    }

    /// Allows threads `access` or more to a page, and resumes those that were stopped there.
    pub fn allow(&mut self, page: u64, access: Access) -> Result<(), PagerError> {
        self.allow_all(page..page + 1, access)
    }

    /// The same of many.
    pub fn allow_all(&mut self, pages: Range<u64>, access: Access) -> Result<(), PagerError> {
        self.each(pages, |shared, pages, before| {
            if !before.is_there {
                return shared.bring_all(pages, None, access);
            }
            let access = access.max(before.access);
            shared.are(pages.clone(), Page { access, ..before });
            if before.is_mapped { shared.show(pages, access) } else { Ok(()) }
        })
    }

    /// Fills a page with `bytes`, or with zeros, allows threads `access` to it, and resumes those
    /// that were stopped there.
    pub fn bring(
        &mut self,
        page: u64,
        bytes: Option<&[u8]>,
        access: Access,
    ) -> Result<(), PagerError> {
        self.bring_all(page..page + 1, bytes, access)
    }

    /// The same of many.
    ///
    /// # Panics
    /// The bytes have another length than the pages.
    pub fn bring_all(
        &mut self,
        pages: Range<u64>,
        bytes: Option<&[u8]>,
        access: Access,
    ) -> Result<(), PagerError> {
        let first = pages.start;
        let all = (pages.end - first) * PAGE;
        assert!(bytes.is_none_or(|it| it.len() as u64 == all), "as many bytes as pages have");
        self.each(pages, |shared, pages, before| {
            let part = ((pages.start - first) * PAGE) as usize;
            let length = ((pages.end - pages.start) * PAGE) as usize;
            let bytes = bytes.map(|bytes| &bytes[part..part + length]);
            let is_mapped = before.is_mapped;
            shared.are(pages.clone(), Page { access, is_there: true, is_mapped });
            if is_mapped && !before.is_there {
                return shared.put(pages, bytes, access);
            }
            shared.store_all(pages.clone(), bytes)?;
            if is_mapped { shared.show(pages, access) } else { Ok(()) }
        })
    }

    /// Puts bytes or zeros where the file has nothing, and maps them.
    fn put(
        &self,
        pages: Range<u64>,
        bytes: Option<&[u8]>,
        access: Access,
    ) -> Result<(), PagerError> {
        let (mut page, mut end) = (pages.start, pages.end);
        while page < pages.end {
            let part =
                ((page - pages.start) * PAGE) as usize..((end - pages.start) * PAGE) as usize;
            let part = match bytes {
                Some(bytes) => &bytes[part],
                None => &ZEROS[..part.len().min(ZEROS.len())],
            };
            match self.userfault.copy(self.at(page..end).start, part, access == Access::Write) {
                Ok(count) => (page, end) = (page + count as u64 / PAGE, pages.end),
                // The file has the page already, or no mapping covers it.
                Err(Errno::EXIST | Errno::NOENT) if end > page + 1 => end = page + 1,
                Err(Errno::EXIST | Errno::NOENT) => {
                    self.store(page, part)?;
                    self.show(page..page + 1, access)?;
                    (page, end) = (page + 1, pages.end);
                }
                Err(Errno::AGAIN) => {}
                Err(Errno::NOMEM) => return Err(PagerError::Memory),
                Err(why) => return Err(failed("bring pages by userfaultfd")(why)),
            }
        }
        Ok(())
    }

    /// Maps pages of the file with this access where threads wait for them, and resumes the
    /// threads.
    fn show(&self, pages: Range<u64>, access: Access) -> Result<(), PagerError> {
        let writable = access == Access::Write;
        let (mut page, mut end) = (pages.start, pages.end);
        while page < pages.end {
            match self.userfault.map(self.at(page..end), writable) {
                Ok(bytes) => (page, end) = (page + bytes as u64 / PAGE, pages.end),
                // It is mapped already, perhaps for reading only.
                Err(Errno::EXIST) => {
                    if writable {
                        self.set_protection(page..page + 1, false)?;
                    }
                    (page, end) = (page + 1, pages.end);
                }
                // No mapping covers some of the pages.
                Err(Errno::NOENT) if end > page + 1 => end = page + 1,
                Err(Errno::NOENT) => (page, end) = (page + 1, pages.end),
                // Somebody has given the memory back.
                Err(Errno::FAULT) => self.store(page, &ZEROS[..PAGE as usize])?,
                Err(Errno::AGAIN) => {}
                Err(Errno::NOMEM) => return Err(PagerError::Memory),
                Err(why) => return Err(failed("map a page by userfaultfd")(why)),
            }
        }
        self.wake(pages)
    }

    /// Write-protects pages, or ends that. Unmapped pages stay as they are.
    fn set_protection(&self, pages: Range<u64>, protects: bool) -> Result<(), PagerError> {
        match self.userfault.protect(self.at(pages.clone()), protects) {
            Ok(()) => Ok(()),
            Err(Errno::NOENT) if pages.end - pages.start > 1 => {
                pages.into_iter().try_for_each(|it| self.set_protection(it..it + 1, protects))
            }
            Err(Errno::NOENT) => Ok(()),
            Err(why) => Err(failed("protect a page by userfaultfd")(why)),
        }
    }

    /// Withdraws write access to a page.
    pub fn protect(&mut self, page: u64) -> Result<(), PagerError> {
        self.protect_all(page..page + 1)
    }

    /// The same of many.
    pub fn protect_all(&mut self, pages: Range<u64>) -> Result<(), PagerError> {
        self.each(pages, |shared, pages, before| {
            if before.access < Access::Write {
                return Ok(());
            }
            shared.are(pages.clone(), Page { access: Access::Read, ..before });
            if before.is_mapped { shared.set_protection(pages, true) } else { Ok(()) }
        })
    }

    /// Withdraws all access to a page. Its content in the file stays.
    pub fn forbid(&mut self, page: u64) -> Result<(), PagerError> {
        self.forbid_all(page..page + 1)
    }

    /// The same of many.
    pub fn forbid_all(&mut self, pages: Range<u64>) -> Result<(), PagerError> {
        self.each(pages, |shared, pages, before| {
            shared.are(pages.clone(), Page { access: Access::None, ..before });
            if !before.is_mapped || before.access == Access::None {
                return Ok(());
            }
            let at = shared.at(pages);
            let start = with_exposed_provenance_mut(at.start);
            // SAFETY: for shared memory this only unmaps the page; a thread that accesses it
            // stops.
            match unsafe { madvise(start, at.len(), Advice::LinuxDontNeed) } {
                // An unmapped range needs no change.
                Ok(()) | Err(Errno::NOMEM) => Ok(()),
                Err(why) => Err(failed("take a page from threads")(why)),
            }
        })
    }

    /// Returns the memory of pages to the system that threads may not use: they hold zeros.
    ///
    /// # Panics
    /// Threads may use some.
    pub fn free(&mut self, pages: Range<u64>) -> Result<(), PagerError> {
        self.each(pages, |shared, pages, before| {
            assert_eq!(before.access, Access::None, "pages that are used are freed");
            shared.are(pages.clone(), Page { is_there: false, ..before });
            shared.punch(pages)
        })
    }

    /// Calls `does` with each run of neighbours of which the same is known.
    fn each(
        &mut self,
        mut pages: Range<u64>,
        mut does: impl FnMut(&mut Self, Range<u64>, Page) -> Result<(), PagerError>,
    ) -> Result<(), PagerError> {
        while !pages.is_empty() {
            let first = self.of(pages.start);
            let end = (pages.start + 1..pages.end).find(|&page| self.of(page) != first);
            let end = end.unwrap_or(pages.end);
            does(self, pages.start..end, first)?;
            pages.start = end;
        }
        Ok(())
    }

    /// From now on this is known of these pages.
    fn are(&mut self, pages: Range<u64>, page: Page) {
        self.pages.extend(pages.map(|it| (it, page)));
    }

    /// Removes these pages from the file, forgets their state, and withdraws all access to the
    /// watched ones.
    pub fn discard(&mut self, pages: Range<u64>) -> Result<(), PagerError> {
        self.forget(pages.clone());
        self.punch(pages)
    }

    fn punch(&self, pages: Range<u64>) -> Result<(), PagerError> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (at, bytes) = (pages.start * PAGE, (pages.end - pages.start) * PAGE);
        fallocate(&self.file, flags, at, bytes).map_err(failed("give pages back to the system"))
    }

    /// Nothing is known of these pages any more.
    pub fn forget(&mut self, pages: Range<u64>) {
        if pages.end - pages.start < self.pages.len() as u64 {
            pages.for_each(|page| {
                self.pages.remove(&page);
            });
        } else {
            self.pages.retain(|page, _| !pages.contains(page));
        }
    }

    /// Writes the content of a page, whatever the access of threads.
    pub fn write(&mut self, page: u64, bytes: &[u8]) -> Result<(), PagerError> {
        let before = self.of(page);
        self.pages.insert(page, Page { is_there: true, ..before });
        self.store(page, bytes)
    }

    fn store_all(&self, pages: Range<u64>, bytes: Option<&[u8]>) -> Result<(), PagerError> {
        match bytes {
            Some(bytes) => self.store(pages.start, bytes),
            None => pages.into_iter().try_for_each(|it| self.store(it, &ZEROS[..PAGE as usize])),
        }
    }

    fn store(&self, page: u64, mut bytes: &[u8]) -> Result<(), PagerError> {
        let mut at = page * PAGE;
        while !bytes.is_empty() {
            match rustix::io::pwrite(&self.file, bytes, at) {
                Ok(count) => (bytes, at) = (&bytes[count..], at + count as u64),
                Err(Errno::INTR) => {}
                Err(Errno::NOMEM | Errno::NOSPC) => return Err(PagerError::Memory),
                Err(why) => return Err(failed("write shared memory")(why)),
            }
        }
        Ok(())
    }

    /// Withdraws all access to these watched pages, so threads stop there. Their content in the
    /// file stays.
    pub fn stop(&self, pages: Range<u64>) -> Result<(), PagerError> {
        let at = self.at(pages);
        // SAFETY: of shared memory it only ends the mapping.
        unsafe { madvise(with_exposed_provenance_mut(at.start), at.len(), Advice::LinuxDontNeed) }
            .map_err(failed("take pages from threads"))
    }

    fn unread(&self, offset: u64, why: Errno) -> PagerError {
        PagerError::Unread { at: self.base + (offset / PAGE * PAGE) as usize, why }
    }

    /// Copies what pages of the file hold.
    pub fn copy(&self, pages: Range<u64>, to: &mut [u8]) -> Result<(), PagerError> {
        let (at, mut done) = (pages.start * PAGE, 0);
        assert_eq!(to.len() as u64, (pages.end - pages.start) * PAGE);
        while done < to.len() {
            match rustix::io::pread(&self.file, &mut to[done..], at + done as u64) {
                Ok(0) => return Err(self.unread(at + done as u64, Errno::IO)),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(why) => return Err(self.unread(at + done as u64, why)),
            }
        }
        Ok(())
    }

    /// Maps other memory over these pages, for which no faults are reported then. Stopped threads
    /// resume with that memory.
    pub fn lay(
        &self,
        pages: Range<u64>,
        file: BorrowedFd<'_>,
        offset: u64,
        protection: ProtFlags,
    ) -> Result<(), PagerError> {
        self.map(pages.clone(), file, offset, protection)?;
        self.wake(pages)
    }

    /// Maps the file again over foreign memory.
    pub fn cover(&self, pages: Range<u64>) -> Result<(), PagerError> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        self.map(pages.clone(), self.file.as_fd(), pages.start * PAGE, protection)?;
        let at = self.at(pages);
        // SAFETY: changes what a core file holds.
        unsafe { madvise(with_exposed_provenance_mut(at.start), at.len(), Advice::LinuxDontDump) }
            .map_err(failed("keep memory from core files"))
    }

    fn map(
        &self,
        pages: Range<u64>,
        file: BorrowedFd<'_>,
        offset: u64,
        protection: ProtFlags,
    ) -> Result<(), PagerError> {
        let at = self.at(pages);
        let start = with_exposed_provenance_mut(at.start);
        let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: `replace` requires that the memory at `at` may be replaced. Forked children do
        // not get it.
        unsafe {
            match mmap(start, at.len(), protection, flags, file, offset) {
                Ok(_) => {}
                Err(Errno::NOMEM) => return Err(PagerError::Mappings),
                Err(why) => return Err(failed("map other memory in its place")(why)),
            }
            madvise(start, at.len(), Advice::LinuxDontFork)
                .map_err(failed("keep memory from forks"))
        }
    }

    /// Threads that were stopped there try again.
    pub fn wake(&self, pages: Range<u64>) -> Result<(), PagerError> {
        self.userfault.wake(self.at(pages)).map_err(failed("wake threads by userfaultfd"))
    }

    /// Makes an access to a page raise SIGSEGV, or ends that.
    pub fn close(&self, page: u64, closed: bool) -> Result<(), PagerError> {
        let at = self.at(page..page + 1);
        let to = if closed {
            MprotectFlags::empty()
        } else {
            MprotectFlags::READ | MprotectFlags::WRITE
        };
        // SAFETY: a thread that violates the protection gets a signal.
        match unsafe { mprotect(with_exposed_provenance_mut(at.start), at.len(), to) } {
            Ok(()) => self.wake(page..page + 1),
            Err(Errno::NOMEM) => Err(PagerError::Mappings),
            Err(why) => Err(failed("close a page")(why)),
        }
    }
}

fn failed(doing: &'static str) -> impl Fn(Errno) -> PagerError {
    move |why| PagerError::System { doing, why }
}

impl AsFd for Shared {
    /// The file's.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    const PAGES: usize = 8;

    struct Mapped {
        shared: Shared,
        at: usize,
    }

    /// A file of some pages, all of which are mapped here and none is watched.
    fn mapped() -> Mapped {
        let file = rustix::fs::memfd_create("shared", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, PAGES as u64 * PAGE).unwrap();
        // SAFETY: a new mapping.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGES * PAGE as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        } as usize;
        Mapped { shared: Shared::new(file.as_fd(), at, Stops::Programs).unwrap(), at }
    }

    impl Mapped {
        fn byte(&self, page: usize) -> *mut u8 {
            with_exposed_provenance_mut(self.at + page * PAGE as usize)
        }

        /// A thread accesses a byte; each fault is resolved with the access in `answers`.
        fn faults(&mut self, page: usize, write: Option<u8>, wants: &[Access]) -> u8 {
            let byte = self.byte(page).expose_provenance();
            let other = std::thread::spawn(move || {
                let byte = with_exposed_provenance_mut::<u8>(byte);
                // SAFETY: mapped as long as the test.
                unsafe {
                    write.into_iter().for_each(|value| byte.write_volatile(value));
                    byte.read_volatile()
                }
            });
            let mut seen = Vec::new();
            while !other.is_finished() || seen.len() < wants.len() {
                let mut faults = Vec::new();
                self.shared.faults(&mut faults).unwrap();
                for fault in faults {
                    assert_eq!(fault.page, page as u64);
                    self.shared.allow(fault.page, fault.wants).unwrap();
                    seen.push(fault.wants);
                }
            }
            assert_eq!(seen, wants);
            other.join().unwrap()
        }
    }

    #[test]
    fn existing_copies_continue_and_taken_ones_stop() {
        let mut it = mapped();
        // SAFETY: the test has mapped this page, and no other thread uses it.
        unsafe { it.byte(2).write(7) };
        it.shared.watch(it.at..it.at + 4 * PAGE as usize).unwrap();
        assert_eq!(it.shared.held(0..8).unwrap(), vec![2..3; 1]);
        it.shared.are_used(2..3);
        assert_eq!(it.faults(2, None, &[]), 7);
        assert_eq!(it.faults(1, Some(5), &[Access::Write]), 5);
        assert_eq!(it.faults(5, Some(5), &[]), 5, "it is not watched");
        it.shared.protect(2).unwrap();
        assert_eq!(it.faults(2, None, &[]), 7);
        assert_eq!(it.faults(2, Some(8), &[Access::Write]), 8);
        it.shared.forbid(2).unwrap();
        let mut bytes = vec![0; PAGE as usize];
        it.shared.copy(2..3, &mut bytes).unwrap();
        assert_eq!(bytes[0], 8);
        assert_eq!(it.faults(2, None, &[Access::Read]), 8);
        it.shared.forbid(2).unwrap();
        it.shared.bring(2, Some(&[9; PAGE as usize]), Access::Read).unwrap();
        assert_eq!(it.faults(2, None, &[]), 9);
        it.shared.discard(0..4).unwrap();
        assert_eq!(it.faults(2, None, &[Access::Read]), 0);
        assert_eq!(it.shared.held(0..4).unwrap(), vec![2..3; 1]);
    }

    #[test]
    fn memory_elsewhere_is_unchanged() {
        let mut it = mapped();
        let ours = it.byte(3).cast();
        // SAFETY: replaces a page of the test's mapping that no other thread uses.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(libc::mmap(ours, PAGE as usize, protection, flags, -1, 0), ours);
            it.byte(3).write(1);
        }
        it.shared.is_apart(3, &[2; PAGE as usize]).unwrap();
        it.shared.protect(3).unwrap();
        it.shared.forbid(3).unwrap();
        it.shared.allow(3, Access::Write).unwrap();
        it.shared.bring(3, Some(&[4; PAGE as usize]), Access::Write).unwrap();
        // SAFETY: the test has mapped this page.
        assert_eq!(unsafe { it.byte(3).read() }, 1);
        let mut bytes = vec![0; PAGE as usize];
        it.shared.copy(3..4, &mut bytes).unwrap();
        assert_eq!(bytes[0], 4);
        // An unmapped page gives the same error. SAFETY: the test has mapped this page, and no
        // other thread uses it.
        unsafe { libc::munmap(it.byte(6).cast(), PAGE as usize) };
        it.shared.are_used(6..7);
        it.shared.protect(6).unwrap();
        it.shared.forbid(6).unwrap();
        it.shared.bring(6, None, Access::Write).unwrap();
        it.shared.allow(6, Access::Write).unwrap();
    }

    #[test]
    fn pages_that_are_handled_together_are_each_as_they_would_be_alone() {
        let mut it = mapped();
        // SAFETY: the test has mapped this page, and no other thread uses it.
        unsafe { it.byte(1).write(1) };
        it.shared.watch(it.at..it.at + 8 * PAGE as usize).unwrap();
        it.shared.are_used(1..2);
        it.shared.is_apart(4, &[4; PAGE as usize]).unwrap();
        it.shared.forbid_all(0..8).unwrap();
        let bytes: Vec<u8> = (0..8u8).flat_map(|page| [page + 10; PAGE as usize]).collect();
        it.shared.bring_all(0..8, Some(&bytes), Access::Read).unwrap();
        for page in [0, 1, 3, 7] {
            assert_eq!(it.faults(page, None, &[]), page as u8 + 10);
        }
        let mut apart = vec![0; PAGE as usize];
        it.shared.copy(4..5, &mut apart).unwrap();
        assert_eq!(apart[0], 14);
        it.shared.allow_all(0..8, Access::Write).unwrap();
        assert_eq!(it.faults(5, Some(50), &[]), 50);
        it.shared.protect_all(0..8).unwrap();
        assert_eq!(it.faults(5, None, &[]), 50);
        assert_eq!(it.faults(6, Some(60), &[Access::Write]), 60);
        it.shared.forbid_all(0..4).unwrap();
        assert_eq!(it.faults(2, None, &[Access::Read]), 12);
        it.shared.forbid_all(0..4).unwrap();
        it.shared.free(0..4).unwrap();
        assert_eq!(it.shared.held(0..8).unwrap(), vec![4..8; 1], "their memory is the system's");
        it.shared.allow_all(0..4, Access::Write).unwrap();
        assert_eq!(it.faults(2, None, &[]), 0);
        assert_eq!(it.faults(7, None, &[]), 17, "others stay as they were");
    }

    #[test]
    fn memory_freed_during_use_reads_as_zeros() {
        let mut it = mapped();
        it.shared.watch(it.at..it.at + PAGE as usize).unwrap();
        it.shared.bring(0, Some(&[3; PAGE as usize]), Access::Write).unwrap();
        // SAFETY: punches a hole.
        let hole = unsafe { libc::madvise(it.byte(0).cast(), PAGE as usize, libc::MADV_REMOVE) };
        assert_eq!(hole, 0);
        assert_eq!(it.faults(0, None, &[Access::Read]), 0);
    }
}
