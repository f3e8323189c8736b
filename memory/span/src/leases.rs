//! Files that are mapped shared and read-only. The origin takes a read lease on such a file
//! (fcntl(2), F_SETLEASE), which the kernel grants only if no process has the file open for
//! writing. While the origin has the lease, other nodes keep copies of the mapping's pages, so
//! threads that read them stay on their nodes.
//!
//! A process that opens the file for writing, or truncates it, waits in the kernel until the lease
//! is returned. Before the origin does that, all nodes drop their copies. From then on the mapping
//! is like other shared memory: threads that touch it move to the origin.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use coherence::message::Page;
use coherence::ride::sweeps::Sweeps;

use crate::addresses::PAGE;
use crate::ranges::Ranges;

/// Leases that the origin has at once, at most: each costs a descriptor.
const LEASES_MAX: usize = 256;
/// Pages that one message brings, at most.
pub const TOGETHER_MAX: Page = 32;
/// An agent that does not sleep asks the kernel this often whether a lease is wanted back.
const LOOK_NS: u64 = 100_000;
/// fcntl(2)'s, which libc does not name everywhere.
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;
const F_OWNER_TID: i32 = 0;

/// `struct f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: i32,
    id: libc::pid_t,
}

/// The signal by which the kernel wants a lease back: the one of
/// [`OURS`](crate::signal::OURS), which no program has.
const RECALL: i32 = libc::SIGSYS;

/// The origin's leases.
#[derive(Debug, Default)]
pub struct Leases {
    all: Vec<Lease>,
    last: u64,
    /// Readable when the kernel wants a lease back.
    signals: Option<OwnedFd>,
    /// When they were looked at last.
    looked: u64,
}

#[derive(Debug)]
struct Lease {
    number: u64,
    /// The lease ends with it.
    file: File,
    /// The start of the mapping, and its offset in the file, in bytes.
    first: Page,
    offset: u64,
    /// The mapping's pages that have bytes of the file, as far as they are still mapped.
    pages: Ranges,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The mapping is not there yet.
    New,
    /// Other nodes may have copies.
    Held,
    /// Number of nodes that have not yet reported that they dropped their copies.
    Recalled { waits: usize },
}

impl Leases {
    /// Takes a lease, if there can be one, on the file of this name, of which `bytes` from `offset`
    /// on will be mapped at `first`.
    pub fn add(&mut self, name: &Path, first: Page, offset: u64, bytes: u64) {
        // To open a device would do something.
        let is_file = std::fs::metadata(name).is_ok_and(|of| of.is_file());
        if !is_file || self.all.len() >= LEASES_MAX {
            return;
        }
        let Ok(file) = File::open(name) else { return };
        if self.take(&file).is_err() {
            return;
        }
        // From here on it has this length.
        let length = file.metadata().map_or(0, |of| of.len()).saturating_sub(offset);
        let count = length.min(bytes).div_ceil(PAGE);
        if count > 0 {
            let mut pages = Ranges::default();
            pages.insert(first..first + count);
            self.last += 1;
            let (number, state) = (self.last, State::New);
            self.all.push(Lease { number, file, first, offset, pages, state });
        }
    }

