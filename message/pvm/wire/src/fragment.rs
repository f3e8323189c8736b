//! A fragment: a contiguous piece of a message's data.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Error;

/// Bytes of a fragment reserved for headers; [`PvmFragSize`] includes them.
///
/// [`PvmFragSize`]: crate::constants::PvmFragSize
pub const HEADER_SIZE_MAX: usize = 48;

/// Memory that holds one or more fragments of an incoming message. Some of the data may not have
/// arrived yet, and never arrives if the sender dies.
pub trait Block: Send + Sync {
    /// Returns the bytes of the complete data.
    fn length(&self) -> usize;

    /// Returns a range that has [arrived](Block::settle). It does not change.
    fn bytes(&self, range: Range<usize>) -> &[u8];

    /// Waits until the bytes before `end` have arrived. Errors: BadMsg if the sender has died.
    fn settle(&self, end: usize) -> Result<(), Error> {
        let _ = end;
        Ok(())
    }

    /// Copies bytes from `at` on, and waits for them. Errors: those of [`Block::settle`].
    fn read(&self, at: usize, to: &mut [u8]) -> Result<(), Error> {
        to.copy_from_slice(self.bytes(at..at + to.len()));
        Ok(())
    }

    /// Returns true if some of the data may never arrive.
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

/// A piece of a message's data: in its own memory, in a block, or in the caller's memory.
#[derive(Clone)]
pub struct Fragment {
    place: Place,
    len: usize,
    capacity: usize,
}

#[derive(Clone)]
enum Place {
    /// At least `len` bytes long. It holds every byte that was ever written.
    Own(Vec<u8>),
    Caller(*const u8),
    /// A block, and the fragment's offset in it.
    Block(Arc<dyn Block>, usize),
}

// SAFETY: the caller of `Source::new` guarantees that memory packed in place stays readable as
// long as the message lives. This holds for every thread. The other variants are `Send`.
unsafe impl Send for Fragment {}

impl fmt::Debug for Fragment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fragment({} of {})", self.len, self.capacity)
    }
}

impl Fragment {
    /// Returns an empty fragment with room for `capacity` bytes.
    pub fn new(capacity: usize) -> Fragment {
        Fragment { place: Place::Own(Vec::new()), len: 0, capacity }
    }

    /// Returns a full fragment.
    pub fn full(bytes: Vec<u8>) -> Fragment {
        let len = bytes.len();
        Fragment { place: Place::Own(bytes), len, capacity: len }
    }

    /// Returns an empty fragment that reuses the memory of another. Its old contents are
    /// discarded.
    pub(crate) fn in_memory(mut memory: Vec<u8>, capacity: usize) -> Fragment {
        memory.clear();
        Fragment { place: Place::Own(memory), len: 0, capacity }
    }

    /// Returns the memory for reuse, if the fragment owns it.
    pub(crate) fn into_memory(self) -> Option<Vec<u8>> {
        match self.place {
            Place::Own(bytes) => Some(bytes),
            Place::Caller(_) | Place::Block(..) => None,
        }
    }

    /// Returns a fragment of `len` bytes of a block, from `at`. `None` if the block is shorter.
    pub fn in_block(block: Arc<dyn Block>, at: usize, len: usize) -> Option<Fragment> {
        at.checked_add(len).filter(|end| *end <= block.length())?;
        Some(Fragment { place: Place::Block(block, at), len, capacity: len })
    }

    /// Returns a fragment in the caller's memory: `len` bytes from `at`, which satisfy
    /// `Source::new`.
    pub(crate) fn in_place(at: *const u8, len: usize) -> Fragment {
        Fragment { place: Place::Caller(at), len, capacity: len }
    }

    /// Waits until its data has arrived. Errors: BadMsg if the sender has died.
    pub fn settle(&self) -> Result<(), Error> {
        match &self.place {
            Place::Block(block, at) => block.settle(at + self.len),
            Place::Own(_) | Place::Caller(_) => Ok(()),
        }
    }

    /// Returns true if its data may never arrive.
    pub(crate) fn is_uncertain(&self) -> bool {
        matches!(&self.place, Place::Block(block, _) if block.is_uncertain())
    }

    /// Returns true if `next` follows directly in the same block.
    pub(crate) fn is_followed_by(&self, next: &Fragment) -> bool {
        match (&self.place, &next.place) {
            (Place::Block(block, at), Place::Block(other, other_at)) => {
                std::ptr::addr_eq(Arc::as_ptr(block), Arc::as_ptr(other))
                    && at + self.len == *other_at
            }
            _ => false,
        }
    }

    /// Copies some of its data, or of the data behind it in its block, and waits for it. Errors:
    /// those of [`Fragment::settle`].
    pub(crate) fn read(&self, from: usize, to: &mut [u8]) -> Result<(), Error> {
        match &self.place {
            Place::Block(block, at) => block.read(at + from, to),
            _ => {
                to.copy_from_slice(&self.bytes()[from..from + to.len()]);
                Ok(())
            }
        }
    }

    /// Returns its data, which has [arrived](Fragment::settle). In-place data is the current
    /// contents of the caller's memory.
    pub fn bytes(&self) -> &[u8] {
        match &self.place {
            Place::Own(bytes) => &bytes[..self.len],
            // SAFETY: `Source::new` requires that memory packed in place stays readable while
            // the message lives, and unchanged while a call reads it. `at` and `len` come from
            // there.
            Place::Caller(at) => unsafe { std::slice::from_raw_parts(*at, self.len) },
            Place::Block(block, at) => block.bytes(*at..*at + self.len),
        }
    }

    /// Returns the bytes of its data.
    #[allow(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the bytes that can be appended.
    pub fn room(&self) -> usize {
        self.capacity.saturating_sub(self.len)
    }

    /// Sets the length. Bytes never written are 0; others keep their value. So the padding of a
    /// message that is packed again is as in libpvm.
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

    /// Lets `fill` write `len` bytes at `at`, without setting the length.
    pub(crate) fn write_with(&mut self, at: usize, len: usize, fill: impl FnOnce(&mut [u8])) {
        let bytes = self.own();
        if bytes.len() < at + len {
            bytes.resize(at + len, 0);
        }
        fill(&mut bytes[at..at + len]);
    }

    /// Appends bytes. Panics without enough room.
    pub fn append(&mut self, from: &[u8]) {
        assert!(from.len() <= self.room());
        self.write(self.len, from);
        self.len += from.len();
    }

    /// Inserts bytes before the first.
    pub(crate) fn prepend(&mut self, from: &[u8]) {
        let len = self.len;
        let bytes = self.own();
        bytes.truncate(len);
        bytes.splice(0..0, from.iter().copied());
        self.len += from.len();
        self.capacity += from.len();
    }

    /// Copies the data out of a block. If it never arrives, the fragment becomes empty.
    pub(crate) fn leave_block(&mut self) {
        if let Place::Block(..) = self.place {
            if self.settle().is_err() {
                *self = Fragment::full(Vec::new());
            }
            self.own();
        }
    }

    /// Returns the fragment's own memory. Copies data from a block or the caller first.
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
