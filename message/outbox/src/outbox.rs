//! A rank's outbox in a team: the data that it publishes to the other ranks, and its progress.
//!
//! The steps of operations are numbered, and all ranks count alike. A rank publishes the data of
//! step n in slot n modulo [`SLOTS`], and writes n into the slot last. The data stays until all
//! ranks are done with step n. So a reader polls one word, in the same cache line as small data,
//! and a rank may be several steps ahead.
//!
//! The memory of an outbox is never freed, since other ranks may still read it. An outbox is reused
//! when all ranks have left it.

use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sync::doorbell::Doorbell;
use sync::pieces::{Pieces, Shares};

use crate::atomic::{AtomicU32, AtomicU64, Cell};

/// The way in which a rank lets others know of a change.
pub trait Publish {
    /// Writes a number that other ranks wait for, then wakes those that sleep on the doorbell. All
    /// earlier writes of the caller come before it.
    fn publish(word: &AtomicU64, number: u64, doorbell: &Doorbell);

    /// Wakes the ranks that sleep on the doorbell. The caller has published before, by an atomic
    /// exchange.
    fn ring(doorbell: &Doorbell);
}

/// The version of the outbox's layout and protocol, which all ranks must share.
pub const VERSION: u64 = 2;

/// Number of steps that a rank may be ahead of the slowest. In models it is less, so that slots are
/// reused soon.
pub const SLOTS: u64 = if cfg!(loom) { 2 } else { 4 };

/// Most bytes of data in a slot. Of larger data a rank publishes the address. The size of a slot is
/// an odd multiple of 64 bytes, so that the first lines of all slots use different sets of a cache.
pub const DATA_MAX: usize = 33 * 64 - 16;

/// A value alone in its cache line.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Line<T>(T);

/// The data of one step.
#[repr(C, align(64))]
struct Slot {
    /// The step, written last.
    number: AtomicU64,
    content: Cell<Content>,
}

#[repr(C)]
struct Content {
    /// Number of bytes that follow, or [`LOCATION`].
    length: u64,
    bytes: [u8; DATA_MAX],
}

/// In place of a length: a [`Location`] follows.
const LOCATION: u64 = u64::MAX;

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 33 * 64);

/// The location of data that is too large for a slot.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Location {
    /// The rank's input.
    pub from: *mut u8,
    /// The rank's output buffer, if its peers need it. For a rank without output: not null if it
    /// asks for the output buffers of the others, to help them copy.
    pub to: *mut u8,
    /// Size of the input, or of the output buffer.
    pub bytes: usize,
}

/// The published data of a step.
#[derive(Debug, Clone, Copy)]
pub enum Published {
    /// Data in the slot, and its size in bytes.
    Data(*const u8, usize),
    /// The location of the data.
    Location(Location),
}

impl Published {
    /// Returns the size of the data in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Data(_, bytes) => *bytes,
            Self::Location(location) => location.bytes,
        }
    }

    /// Returns the address of the data, in the slot or in the rank's memory.
    #[inline(always)]
    pub fn data(&self) -> *const u8 {
        match self {
            Self::Data(data, _) => *data,
            Self::Location(location) => location.from,
        }
    }

    /// Returns the first 8 bytes of the data in a slot; 0 if there are less.
    pub fn word(&self) -> u64 {
        match self {
            // SAFETY: the slot has at least as many bytes.
            Self::Data(data, 8..) => unsafe { data.cast::<u64>().read_unaligned() },
            _ => 0,
        }
    }
}

/// An outbox, in its rank's memory. Only that rank writes the slots and `done`.
#[repr(C)]
pub struct Outbox {
    /// Wakes waiters for this rank.
    pub doorbell: Doorbell,
    /// The step up to which this rank is done with the data of the others.
    done: Line<AtomicU64>,
    /// Number of other ranks that have left.
    left: Line<AtomicU32>,
    pieces: Line<Pieces>,
    slots: [Slot; SLOTS as usize],
}

// SAFETY: one rank writes a slot, before it sets the slot's number. The others read it after they
// saw the number, and before they report that they are done with it.
unsafe impl Sync for Outbox {}

impl Outbox {
    /// Returns an outbox for a model. Others are memory of zeros.
    #[cfg(loom)]
    pub fn new() -> Self {
        let content = || Cell::new(Content { length: 0, bytes: [0; DATA_MAX] });
        let slot = |_| Slot { number: AtomicU64::new(0), content: content() };
        Self {
            doorbell: Doorbell::default(),
            done: Line(AtomicU64::new(0)),
            left: Line(AtomicU32::new(0)),
            pieces: Line::default(),
            slots: std::array::from_fn(slot),
        }
    }

    fn slot(&self, number: u64) -> &Slot {
        &self.slots[(number % SLOTS) as usize]
    }

