//! A rank's seat in a team: what it shows to the others, and how far it is.
//!
//! Operations, and the steps of one, are numbered; all ranks count alike. What a rank shows in
//! step n lies in slot n modulo their number, with n as its last word, and stays until all have
//! said that they are through with n. So one word is looked at for what comes, in the same cache
//! line as small data, and a rank may be several steps ahead.
//!
//! Seats are never freed, since others may still look: they are taken again when all have left.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use sync::doorbell::Doorbell;
use sync::pieces::{Pieces, Shares};

/// What ranks must agree on: how seats are laid out and used.
pub const VERSION: u64 = 2;

/// Steps that a rank may be ahead of the last.
pub const SLOTS: u64 = 4;

/// Most bytes that are shown as they are; more are shown by their address. Slots are a multiple
/// of 64 bytes apart that is odd: so the first lines of all do not share one set of a cache.
pub const EAGER: usize = 33 * 64 - 16;

/// A word alone in its cache line.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Line<T>(T);

/// What a rank shows in one step.
#[repr(C, align(64))]
struct Slot {
    /// Of which step.
    number: AtomicU64,
    shown: UnsafeCell<Shown>,
}

#[repr(C)]
struct Shown {
    /// How many bytes follow; or [`ELSEWHERE`].
    length: u64,
    bytes: [u8; EAGER],
}

/// In the place of a length: where the data lies is what follows.
const ELSEWHERE: u64 = u64::MAX;

const _: () = assert!(size_of::<Slot>() == 33 * 64);

/// Where data lies that is too large to be shown.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// What the rank gives.
    pub from: *mut u8,
    /// Where it takes, if that matters; of who only gives: not null, if it wants to know where
    /// the others take, to help them.
    pub to: *mut u8,
    /// How many bytes it gives, or has room for.
    pub bytes: usize,
}

/// What somebody shows.
#[derive(Debug, Clone, Copy)]
pub enum Sight {
    /// Data, and how much.
    Data(*const u8, usize),
    /// Where it is.
    Place(Place),
}

/// See above. In its rank's memory; only that rank writes the slots and `done`.
#[repr(C)]
pub struct Seat {
    /// Wakes who waits for this rank.
    pub bell: Doorbell,
    /// This rank is through with what others have shown up to this step.
    done: Line<AtomicU64>,
    /// Others that have left.
    left: Line<AtomicU32>,
    pieces: Line<Pieces>,
    slots: [Slot; SLOTS as usize],
}

// SAFETY: slots are written by one rank, before it sets their number, while nobody else reads
// them.
unsafe impl Sync for Seat {}

impl Seat {
    fn slot(&self, number: u64) -> &Slot {
        &self.slots[(number % SLOTS) as usize]
    }

    /// Shows what `write` puts there, which returns the length, as step `number`.
    ///
    /// # Safety
    /// The seat is ours, and all are through with what was there before.
    #[inline]
    unsafe fn show(&self, number: u64, write: impl FnOnce(*mut Shown)) {
        let slot = self.slot(number);
        write(slot.shown.get());
        // An exchange, since the bell needs a fence.
        slot.number.swap(number, AcqRel);
        self.bell.ring();
    }

    /// Shows data of at most [`EAGER`] bytes.
    ///
    /// # Safety
    /// As `show`; the data is readable.
    #[inline]
    pub unsafe fn show_data(&self, number: u64, data: *const u8, length: usize) {
        assert!(length <= EAGER);
        let write = |shown: *mut Shown| {
            // SAFETY: the caller's promise, and the assertion.
            unsafe {
                (*shown).length = length as u64;
                let to = (&raw mut (*shown).bytes).cast::<u8>();
                match length {
                    8 => to.cast::<u64>().write_unaligned(data.cast::<u64>().read_unaligned()),
                    _ => ptr::copy_nonoverlapping(data, to, length),
                }
            }
        };
        // SAFETY: the caller's promise.
        unsafe { self.show(number, write) };
    }

    /// Shows where data is.
    ///
    /// # Safety
    /// As `show`.
    #[inline]
    pub unsafe fn show_place(&self, number: u64, place: Place) {
        let write = |shown: *mut Shown| {
            // SAFETY: the caller's promise; the bytes are aligned, and enough.
            unsafe {
                (*shown).length = ELSEWHERE;
                (&raw mut (*shown).bytes).cast::<Place>().write(place);
            }
        };
        // SAFETY: the caller's promise.
        unsafe { self.show(number, write) };
    }

    /// Whether the rank has shown step `number`.
    #[inline]
    pub fn has_shown(&self, number: u64) -> bool {
        self.slot(number).number.load(Acquire) == number
    }

    /// What it shows in step `number`, which it has shown, and that we are not through with.
    #[inline]
    pub fn sight(&self, number: u64) -> Sight {
        let shown = self.slot(number).shown.get();
        // SAFETY: nobody writes it until we say that we are through.
        unsafe {
            let bytes = (&raw const (*shown).bytes).cast::<u8>();
            match (*shown).length {
                ELSEWHERE => Sight::Place(bytes.cast::<Place>().read()),
                length => Sight::Data(bytes, (length as usize).min(EAGER)),
            }
        }
    }

    /// Says that this rank is through with all up to step `number`.
    #[inline]
    pub fn is_through(&self, number: u64) {
        self.done.0.swap(number, AcqRel);
        self.bell.ring();
    }

    /// Up to which step the rank is through.
    #[inline]
    pub fn through(&self) -> u64 {
        self.done.0.load(Acquire)
    }

    /// Begins to count the pieces of the data that this rank takes in step `number`. The last
    /// step's are all copied, but the rank that gave them may still look for more.
    pub fn begin_pieces(&self, number: u64) {
        self.pieces.0.begin(number as u32, 0);
    }

    /// Returns the pieces of the `bytes` that this rank takes in step `number`, which this rank
    /// and the giving one copy together. Steps that are 2³² apart do not meet.
    pub fn pieces(&self, number: u64, bytes: usize) -> Shares<'_> {
        self.pieces.0.of(number as u32, bytes as u64)
    }

    /// Says that the caller, another rank, never looks here again.
    pub fn leave(&self) {
        self.left.0.fetch_add(1, Release);
    }
}

/// Seats that we have had, and who was to leave them.
static VACANT: Mutex<Vec<(&'static Seat, u32)>> = Mutex::new(Vec::new());

fn vacant() -> std::sync::MutexGuard<'static, Vec<(&'static Seat, u32)>> {
    VACANT.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A seat of ours in a new team.
pub fn take() -> &'static Seat {
    let mut vacant = vacant();
    let free = vacant.iter().position(|(seat, others)| seat.left.0.load(Acquire) == *others);
    if let Some(free) = free {
        let (seat, _) = vacant.swap_remove(free);
        seat.left.0.store(0, Relaxed);
        seat.done.0.store(0, Relaxed);
        seat.pieces.0.begin(0, 0);
        for slot in &seat.slots {
            slot.number.store(0, Relaxed);
        }
        return seat;
    }
    // Zero is the first step's past. In one piece on the heap: it is too large for a stack.
    let layout = std::alloc::Layout::new::<Seat>();
    // SAFETY: of some size; all zero is a seat.
    unsafe {
        let seat = std::alloc::alloc_zeroed(layout).cast::<Seat>();
        if seat.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        &*seat
    }
}

/// Gives a seat of ours back that so many others know.
pub fn give(seat: &'static Seat, others: u32) {
    vacant().push((seat, others));
}
