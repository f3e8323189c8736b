//! A copy of the program's memory for a child that is forked. The agent makes it, somewhere in
//! this process; the child, which has inherited it as it inherits all private memory, puts it to
//! where the program's memory is. So nobody needs a descriptor, and what a child writes is copied
//! no second time.

use std::ops::Range;
use std::ptr::{null_mut, with_exposed_provenance_mut};

use coherence::message::Page;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::actions::{Action, Actions};
use crate::addresses::PAGE;
use crate::image::{Image, Part};
use crate::raw;

/// Where the kernel takes the heap, arguments and the like of a process to be: its `struct
/// prctl_mm_map`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MemoryMap {
    /// The program's code, at least.
    pub code: [u64; 2],
    /// Counted against a limit, and empty.
    pub data: [u64; 2],
    /// The heap.
    pub heap: [u64; 2],
    /// Where the first thread's stack begins.
    pub stack: u64,
    /// Their strings.
    pub arguments: [u64; 2],
    /// Those of the environment.
    pub environment: [u64; 2],
    /// As before.
    pub auxiliary: u64,
    /// As before.
    pub auxiliary_bytes: u32,
    /// As before.
    pub executable: i32,
}

impl MemoryMap {
    /// Of a program that begins at `start`, without a heap.
    pub fn of(start: u64, image: &Image) -> Self {
        let both = |range: &Range<u64>| [range.start, range.end];
        Self {
            code: [start, image.end],
            data: [image.end; 2],
            heap: [image.end; 2],
            stack: image.stack_pointer,
            arguments: both(&image.arguments),
            environment: both(&image.environment),
            auxiliary: 0,
            auxiliary_bytes: 0,
            executable: -1,
        }
    }
}

/// What the child is to do besides; said by the thread that forks.
#[derive(Debug)]
pub struct Child {
    /// The seat of who forks, with the context to go on with.
    pub seat: u32,
    /// clone's.
    pub flags: u64,
    /// Where its ID goes, if the flags say so.
    pub tid: u64,
    /// What the program does about signals.
    pub actions: Actions,
}

/// The copy.
#[derive(Debug)]
pub struct Snapshot {
    /// Where it stands.
    at: u64,
    /// Where it belongs.
    pub place: Range<u64>,
    /// But for what the child has inherited.
    pub private: Vec<Range<u64>>,
    /// What may be done with parts of it; with all else, read and write.
    pub parts: Vec<Part>,
    /// Where nothing is.
    pub holes: Vec<Range<u64>>,
    /// What the child's own children are to have as zeros, as the child does.
    pub wiped: Vec<Range<u64>>,
    /// As the kernel is to see it.
    pub map: MemoryMap,
    /// Of who forks.
    pub child: Child,
}

impl Snapshot {
    /// Of zeros, for what is at these addresses.
    pub fn new(place: Range<u64>, map: MemoryMap) -> Result<Self, Errno> {
        let bytes = (place.end - place.start) as usize;
        let (open, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: new memory.
        let at = unsafe { mmap_anonymous(null_mut(), bytes, open, flags | MapFlags::NORESERVE)? };
        // Of a large page one small one may be in use.
        // SAFETY: of our memory; where there are no large pages it is an error.
        let _ = unsafe { madvise(at, bytes, Advice::LinuxNoHugepage) };
        let at = at.expose_provenance() as u64;
        let child = Child { seat: 0, flags: 0, tid: 0, actions: Action::NO_SIGNALS };
        let private = vec![place.clone()];
        let (parts, holes, wiped) = Default::default();
        Ok(Self { at, place, private, parts, holes, wiped, map, child })
    }

    /// Where a page is to be copied to.
    ///
    /// # Panics
    /// It has no such page.
    pub fn page(&mut self, page: Page) -> &mut [u8] {
        let at = page * PAGE;
        assert!(at < self.place.end - self.place.start, "beyond the copy's end");
        let to = with_exposed_provenance_mut((self.at + at) as usize);
        // SAFETY: our memory, which nobody else knows.
        unsafe { std::slice::from_raw_parts_mut(to, PAGE as usize) }
    }

    /// To the child, which has nothing there: the memory is where it belongs from now on. Whether
    /// that could be done.
    ///
    /// # Safety
    /// Once, by a child that was forked, on a stack elsewhere.
    pub unsafe fn settle(&self) -> bool {
        const SET_MAP: u64 = 14;
        let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
        let call = |number: i64, arguments| {
            // SAFETY: as the caller says.
            unsafe { raw::call(number as u64, arguments) }
        };
        let is_there = self.private.iter().all(|range| {
            let (from, bytes) = (self.at + range.start - self.place.start, range.end - range.start);
            call(libc::SYS_mremap, [from, bytes, bytes, flags, range.start, 0]) >= 0
        });
        let is_protected = self.parts.iter().all(|part| {
            let Part { start, bytes, protection } = *part;
            call(libc::SYS_mprotect, [start, bytes, protection.into(), 0, 0, 0]) == 0
        });
        let is_open = self.holes.iter().all(|hole| {
            call(libc::SYS_munmap, [hole.start, hole.end - hole.start, 0, 0, 0, 0]) == 0
        });
        let is_wiped = self.wiped.iter().all(|Range { start, end }| {
            let advice = libc::MADV_WIPEONFORK as u64;
            call(libc::SYS_madvise, [*start, end - start, advice, 0, 0, 0]) == 0
        });
        let (map, bytes) = (&raw const self.map, size_of::<MemoryMap>());
        let arguments = [libc::PR_SET_MM as u64, SET_MAP, map as u64, bytes as u64, 0, 0];
        is_there && is_protected && is_open && is_wiped && call(libc::SYS_prctl, arguments) == 0
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let bytes = (self.place.end - self.place.start) as usize;
        // SAFETY: ours.
        let _ = unsafe { munmap(with_exposed_provenance_mut(self.at as usize), bytes) };
    }
}

/// Whether this kernel lets a process say where its heap is (CONFIG_CHECKPOINT_RESTORE): without
/// it, libc in a child would take another's heap for its own.
pub fn can_be() -> bool {
    const MAP_SIZE: u64 = 15;
    let mut size = 0u32;
    let at = std::ptr::from_mut(&mut size) as u64;
    let arguments = [libc::PR_SET_MM as u64, MAP_SIZE, at, 0, 0, 0];
    // SAFETY: writes a number of ours.
    let result = unsafe { raw::call(libc::SYS_prctl as u64, arguments) };
    result == 0 && size as usize == size_of::<MemoryMap>()
}
