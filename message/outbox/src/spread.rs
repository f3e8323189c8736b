//! Large data from one rank to another. Both copy it, if each has a processor: one processor reads
//! fresh data of another at a part of the speed of both.

use std::ptr;

use sync::pieces::Shares;

use crate::group::{Group, Wait};
use crate::outbox::{Location, Published};

/// Number of bytes from which on the owner of the data helps to copy.
pub const HELPED_MIN: usize = 128 << 10;

impl<W: Wait> Group<W> {
    /// Copies pieces of this rank's data into a rank's memory, while that rank copies the others.
    /// `to` is the address of its buffer; if none, the rank has published it.
    ///
    /// # Safety
    /// `bytes` bytes at `from` are this rank's data of this step, and `to` is as described.
    pub unsafe fn help(
        &mut self,
        rank: usize,
        step: u64,
        from: *const u8,
        bytes: usize,
        to: Option<*mut u8>,
    ) {
        let Published::Location(location) = self.await_published(rank, step) else { return };
        let (theirs, own) = (self.outbox(rank), self.outbox(self.rank));
        let to = to.unwrap_or(location.to);
        let pieces = theirs.pieces(step, bytes.min(location.bytes));
        while let Some((at, length)) = claim(&pieces) {
            // SAFETY: this rank's data, and the buffer of a rank that waits until all pieces are
            // copied. Only the claimer copies a piece.
            unsafe { copy(from.wrapping_add(at), to.wrapping_add(at), length) };
            pieces.finish(None);
            W::ring(&own.doorbell);
        }
    }

    /// Copies the root's data from a location, with the root's help if it offers that.
    ///
    /// # Safety
    /// The location is the one that `root` has published in this step, and the buffer has `room`
    /// bytes.
    pub unsafe fn fetch(
        &mut self,
        step: u64,
        root: usize,
        location: Location,
        to: *mut u8,
        room: usize,
    ) {
        let bytes = location.bytes.min(room);
        if location.to.is_null() {
            // SAFETY: the root's data stays until this rank is done. The buffer has `room` bytes.
            return unsafe { copy(location.from, to, bytes) };
        }
        self.outbox(self.rank).begin_pieces(step);
        self.publish_location(step, Location { from: ptr::null_mut(), to, bytes: room });
        let pieces = self.outbox(self.rank).pieces(step, bytes);
        while let Some((at, length)) = claim(&pieces) {
            // SAFETY: the root's data stays until this rank is done, the buffer has `room` bytes,
            // and only the claimer copies a piece.
            unsafe { copy(location.from.wrapping_add(at), to.wrapping_add(at), length) };
            pieces.finish(None);
        }
        self.await_rank(root, || pieces.finished().is_some());
    }
}

/// Claims a piece. Returns its offset and its bytes.
fn claim(pieces: &Shares<'_>) -> Option<(usize, usize)> {
    pieces.claim().map(|(offset, bytes)| (offset as usize, bytes as usize))
}

/// Copies bytes.
///
/// # Safety
/// `bytes` bytes at `from` are readable, those at `to` are writable, and the two do not overlap.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: this function has the contract of these copies.
    unsafe {
        match bytes {
            4 => to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
            8 => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
            _ => sync::copy::copy(from, to, bytes),
        }
    }
}