    /// Takes a read lease. The kernel notifies this thread of a conflict.
    fn take(&mut self, file: &File) -> std::io::Result<()> {
        let checked = |result: i32| match result {
            -1 => Err(std::io::Error::last_os_error()),
            result => Ok(result),
        };
        let descriptor = file.as_raw_fd();
        if self.signals.is_none() {
            // SAFETY: this signal only, which is not the program's and which this thread blocks.
            let signals = unsafe {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&raw mut set);
                libc::sigaddset(&raw mut set, RECALL);
                libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC)
            };
            // SAFETY: the descriptor is new, and nothing else owns it.
            self.signals = Some(unsafe { OwnedFd::from_raw_fd(checked(signals)?) });
        }
        // SAFETY: asks for this thread's ID.
        let owner = Owner { kind: F_OWNER_TID, id: unsafe { libc::gettid() } };
        // SAFETY: fcntl(2) on our own descriptor; the owner is one.
        unsafe {
            checked(libc::fcntl(descriptor, F_SETOWN_EX, &raw const owner))?;
            checked(libc::fcntl(descriptor, F_SETSIG, RECALL))?;
            checked(libc::fcntl(descriptor, libc::F_SETLEASE, libc::F_RDLCK))?;
        }
        Ok(())
    }

    /// The mapping at these pages is there from now on. Returns those of which other nodes may have
    /// copies.
    pub fn offer(&mut self, pages: &Range<Page>) -> Vec<Range<Page>> {
        let is_new = |it: &Lease| it.state == State::New && pages.contains(&it.first);
        let Some(at) = self.all.iter().position(is_new) else { return Vec::new() };
        let lease = &mut self.all[at];
        if lease.is_wanted_back() {
            self.all.remove(at);
            return Vec::new();
        }
        lease.state = State::Held;
        lease.pages.iter().collect()
    }

    /// Returns those parts of a range of pages that have a lease.
    pub fn held(&self, pages: &Range<Page>) -> Vec<Range<Page>> {
        let held = self.all.iter().filter(|it| it.state == State::Held);
        held.flat_map(|it| it.pages.parts(pages)).collect()
    }

    /// Returns the bytes of these pages, and the number of their lease; nothing, if there is none
    /// any more.
    pub fn read(&self, pages: &Range<Page>) -> Option<(u64, std::io::Result<Vec<u8>>)> {
        let has = |it: &&Lease| it.state == State::Held && it.pages.covers(pages);
        let lease = self.all.iter().find(has)?;
        Some((lease.number, lease.read(pages)))
    }

    /// Returns the leases that the kernel wants back, if it has sent a notice.
    pub fn wanted_back(&mut self, now: u64) -> Option<Vec<u64>> {
        if now < self.looked + LOOK_NS || !self.has_notice() {
            return None;
        }
        self.looked = now;
        let is = |it: &&Lease| it.state == State::Held && it.is_wanted_back();
        Some(self.all.iter().filter(is).map(|it| it.number).collect())
    }

    /// So many other nodes are to drop their copies of the pages that are returned.
    pub fn recall(&mut self, number: u64, others: usize) -> Vec<Range<Page>> {
        let lease = self.all.iter_mut().find(|it| it.number == number);
        let Some(lease) = lease else { return Vec::new() };
        let ranges: Vec<Range<Page>> = lease.pages.iter().collect();
        lease.state = State::Recalled { waits: ranges.len() * others };
        ranges
    }

    /// A node has dropped its copies of one of these ranges. After the last one the lease ends.
    pub fn acknowledge_drop(&mut self, number: u64) {
        self.all.retain_mut(|it| match &mut it.state {
            State::Recalled { waits } if it.number == number => {
                *waits = waits.saturating_sub(1);
                *waits > 0
            }
            _ => true,
        });
    }

    /// These pages are about to be something else.
    pub fn end(&mut self, pages: &Range<Page>, are_unmapped: bool) {
        self.all.retain_mut(|lease| {
            // The addresses of a new one are emptied before it is mapped there.
            if lease.state != State::New || are_unmapped {
                lease.pages.remove(pages.clone());
            }
            lease.pages.count() > 0
        });
    }

    /// To poll.
    pub fn descriptor(&self) -> Option<&OwnedFd> {
        self.signals.as_ref().filter(|_| !self.all.is_empty())
    }

    /// Returns true if the kernel has sent a notice since the last time.
    fn has_notice(&self) -> bool {
        let mut found = false;
        let mut information = [0; size_of::<libc::signalfd_siginfo>()];
        if let Some(signals) = self.descriptor() {
            while rustix::io::read(signals, &mut information).is_ok() {
                found = true;
            }
        }
        found
    }
}

impl Lease {
    /// Returns true if a process waits for the end of the lease.
    fn is_wanted_back(&self) -> bool {
        // SAFETY: asks about our own descriptor.
        let lease = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_GETLEASE) };
        lease != libc::F_RDLCK
    }

    /// Reads pages of the mapping; zeros are behind the end of the file.
    fn read(&self, pages: &Range<Page>) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; ((pages.end - pages.start) * PAGE) as usize];
        let offset = self.offset + (pages.start - self.first) * PAGE;
        let mut at = 0;
        while at < bytes.len() {
            match self.file.read_at(&mut bytes[at..], offset + at as u64) {
                Ok(0) => break,
                Ok(count) => at += count,
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        Ok(bytes)
    }
}

