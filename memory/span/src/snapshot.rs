//! A copy of the program's memory for a forked child. The agent makes it anywhere in this process.
//! The child inherits it as private memory, and moves it to the program's addresses. So no
//! descriptor is needed, and the child's writes cause no second copy.

use std::ops::Range;
use std::ptr::{null_mut, with_exposed_provenance_mut};

use coherence::message::Page;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::addresses::PAGE;
use crate::image::{Image, Part};
use crate::ranges::Ranges;
use crate::raw;
use crate::signal::{Action, Actions};

/// The kernel's record of a process's heap, arguments and the like: its `struct prctl_mm_map`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MemoryMap {
    /// The program's code, at least.
    pub code: [u64; 2],
    /// Counted against a limit, and empty.
    pub data: [u64; 2],
    /// The heap.
    pub heap: [u64; 2],
    /// The start of the first thread's stack.
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

/// Further properties of the child, set by the forking thread.
#[derive(Debug)]
pub struct Child {
    /// The slot of the forking thread, with the context to continue with.
    pub slot: u32,
    /// clone's.
    pub flags: u64,
    /// The address for its ID, if the flags request it.
    pub tid: u64,
    /// The program's signal actions.
    pub actions: Actions,
}

/// The copy, of used pages only, since there may be any amount of other memory.
#[derive(Debug)]
pub struct Snapshot {
    /// Its address and length.
    at: u64,
    bytes: u64,
    /// Of each piece the first page, where that stands, and how many there are; in order.
    pieces: Vec<(Page, u64, u64)>,
    /// All private memory of the child, in order, with its protection. It is zero, except for the
    /// pieces.
    pub parts: Vec<Part>,
    /// The moves of the pieces: from, to, bytes.
    moves: Vec<[u64; 3]>,
    /// The parts that the child's own children get as zeros, as the child does.
    pub wiped: Vec<Range<u64>>,
    /// As the kernel is to see it.
    pub map: MemoryMap,
    /// Of the forking thread.
    pub child: Child,
}

/// Pieces that a child may have to put to their places, about.
const PIECES: usize = 8192;
/// Pages between two that are in one piece, at most.
const GAP: u64 = 16;

