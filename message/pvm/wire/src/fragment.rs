//! A piece of a message.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Error;

/// Bytes before a fragment's data that are left for headers; [`PvmFragSize`] includes them.
///
/// [`PvmFragSize`]: crate::constants::PvmFragSize
pub const HEADER_SIZE_MAX: usize = 48;

/// Memory in which a message has come, several fragments in one. It may be that not all of it
/// is there yet, and that its sender dies before.
pub trait Block: Send + Sync {
    /// Bytes, when all are there.
    fn length(&self) -> usize;

    /// Some of it, which is [there](Block::settle). It does not change.
    fn bytes(&self, range: Range<usize>) -> &[u8];

    /// Waits until the bytes before `end` are there. Errors: BadMsg if they never will be.
    fn settle(&self, end: usize) -> Result<(), Error> {
        let _ = end;
        Ok(())
    }

    /// Copies bytes from `at` on; waits for them. Errors: as [`Block::settle`].
    fn read(&self, at: usize, to: &mut [u8]) -> Result<(), Error> {
        to.copy_from_slice(self.bytes(at..at + to.len()));
        Ok(())
    }

    /// Whether it may be that not all of it ever comes.
    fn is_uncertain(&self) -> bool {
        false
    }
}

impl Block for Vec<u8> {
    fn length(&self) -> usize {
        self.len()
    }

    fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self[range]
    }
}

/// A piece of a message: memory of its own, part of a block, or the caller's.
#[derive(Clone)]
pub struct Fragment {
    place: Place,
    len: usize,
    capacity: usize,
}

#[derive(Clone)]
enum Place {
    /// As long as what was ever written; up to `len` at least.
    Own(Vec<u8>),
    Caller(*const u8),
    /// From this byte on.
    Block(Arc<dyn Block>, usize),
}

// SAFETY: whoever packs in place promises that the memory stays readable as long as the
// message lives (`Source::new`), by whichever thread.
unsafe impl Send for Fragment {}

impl fmt::Debug for Fragment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fragment({} of {})", self.len, self.capacity)
    }
}

impl Fragment {
    /// An empty one that takes `capacity` bytes.
    pub fn new(capacity: usize) -> Fragment {
        Fragment { place: Place::Own(Vec::new()), len: 0, capacity }
    }

    /// One that is full.
    pub fn full(bytes: Vec<u8>) -> Fragment {
        let len = bytes.len();
        Fragment { place: Place::Own(bytes), len, capacity: len }
    }

    /// An empty one in memory that another fragment had; it counts as never written.
    pub(crate) fn in_memory(mut memory: Vec<u8>, capacity: usize) -> Fragment {
        memory.clear();
        Fragment { place: Place::Own(memory), len: 0, capacity }
    }

    /// Memory for another fragment, if it is our own.
    pub(crate) fn into_memory(self) -> Option<Vec<u8>> {
        match self.place {
            Place::Own(bytes) => Some(bytes),
            Place::Caller(_) | Place::Block(..) => None,
        }
    }

    /// `len` bytes of a block, from `at`. Nothing if it is shorter.
    pub fn in_block(block: Arc<dyn Block>, at: usize, len: usize) -> Option<Fragment> {
        at.checked_add(len).filter(|end| *end <= block.length())?;
        Some(Fragment { place: Place::Block(block, at), len, capacity: len })
    }

    /// The caller's memory: `len` bytes from `at`, as `Source::new` promises them.
    pub(crate) fn in_place(at: *const u8, len: usize) -> Fragment {
        Fragment { place: Place::Caller(at), len, capacity: len }
    }

    /// Waits until what it holds is there. Errors: BadMsg if it never will be.
    pub fn settle(&self) -> Result<(), Error> {
        match &self.place {
            Place::Block(block, at) => block.settle(at + self.len),
            Place::Own(_) | Place::Caller(_) => Ok(()),
        }
    }

