//! Barrier and broadcast.

use std::ffi::c_int;
use std::ptr;

use sync::pieces::Shares;

use crate::abi::SUCCESS;
use crate::buffer::{Elements, Failed};
use crate::mpi::Mpi;
use crate::outbox::{DATA_MAX, Location, Published};
use crate::team::Team;

/// Number of bytes from which on the root of a broadcast helps to copy.
const HELPED_MIN: usize = 128 << 10;

impl Team {
    /// `MPI_Barrier`.
    #[inline]
    pub fn barrier(&mut self) {
        let step = self.step();
        self.publish_nothing(step);
        self.meet(step);
        self.finish();
    }

    /// `MPI_Bcast`. The other ranks follow the data that the root publishes. So no rank waits in
    /// vain if ranks call with different sizes.
    #[inline]
    pub fn bcast(&mut self, mpi: &Mpi, data: Elements, root: usize) -> Result<(), Failed> {
        if self.rank == root { self.send(mpi, data) } else { self.receive(mpi, data, root) }
    }

    fn send(&mut self, mpi: &Mpi, data: Elements) -> Result<(), Failed> {
        let (source, bytes) = (data.source(mpi, self.comm)?, data.bytes());
        let step = self.step();
        if bytes <= DATA_MAX {
            // SAFETY: the program passed this data, and it fits into a slot.
            unsafe { self.publish_data(step, source.address, bytes) };
            self.finish();
            return Ok(());
        }
        let helps = bytes >= HELPED_MIN && self.has_processors();
        let to = if helps { source.address } else { ptr::null_mut() };
        self.publish_location(step, Location { from: source.address, to, bytes });
        if helps {
            for other in self.others() {
                self.help(other, step, source.address, bytes);
            }
        }
        self.finish();
        self.wait_done(step);
        Ok(())
    }

    /// Copies pieces of this rank's data into a rank's memory, while that rank copies the others.
    fn help(&mut self, rank: usize, step: u64, from: *const u8, bytes: usize) {
        let Published::Location(location) = self.await_published(rank, step) else { return };
        let (theirs, own) = (self.outbox(rank), self.outbox(self.rank));
        let pieces = theirs.pieces(step, bytes.min(location.bytes));
        while let Some((at, length)) = claim(&pieces) {
            // SAFETY: this rank's data, and the buffer of a rank that waits until all pieces are
            // copied. Only the claimer copies a piece.
            unsafe { copy(from.wrapping_add(at), location.to.wrapping_add(at), length) };
            pieces.finish(None);
            own.doorbell.ring();
        }
    }

    fn receive(&mut self, mpi: &Mpi, data: Elements, root: usize) -> Result<(), Failed> {
        let (target, room) = (data.target(), data.bytes());
        let step = self.step();
        let bytes = match self.await_published(root, step) {
            Published::Data(from, bytes) => {
                // SAFETY: the root's data stays until this rank is done. The buffer has `room`
                // bytes.
                unsafe { copy(from, target.address, bytes.min(room)) };
                bytes
            }
            Published::Location(location) => {
                self.fetch(step, root, location, target.address, room);
                location.bytes
            }
        };
        self.finish();
        data.unpack(mpi, self.comm, target)?;
        if bytes > room { Err(self.truncated(mpi)) } else { Ok(()) }
    }

    /// Copies the root's data from a location, with the root's help if it offers that.
    fn fetch(&mut self, step: u64, root: usize, location: Location, to: *mut u8, room: usize) {
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

    /// Returns the error for data that is larger than the program's buffer.
    fn truncated(&self, mpi: &Mpi) -> c_int {
        // SAFETY: MPI accepts its own error class for the error handler, which may not return.
        match unsafe { (mpi.comm_call_errhandler)(self.comm, mpi.err_truncate()) } {
            SUCCESS => mpi.err_truncate(),
            error => error,
        }
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