impl Snapshot {
    /// Of zeros, with room for these pages, which are in order.
    pub fn new(used: &Ranges, map: MemoryMap) -> Result<Self, Errno> {
        let mut pieces = Vec::new();
        let mut gap = GAP;
        loop {
            pieces.clear();
            for pages in used.iter() {
                match pieces.last_mut() {
                    Some((first, _, count)) if pages.start - (*first + *count) <= gap => {
                        *count = pages.end - *first;
                    }
                    _ => pieces.push((pages.start, 0, pages.end - pages.start)),
                }
            }
            if pieces.len() <= PIECES {
                break;
            }
            gap *= 2;
        }
        let bytes = pieces.iter().map(|(_, _, count)| count * PAGE).sum::<u64>().max(PAGE);
        let (open, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let length = bytes as usize;
        // SAFETY: new memory.
        let at = unsafe { mmap_anonymous(null_mut(), length, open, flags | MapFlags::NORESERVE)? };
        // Of a large page one small one may be in use.
        // SAFETY: of our memory; where there are no large pages it is an error.
        let _ = unsafe { madvise(at, length, Advice::LinuxNoHugepage) };
        let at = at.expose_provenance() as u64;
        let mut next = at;
        for (_, stands, count) in &mut pieces {
            (*stands, next) = (next, next + *count * PAGE);
        }
        let child = Child { slot: 0, flags: 0, tid: 0, actions: Action::NO_SIGNALS };
        let (parts, moves, wiped) = Default::default();
        Ok(Self { at, bytes, pieces, parts, moves, wiped, map, child })
    }

    /// Returns the address to which a page is to be copied.
    ///
    /// # Panics
    /// If there is no room for it.
    pub fn page(&mut self, page: Page) -> &mut [u8] {
        let behind = self.pieces.partition_point(|(first, ..)| *first <= page);
        let (first, stands, count) = self.pieces[..behind].last().expect("there is room for it");
        assert!(page - first < *count, "there is room for page {page}");
        let to = with_exposed_provenance_mut((stands + (page - first) * PAGE) as usize);
        // SAFETY: the copy is private memory of this object, which has not published its address.
        unsafe { std::slice::from_raw_parts_mut(to, PAGE as usize) }
    }

    /// Sets the parts of the child, in order. It has no other private memory.
    pub fn is_of(&mut self, parts: Vec<Part>) {
        let mut own = Ranges::default();
        parts.iter().for_each(|part| own.insert(part.start..part.start + part.bytes));
        self.moves.clear();
        for (first, stands, count) in &self.pieces {
            let place = first * PAGE..(first + count) * PAGE;
            let mut met: Vec<Range<u64>> = own.met(&place).collect();
            met.reverse();
            for range in met {
                let range = range.start.max(place.start)..range.end.min(place.end);
                let from = stands + (range.start - place.start);
                self.moves.push([from, range.start, range.end - range.start]);
            }
        }
        self.parts = parts;
    }

    /// In the child, whose addresses are free there: moves the memory to its addresses. Returns
    /// true if that succeeded.
    ///
    /// # Safety
    /// To be called once, by a forked child, on a stack elsewhere.
    pub unsafe fn settle(&self) -> bool {
        const SET_MAP: u64 = 14;
        let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
        let new = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let call = |number: i64, arguments| {
            // SAFETY: this function requires a forked child on a stack elsewhere, so nothing uses
            // the addresses.
            unsafe { raw::call(number as u64, arguments) }
        };
        let is_mapped = self.parts.iter().all(|part| {
            let Part { start, bytes, protection } = *part;
            let arguments = [start, bytes, protection.into(), new as u64, u64::MAX, 0];
            call(libc::SYS_mmap, arguments) >= 0
        });
        let is_there = self.moves.iter().all(|&[from, to, bytes]| {
            call(libc::SYS_mremap, [from, bytes, bytes, flags, to, 0]) >= 0
        });
        let open = (libc::PROT_READ | libc::PROT_WRITE) as u32;
        let mut parts = self.parts.iter().peekable();
        // Both are in order.
        let is_protected = self.moves.iter().all(|&[_, to, bytes]| {
            let end = to + bytes;
            while let Some(part) = parts.peek() {
                let (start, stop) = (part.start.max(to), (part.start + part.bytes).min(end));
                let protection = part.protection;
                if start < stop && protection != open {
                    let arguments = [start, stop - start, protection.into(), 0, 0, 0];
                    if call(libc::SYS_mprotect, arguments) != 0 {
                        return false;
                    }
                }
                if part.start + part.bytes > end {
                    break;
                }
                parts.next();
            }
            true
        });
        let is_wiped = self.wiped.iter().all(|Range { start, end }| {
            let advice = libc::MADV_WIPEONFORK as u64;
            call(libc::SYS_madvise, [*start, end - start, advice, 0, 0, 0]) == 0
        });
        let (map, bytes) = (&raw const self.map, size_of::<MemoryMap>());
        let arguments = [libc::PR_SET_MM as u64, SET_MAP, map as u64, bytes as u64, 0, 0];
        let is_done = is_mapped && is_there && is_protected && is_wiped;
        is_done && call(libc::SYS_prctl, arguments) == 0
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // SAFETY: unmaps memory that this object mapped.
        let _ =
            unsafe { munmap(with_exposed_provenance_mut(self.at as usize), self.bytes as usize) };
    }
}

/// Returns true if this kernel lets a process set the addresses of its heap
/// (CONFIG_CHECKPOINT_RESTORE). Without that, libc in a child would take another's heap for its
/// own.
pub fn can_be() -> bool {
    const MAP_SIZE: u64 = 15;
    let mut size = 0u32;
    let at = std::ptr::from_mut(&mut size) as u64;
    let arguments = [libc::PR_SET_MM as u64, MAP_SIZE, at, 0, 0, 0];
    // SAFETY: the kernel writes a local number.
    let result = unsafe { raw::call(libc::SYS_prctl as u64, arguments) };
    result == 0 && size as usize == size_of::<MemoryMap>()
}