    /// Whether it may be that what it holds never comes.
    pub(crate) fn is_uncertain(&self) -> bool {
        matches!(&self.place, Place::Block(block, _) if block.is_uncertain())
    }

    /// Whether `next` lies right behind it, in the same block.
    pub(crate) fn is_followed_by(&self, next: &Fragment) -> bool {
        match (&self.place, &next.place) {
            (Place::Block(block, at), Place::Block(other, other_at)) => {
                std::ptr::addr_eq(Arc::as_ptr(block), Arc::as_ptr(other))
                    && at + self.len == *other_at
            }
            _ => false,
        }
    }

    /// Copies some of what it holds, or what lies behind it in its block; waits for that. Errors:
    /// as [`Fragment::settle`].
    pub(crate) fn read(&self, from: usize, to: &mut [u8]) -> Result<(), Error> {
        match &self.place {
            Place::Block(block, at) => block.read(at + from, to),
            _ => {
                to.copy_from_slice(&self.bytes()[from..from + to.len()]);
                Ok(())
            }
        }
    }

    /// What it holds, which is [there](Fragment::settle). Of the caller's memory: what is
    /// there now.
    pub fn bytes(&self) -> &[u8] {
        match &self.place {
            Place::Own(bytes) => &bytes[..self.len],
            // SAFETY: readable while the message lives, and unchanged during a call, as
            // `Source::new` demands of what is packed in place.
            Place::Caller(at) => unsafe { std::slice::from_raw_parts(*at, self.len) },
            Place::Block(block, at) => block.bytes(*at..*at + self.len),
        }
    }

    /// Bytes that it holds.
    #[allow(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes that can be appended.
    pub fn room(&self) -> usize {
        self.capacity.saturating_sub(self.len)
    }

    /// Sets the length. Bytes that were never written are 0, others what they were: the padding
    /// of a message that is packed anew, as in libpvm.
    pub(crate) fn set_len(&mut self, len: usize) {
        let bytes = self.own();
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
        self.len = len;
    }

    /// Writes at `at` without setting the length.
    pub(crate) fn write(&mut self, at: usize, from: &[u8]) {
        let bytes = self.own();
        if bytes.len() < at {
            bytes.resize(at, 0);
        }
        let (over, beyond) = from.split_at(from.len().min(bytes.len() - at));
        bytes[at..at + over.len()].copy_from_slice(over);
        bytes.extend_from_slice(beyond);
    }

    /// Has `fill` write `len` bytes at `at`, without setting the length.
    pub(crate) fn write_with(&mut self, at: usize, len: usize, fill: impl FnOnce(&mut [u8])) {
        let bytes = self.own();
        if bytes.len() < at + len {
            bytes.resize(at + len, 0);
        }
        fill(&mut bytes[at..at + len]);
    }

    /// Appends; there must be room.
    pub fn append(&mut self, from: &[u8]) {
        assert!(from.len() <= self.room());
        self.write(self.len, from);
        self.len += from.len();
    }

    /// Puts bytes before the first.
    pub(crate) fn prepend(&mut self, from: &[u8]) {
        let len = self.len;
        let bytes = self.own();
        bytes.truncate(len);
        bytes.splice(0..0, from.iter().copied());
        self.len += from.len();
        self.capacity += from.len();
    }

    /// Copies the bytes out of a block. Those that never come are missing.
    pub(crate) fn leave_block(&mut self) {
        if let Place::Block(..) = self.place {
            if self.settle().is_err() {
                *self = Fragment::full(Vec::new());
            }
            self.own();
        }
    }

    /// The memory, copied first if it is not the fragment's own.
    fn own(&mut self) -> &mut Vec<u8> {
        if !matches!(self.place, Place::Own(_)) {
            self.place = Place::Own(self.bytes().to_vec());
        }
        match &mut self.place {
            Place::Own(bytes) => bytes,
            Place::Caller(_) | Place::Block(..) => unreachable!(),
        }
    }
}
