//! VCL: a window of memory that processes share, whatever it is made of.
//!
//! ```text
//! header │ member table │ messages: a receive buffer for each member │ plain memory
//! ```
//! Each process may have it at another address, so the window holds offsets, never
//! pointers. A window is trusted no further than its bounds: what others write into it can
//! make results wrong, but no access outside. (Who may map it may also shrink the file
//! below it; only anonymous memory is sealed against that.)

use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::WindowError;
use crate::header::{Agreed, Header, Plan};
use crate::mapped::{Mapped, size_of_ring};
use crate::memory::{Memory, PAGE_SIZE};
use crate::ofd;
use crate::ring::{LINE_SIZE, LINES_MAX};

/// Bytes of the header.
const HEADER_SIZE: usize = PAGE_SIZE;
/// Bytes of an entry of the member table: two lines.
pub const ENTRY_SIZE: usize = 2 * LINE_SIZE;
/// Most members of a window.
pub const MEMBERS_MAX: u16 = 4096;
/// Fewest lines of a ring.
const LINES_MIN: u32 = 4;

/// A window, mapped.
#[derive(Debug)]
pub struct Window {
    base: NonNull<u8>,
    memory: Memory,
    plan: Plan,
}

// SAFETY: the memory is shared by design, and reached through atomics and copies.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Maps the memory; makes a window of it if it holds nothing and there is a plan. A
    /// window that is there must have the same plan. Several processes may do so at once.
    pub fn open(memory: Memory, plan: Option<Plan>) -> Result<Self, WindowError> {
        let size = memory.size();
        let place = || memory.place().to_owned();
        if let Some(plan) = plan
            && !(plan.messages.is_multiple_of(PAGE_SIZE) && fits(plan, size))
        {
            return Err(WindowError::Differs {
                place: place(),
                found: format!("{size} bytes"),
                wanted: describe(plan),
            });
        }
        let mut window =
            Self { base: map(&memory)?, memory, plan: Plan { members: 0, messages: 0 } };
        let place = || window.memory.place().to_owned();
        let header = Header {
            magic: window.raw64(0),
            plan: window.raw64(LINE_SIZE),
            size: window.raw64(LINE_SIZE + size_of::<u64>()),
        };
        let found = match header.agree(plan, size as u64) {
            Agreed::Window(found, has) if has == size as u64 && fits(found, size) => found,
            Agreed::Empty => return Err(WindowError::Empty { place: place() }),
            Agreed::Window(..) | Agreed::Foreign => {
                return Err(WindowError::NotAWindow { place: place() });
            }
        };
        if let Some(wanted) = plan
            && wanted != found
        {
            let (found, wanted) = (describe(found), describe(wanted));
            return Err(WindowError::Differs { place: place(), found, wanted });
        }
        window.plan = found;
        Ok(window)
    }

    /// Makes the memory zero, so that it can become a window: a device keeps what was on
    /// it. Refused while members live in it (on this machine: nobody can tell of others).
    pub fn erase(memory: &Memory) -> Result<(), WindowError> {
        let place = || memory.place().to_owned();
        let guard = memory.reopen()?;
        let all = i64::from(u16::MAX) + 1;
        match ofd::try_lock(guard.as_fd(), ofd::MEMBERS, all) {
            Ok(true) => {}
            Ok(false) => return Err(WindowError::Busy { place: place() }),
            Err(error) => {
                return Err(WindowError::System { doing: "lock", place: place(), error });
            }
        }
        let base = map(memory).inspect_err(|_| ofd::unlock(guard.as_fd(), ofd::MEMBERS, all))?;
        // SAFETY: mapped just now, this large. The magic goes first, so that nobody takes
        // for a window what is half erased.
        unsafe {
            ptr::write_volatile(base.as_ptr().cast::<u64>(), 0);
            ptr::write_bytes(base.as_ptr(), 0, memory.size());
            let _ = munmap(base.as_ptr().cast(), memory.size());
        }
        // A child that another thread has just forked may have the description, too.
        ofd::unlock(guard.as_fd(), ofd::MEMBERS, all);
        Ok(())
    }

    /// What it is for.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// What it is made of.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Where messages lie: offsets in bytes.
    pub fn messages(&self) -> Range<usize> {
        messages(self.plan)
    }

    /// Where the program's own memory lies: offsets in bytes.
    pub fn plain(&self) -> Range<usize> {
        self.messages().end..self.memory.size()
    }

    /// Offset and lines of the receive buffer of member `index`; computed, so that a sender
    /// needs no table (FCP II). Nothing where there is no room for messages.
    pub fn buffer(&self, index: u16) -> Option<(usize, u32)> {
        let slot = self.plan.messages / usize::from(self.plan.members.max(1));
        let slot = slot - slot % LINE_SIZE;
        let mut lines = LINES_MAX;
        while size_of_ring(lines) > slot {
            if lines == LINES_MIN {
                return None;
            }
            lines /= 2;
        }
        let at = self.messages().start + usize::from(index) * slot;
        (index < self.plan.members).then_some((at, lines))
    }

    /// The receive buffer of member `index`.
    ///
    /// # Safety
    /// Neither this nor a copy is used once the window is unmapped. A sender holds the
    /// member ([`Membership::hold`](crate::member::Membership::hold)) while it sends.
    pub unsafe fn ring(&self, index: u16) -> Option<Mapped> {
        let (at, lines) = self.buffer(index)?;
        // SAFETY: in the window, which the caller keeps; `join` made it zero.
        Some(unsafe { Mapped::at(self.base.add(at), lines) })
    }

    /// The address, here, of `length` bytes of the program's own memory.
    pub fn address(&self, at: usize, length: usize) -> Option<NonNull<u8>> {
        let plain = self.plain();
        let inside = at >= plain.start && at.checked_add(length)? <= plain.end;
        // SAFETY: inside the window.
        inside.then(|| unsafe { self.base.add(at) })
    }

    /// A 32-bit word of the program's own memory; `at` is a multiple of 4.
    pub fn word32(&self, at: usize) -> Option<&AtomicU32> {
        let address = self.address(at, size_of::<u32>())?.cast::<AtomicU32>();
        if !address.is_aligned() {
            return None;
        }
        // SAFETY: in the window, aligned.
        Some(unsafe { address.as_ref() })
    }

    /// A 64-bit word of the program's own memory; `at` is a multiple of 8.
    pub fn word64(&self, at: usize) -> Option<&AtomicU64> {
        let address = self.address(at, size_of::<u64>())?.cast::<AtomicU64>();
        if !address.is_aligned() {
            return None;
        }
        // SAFETY: in the window, aligned.
        Some(unsafe { address.as_ref() })
    }

    /// A word of a member's entry.
    #[inline]
    pub(crate) fn entry_word(&self, index: u16, word: usize) -> &AtomicU64 {
        assert!(index < self.plan.members && word < ENTRY_SIZE / size_of::<u64>());
        self.raw64(HEADER_SIZE + usize::from(index) * ENTRY_SIZE + word * size_of::<u64>())
    }

    /// Makes the receive buffer of member `index` zero.
    ///
    /// # Safety
    /// Nobody else uses it.
    pub(crate) unsafe fn clear_buffer(&self, index: u16) {
        if let Some((at, lines)) = self.buffer(index) {
            // SAFETY: in the window; the caller says that nobody else is there.
            unsafe { ptr::write_bytes(self.base.as_ptr().add(at), 0, size_of_ring(lines)) };
        }
    }

    #[inline]
    fn raw64(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(size_of::<u64>()) && at + size_of::<u64>() <= self.memory.size());
        // SAFETY: in the window, aligned, and only ever reached as an atomic.
        unsafe { &*self.base.as_ptr().add(at).cast::<AtomicU64>() }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: our own mapping; who has a reference into it has one to us.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.memory.size()) };
    }
}

fn map(memory: &Memory) -> Result<NonNull<u8>, WindowError> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping where the kernel likes.
    unsafe { mmap(ptr::null_mut(), memory.size(), protection, MapFlags::SHARED, memory, 0) }
        .and_then(|base| NonNull::new(base.cast()).ok_or(Errno::NOMEM))
        .map_err(|error| {
            let place = memory.place().to_owned();
            WindowError::System { doing: "map", place, error }
        })
}

fn messages(plan: Plan) -> Range<usize> {
    let table = (usize::from(plan.members) * ENTRY_SIZE).next_multiple_of(PAGE_SIZE);
    let start = HEADER_SIZE + table;
    start..start.saturating_add(plan.messages)
}

/// Whether there is room for the plan. Its numbers may come from anybody.
fn fits(plan: Plan, size: usize) -> bool {
    (1..=MEMBERS_MAX).contains(&plan.members) && messages(plan).end <= size
}

fn describe(plan: Plan) -> String {
    format!("{} members and {} bytes of messages", plan.members, plan.messages)
}