    /// Publishes the content that `write` writes, as step `number`.
    ///
    /// # Safety
    /// The outbox is the calling rank's, and all ranks are done with the slot's former step.
    #[inline]
    unsafe fn publish<W: Publish>(&self, number: u64, write: impl FnOnce(*mut Content)) {
        let slot = self.slot(number);
        let former = slot.number.load(Relaxed);
        debug_assert!(former + SLOTS <= number || former == 0, "step {number} after {former}");
        slot.content.with_mut(write);
        W::publish(&slot.number, number, &self.doorbell);
    }

    /// Publishes at most [`DATA_MAX`] bytes of data.
    ///
    /// # Safety
    /// The contract of `publish`; and `length` bytes at `data` are readable.
    #[inline]
    pub unsafe fn publish_data<W: Publish>(&self, number: u64, data: *const u8, length: usize) {
        assert!(length <= DATA_MAX);
        let write = |content: *mut Content| {
            // SAFETY: `publish` passes the content of a slot, which has room for `length` bytes by
            // the assertion. The caller guarantees that the data is readable.
            unsafe {
                (*content).length = length as u64;
                let to = (&raw mut (*content).bytes).cast::<u8>();
                match length {
                    8 => to.cast::<u64>().write_unaligned(data.cast::<u64>().read_unaligned()),
                    _ => ptr::copy_nonoverlapping(data, to, length),
                }
            }
        };
        // SAFETY: this function has the contract of `publish`.
        unsafe { self.publish::<W>(number, write) };
    }

    /// Publishes the location of data.
    ///
    /// # Safety
    /// The contract of `publish`.
    #[inline]
    pub unsafe fn publish_location<W: Publish>(&self, number: u64, place: Location) {
        let write = |content: *mut Content| {
            // SAFETY: `publish` passes the content of a slot. Its bytes are aligned to 8, and there
            // are more than a location has.
            unsafe {
                (*content).length = LOCATION;
                (&raw mut (*content).bytes).cast::<Location>().write(place);
            }
        };
        // SAFETY: this function has the contract of `publish`.
        unsafe { self.publish::<W>(number, write) };
    }

    /// Returns true if the rank has published step `number`.
    #[inline]
    pub fn has_published(&self, number: u64) -> bool {
        self.slot(number).number.load(Acquire) == number
    }

    /// Returns the data of step `number`, which the rank has published and the caller is not done
    /// with.
    #[inline]
    pub fn published(&self, number: u64) -> Published {
        debug_assert!(self.has_published(number), "step {number} is read too early or too late");
        // SAFETY: the rank writes this slot again only after the caller is done with the step.
        self.slot(number).content.with(|content| unsafe {
            let bytes = (&raw const (*content).bytes).cast::<u8>();
            match (*content).length {
                LOCATION => Published::Location(bytes.cast::<Location>().read()),
                length => Published::Data(bytes, (length as usize).min(DATA_MAX)),
            }
        })
    }

    /// Reports that this rank is done with the data of all steps up to `number`.
    #[inline]
    pub fn set_done<W: Publish>(&self, number: u64) {
        let former = self.done.0.load(Relaxed);
        debug_assert!(former <= number, "done with step {number} after {former}");
        W::publish(&self.done.0, number, &self.doorbell);
    }

    /// Returns the step up to which the rank is done.
    #[inline]
    pub fn done(&self) -> u64 {
        self.done.0.load(Acquire)
    }

    /// Begins to count the pieces of the data that this rank receives in step `number`. The pieces
    /// of the former step are all copied, but its sender may still try to claim one.
    pub fn begin_pieces(&self, number: u64) {
        self.pieces.0.begin(number as u32, 0);
    }

    /// Returns the pieces of the `bytes` that this rank receives in step `number`, and that
    /// receiver and sender copy together. Steps that are 2³² apart never overlap in time.
    pub fn pieces(&self, number: u64, bytes: usize) -> Shares<'_> {
        self.pieces.0.of(number as u32, bytes as u64)
    }

    /// Reports that the caller, another rank, does not read this outbox any more.
    pub fn leave(&self) {
        self.left.0.fetch_add(1, Release);
    }

    /// Returns true if `others` ranks have left.
    pub fn has_been_left(&self, others: u32) -> bool {
        self.left.0.load(Acquire) == others
    }

    /// Prepares an outbox for a new team. All other ranks have left it. (An outbox of zeros is
    /// prepared.)
    pub fn reset(&self) {
        // Step 0 is before the first step.
        self.left.0.store(0, Relaxed);
        self.done.0.store(0, Relaxed);
        self.pieces.0.begin(0, 0);
        for slot in &self.slots {
            slot.number.store(0, Relaxed);
        }
    }
}