/// A node's copies of pages of leased files.
#[derive(Debug, Default)]
pub struct Copies {
    /// Pages that the origin sends.
    pub leased: Ranges,
    /// Pages that were asked for and are not here yet.
    pub asked: Ranges,
    /// Successive reads of threads in these pages, for the prefetch.
    sweeps: Sweeps,
    /// Some are here.
    pub are_here: bool,
}

impl Copies {
    /// Returns true if the origin sends this page.
    pub fn has(&self, page: Page) -> bool {
        self.leased.covers(&(page..page + 1))
    }

    /// A thread needs this page, which is not here. Returns the pages to ask for, if it has not
    /// been asked for.
    pub fn ask(&mut self, page: Page, is_here: impl Fn(Page) -> bool) -> Option<Range<Page>> {
        let is_asked = |asked: &Ranges, page| asked.covers(&(page..page + 1));
        if is_asked(&self.asked, page) {
            return None;
        }
        let (leased, asked) = (&self.leased, &self.asked);
        let can = |page: Page| {
            leased.covers(&(page..page + 1)) && !is_asked(asked, page) && !is_here(page)
        };
        let wanted = self.sweeps.first_use(page, TOGETHER_MAX, can, |_| false).ready;
        self.asked.insert(wanted.clone());
        Some(wanted)
    }

    /// These pages are about to be something else. Returns those that were leased.
    pub fn end(&mut self, pages: &Range<Page>) -> Vec<Range<Page>> {
        let met: Vec<Range<Page>> = self.leased.parts(pages).collect();
        self.leased.remove(pages.clone());
        self.asked.remove(pages.clone());
        met
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::slice;

    #[test]
    fn a_lease_is_wanted_back_when_somebody_opens_the_file_to_write() {
        let path = std::env::temp_dir().join(format!("nagaya-lease-{}", std::process::id()));
        std::fs::write(&path, "before").unwrap();
        let file = File::open(&path).unwrap();
        let mut leases = Leases::default();
        // SAFETY: blocks a signal for this thread, which is to get it.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut set, RECALL);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        }
        let written = File::options().write(true).open(&path).unwrap();
        assert!(leases.take(&file).is_err(), "somebody may write");
        drop(written);
        leases.add(&path, 10, 2, 3 * PAGE);
        assert!(leases.read(&(10..11)).is_none(), "it is not mapped");
        assert!(leases.held(&(10..11)).is_empty());
        assert_eq!(leases.offer(&(5..20)), slice::from_ref(&(10..11)));
        let (number, bytes) = leases.read(&(10..11)).unwrap();
        assert_eq!(bytes.unwrap()[..5], *b"fore\0");
        assert_eq!(leases.held(&(5..20)), slice::from_ref(&(10..11)));
        assert_eq!(leases.wanted_back(LOOK_NS), None);
        let writer = std::thread::spawn({
            let path = path.clone();
            move || std::fs::write(path, "after").unwrap()
        });
        let mut now = LOOK_NS;
        let wanted = loop {
            now += LOOK_NS;
            match leases.wanted_back(now) {
                Some(wanted) => break wanted,
                None => std::thread::yield_now(),
            }
        };
        assert!(wanted == [number] && !writer.is_finished());
        assert_eq!(leases.recall(number, 2), slice::from_ref(&(10..11)));
        assert!(leases.read(&(10..11)).is_none());
        leases.acknowledge_drop(number);
        assert!(!writer.is_finished(), "another node has copies");
        leases.acknowledge_drop(number);
        writer.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn sequential_pages_are_requested_once_and_ahead() {
        let mut copies = Copies::default();
        copies.leased.insert(100..110);
        assert_eq!(copies.ask(100, |_| false), Some(100..101));
        assert_eq!(copies.ask(100, |_| false), None);
        assert_eq!(copies.ask(101, |_| false), Some(101..103));
        assert_eq!(copies.ask(103, |page| page == 105), Some(103..105));
        assert_eq!(copies.end(&(90..101)), slice::from_ref(&(100..101)));
        assert!(!copies.has(100));
        copies.asked.remove(101..110);
        assert_eq!(copies.ask(109, |_| false), Some(109..110), "nothing is behind the end");
    }
}
