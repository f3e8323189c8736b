//! Barrier and broadcast.

use std::ffi::c_int;
use std::ptr;

use sync::pieces::Shares;

use crate::buffer::{Elements, Failed};
use crate::mpi::{Mpi, SUCCESS};
use crate::seat::{EAGER, Place, Sight};
use crate::team::Team;

/// From so many bytes on the root of a broadcast copies, too.
const HELPED: usize = 128 << 10;

impl Team {
    /// `MPI_Barrier`.
    #[inline]
    pub fn barrier(&mut self) {
        let step = self.step();
        self.show_nothing(step);
        self.meet(step);
        self.through();
    }

    /// `MPI_Bcast`. The others follow what the root shows, so nobody waits in vain for a rank
    /// that has another idea of how much it is.
    #[inline]
    pub fn bcast(&mut self, mpi: &Mpi, data: Elements, root: usize) -> Result<(), Failed> {
        if self.rank == root { self.spread(mpi, data) } else { self.receive(mpi, data, root) }
    }

    fn spread(&mut self, mpi: &Mpi, data: Elements) -> Result<(), Failed> {
        let (given, bytes) = (data.given(mpi, self.comm)?, data.bytes());
        let step = self.step();
        if bytes <= EAGER {
            // SAFETY: the program's data, which fits.
            unsafe { self.show_data(step, given.address, bytes) };
            self.through();
            return Ok(());
        }
        let helps = bytes >= HELPED && self.has_processors();
        let to = if helps { given.address } else { ptr::null_mut() };
        self.show_place(step, Place { from: given.address, to, bytes });
        if helps {
            for other in self.others() {
                self.help(other, step, given.address, bytes);
            }
        }
        self.through();
        self.wait_through(step);
        Ok(())
    }

    /// Copies some of what we give into a rank's memory, while it copies the rest.
    fn help(&mut self, rank: usize, step: u64, from: *const u8, bytes: usize) {
        let Sight::Place(place) = self.await_sight(rank, step) else { return };
        let (theirs, ours) = (self.seat(rank), self.seat(self.rank));
        let pieces = theirs.pieces(step, bytes.min(place.bytes));
        while let Some((at, length)) = claim(&pieces) {
            // SAFETY: our data, and room for it, whose rank waits for us. Nobody else copies
            // this piece.
            unsafe { copy(from.wrapping_add(at), place.to.wrapping_add(at), length) };
            pieces.finish(None);
            ours.bell.ring();
        }
    }

    fn receive(&mut self, mpi: &Mpi, data: Elements, root: usize) -> Result<(), Failed> {
        let (taken, room) = (data.taken(), data.bytes());
        let step = self.step();
        let bytes = match self.await_sight(root, step) {
            Sight::Data(from, bytes) => {
                // SAFETY: the root's data, which stays until we are through, and room for it.
                unsafe { copy(from, taken.address, bytes.min(room)) };
                bytes
            }
            Sight::Place(place) => {
                self.fetch(step, root, place, taken.address, room);
                place.bytes
            }
        };
        self.through();
        data.put(mpi, self.comm, taken)?;
        if bytes > room { Err(self.truncated(mpi)) } else { Ok(()) }
    }

    /// Copies what the root has at a place, with its help if it offers that.
    fn fetch(&mut self, step: u64, root: usize, place: Place, to: *mut u8, room: usize) {
        let bytes = place.bytes.min(room);
        if place.to.is_null() {
            // SAFETY: the root's data, which stays until we are through, and room for it.
            return unsafe { copy(place.from, to, bytes) };
        }
        self.seat(self.rank).begin_pieces(step);
        self.show_place(step, Place { from: ptr::null_mut(), to, bytes: room });
        let pieces = self.seat(self.rank).pieces(step, bytes);
        while let Some((at, length)) = claim(&pieces) {
            // SAFETY: as above; nobody else copies this piece.
            unsafe { copy(place.from.wrapping_add(at), to.wrapping_add(at), length) };
            pieces.finish(None);
        }
        self.await_rank(root, || pieces.finished().is_some());
    }

    /// More has come than the program has room for.
    fn truncated(&self, mpi: &Mpi) -> c_int {
        // SAFETY: MPI's own error, for the handler of the communicator, which may not return.
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
/// They are there, and the room; the two are apart.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            4 => to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
            8 => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
            _ => ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}
