//! Where FCP and FCP plus have their buffers: a table in the window lists them, four words
//! an entry, so that any ID finds its buffer (Kikuchi et al., §3.4). FCP II computes the
//! place instead.

use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::locked::{MANAGEMENT, Words};
use crate::window::Window;
use sync::ring::LINE_SIZE;
use sync::word::Word32;

/// Words of an entry: where the buffer is, on which machine, whose, and of which group.
pub const ENTRY_WORDS: usize = 4;
const PLACE: usize = 0;
const HOST: usize = 1;
const ID: usize = 2;
const GROUP: usize = 3;

/// Fewest words of data in a buffer: a part of a message goes into an eighth of them.
const DATA_MIN: u32 = 64;

/// One buffer, in the window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Area {
    base: NonNull<u8>,
    words: u32,
}

// SAFETY: the memory is shared by design, and reached through atomics, or under its lock.
unsafe impl Send for Area {}
// SAFETY: as above; and who may send a copy could share it as well.
unsafe impl Sync for Area {}

impl Area {
    fn word(&self, n: u32) -> &AtomicU32 {
        // SAFETY: in the buffer, as the callers see to; aligned, and an atomic for all.
        unsafe { self.base.add(n as usize * size_of::<u32>()).cast().as_ref() }
    }

    /// The address of `length` bytes of data from byte `at` on.
    fn address(&self, at: u32, length: usize) -> *mut u8 {
        let at = at as usize;
        assert!(at + length <= self.words as usize * size_of::<u32>());
        // SAFETY: inside the buffer, as was just checked.
        unsafe { self.base.as_ptr().add(LINE_SIZE + at) }
    }
}

impl Words for Area {
    type Word = AtomicU32;
    type Lock = AtomicU64;

    fn words(&self) -> u32 {
        self.words
    }

    fn lock(&self) -> &AtomicU64 {
        // SAFETY: as for `word`.
        unsafe { self.base.cast().as_ref() }
    }

    fn management(&self, n: u32) -> &AtomicU32 {
        assert!((2..MANAGEMENT).contains(&n));
        self.word(n)
    }

    fn data(&self, n: u32) -> &AtomicU32 {
        // What management says of the size may have been overwritten.
        self.word((LINE_SIZE / size_of::<u32>()) as u32 + (n & (self.words - 1)))
    }

    fn write(&self, at: u32, bytes: &[u8]) {
        let to = self.address(at, bytes.len());
        // SAFETY: inside the buffer, and ours: we have its lock.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    fn read(&self, at: u32, bytes: &mut [u8]) {
        let from = self.address(at, bytes.len());
        // SAFETY: inside the buffer; senders write behind the messages that are there. Who
        // breaks the rules makes the bytes wrong, and nothing else.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
    }
}

/// The table of a window.
#[derive(Debug)]
pub(crate) struct Table<'a>(pub &'a Window);

/// Bytes of the table of a window with so many members.
fn size_of_table(members: u16) -> usize {
    (usize::from(members) * ENTRY_WORDS * size_of::<u32>()).next_multiple_of(LINE_SIZE)
}

/// Bytes of messages in the plan of a window in which each member has a buffer of `size`
/// bytes, a power of two.
pub fn size_of_buffers(members: u16, size: usize) -> usize {
    size_of_table(members) + usize::from(members) * (LINE_SIZE + size)
}

impl Table<'_> {
    fn bytes(&self) -> usize {
        size_of_table(self.0.plan().members)
    }

    fn word(&self, index: u16, n: usize) -> &AtomicU32 {
        assert!(index < self.0.plan().members);
        let word = usize::from(index) * ENTRY_WORDS + n;
        // SAFETY: in the table, aligned, and an atomic for all.
        unsafe { self.0.message_memory(word * size_of::<u32>(), 4).cast().as_ref() }
    }

    /// The buffer of member `index`, if the window has room for buffers.
    pub fn area(&self, index: u16) -> Option<Area> {
        let plan = self.0.plan();
        let left = plan.messages.checked_sub(self.bytes())?;
        let slot = left / usize::from(plan.members);
        let slot = slot - slot % LINE_SIZE;
        let data = u32::try_from(slot.checked_sub(LINE_SIZE)? / size_of::<u32>()).ok()?;
        let words = 1 << data.checked_ilog2()?;
        if words < DATA_MIN || index >= plan.members {
            return None;
        }
        let length = LINE_SIZE + words as usize * size_of::<u32>();
        let base = self.0.message_memory(self.bytes() + usize::from(index) * slot, length);
        Some(Area { base, words })
    }

    /// Lists the buffer of member `index`.
    pub fn enter(&self, index: u16, host: u32, id: u32, group: u32) {
        self.word(index, HOST).store(host, Relaxed);
        self.word(index, ID).store(id, Relaxed);
        self.word(index, GROUP).store(group, Relaxed);
        self.word(index, PLACE).store(u32::from(index) + 1, Release);
    }

    /// Lists it no more.
    pub fn remove(&self, index: u16) {
        self.word(index, PLACE).store(0, Release);
    }

    /// Whose buffer is listed for entry `index`, looked for from `first` on.
    pub fn find(&self, id: u32, group: u32, first: u16) -> Option<u16> {
        let members = u32::from(self.0.plan().members);
        let all = (0..members).map(|n| ((u32::from(first) + n) % members) as u16);
        all.into_iter().find(|&index| self.has(index, id, group))
    }

    fn has(&self, index: u16, id: u32, group: u32) -> bool {
        assert!(index < self.0.plan().members);
        let at = usize::from(index) * ENTRY_WORDS * size_of::<u32>();
        let entry = self.0.message_memory(at, ENTRY_WORDS * size_of::<u32>());
        // SAFETY: in the table, aligned, and atomics for all.
        is(unsafe { entry.cast::<[AtomicU32; ENTRY_WORDS]>().as_ref() }, id, group)
    }
}

/// Whether an entry lists the buffer of this member.
pub fn is<W: Word32>(entry: &[W; ENTRY_WORDS], id: u32, group: u32) -> bool {
    entry[PLACE].load(Acquire) != 0
        && entry[ID].load(Relaxed) == id
        && entry[GROUP].load(Relaxed) == group
}
