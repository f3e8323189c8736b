//! Reductions.
//!
//! Ranks publish small data, and each receiver of the result combines it. Of large data each rank
//! combines a slice from the buffers of all ranks, and writes it into those of the receivers.

use std::ops::Range;

use outbox::outbox::{DATA_MAX, Location, Published};
use outbox::slices::{pieces, slice};
use outbox::spread::copy;

use crate::buffer::Failed;
use crate::kernel::Kernel;
use crate::mpi::Mpi;
use crate::team::Team;

/// The ranks that receive the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receivers {
    /// All ranks: `MPI_Allreduce`.
    All,
    /// One rank: `MPI_Reduce`.
    Root(usize),
}

impl Team {
    /// `MPI_Allreduce` and `MPI_Reduce`. `from` is this rank's input. `to` is its output buffer, if
    /// it receives the result. The two may be the same.
    #[inline]
    pub fn reduce(
        &mut self,
        mpi: &Mpi,
        kernel: &Kernel,
        from: *const u8,
        to: *mut u8,
        count: usize,
        receivers: Receivers,
    ) -> Result<(), Failed> {
        if count * kernel.size <= DATA_MAX {
            self.reduce_published(mpi, kernel, from, to, count, receivers)
        } else {
            self.reduce_slices(mpi, kernel, from, to, count, receivers)
        }
    }

    fn reduce_published(
        &mut self,
        mpi: &Mpi,
        kernel: &Kernel,
        from: *const u8,
        to: *mut u8,
        count: usize,
        receivers: Receivers,
    ) -> Result<(), Failed> {
        let step = self.step();
        // SAFETY: the program passed this data, and it fits into a slot.
        unsafe { self.publish_data(step, from, count * kernel.size) };
        match receivers {
            Receivers::All => self.meet(step),
            Receivers::Root(root) if root == self.rank => {
                for other in self.others() {
                    self.await_published(other, step);
                }
            }
            Receivers::Root(_) => {
                self.finish();
                return Ok(());
            }
        }
        let input = |rank| match self.published(rank, step) {
            Published::Data(data, _) => data,
            Published::Location(location) => location.from.cast_const(),
        };
        // From the right, so that the order is that of the ranks for any operator. This rank's
        // input is in its outbox, so `to` may overwrite `from`.
        let last = self.ranks - 1;
        // SAFETY: published data stays until this rank is done, and `to` does not overlap it.
        let done = unsafe {
            let first = kernel.combine(mpi, to, input(last - 1), input(last), count);
            first.and_then(|()| {
                (0..last - 1)
                    .rev()
                    .try_for_each(|rank| kernel.combine(mpi, to, input(rank), to, count))
            })
        };
        self.finish();
        done
    }

    fn reduce_slices(
        &mut self,
        mpi: &Mpi,
        kernel: &Kernel,
        from: *const u8,
        to: *mut u8,
        count: usize,
        receivers: Receivers,
    ) -> Result<(), Failed> {
        let step = self.step();
        let bytes = count * kernel.size;
        self.publish_location(step, Location { from: from.cast_mut(), to, bytes });
        self.meet(step);
        let locations: Vec<Location> = (0..self.ranks)
            .map(|rank| match self.published(rank, step) {
                Published::Location(location) => location,
                Published::Data(data, bytes) => {
                    Location { from: data.cast_mut(), to: std::ptr::null_mut(), bytes }
                }
            })
            .collect();
        let mut done = Ok(());
        for piece in pieces(slice(count, kernel.size, self.rank, self.ranks), kernel.size) {
            done = done.and(self.reduce_piece(mpi, kernel, &locations, piece, receivers));
        }
        self.finish_all();
        done
    }

    /// Combines elements of all ranks' buffers.
    fn reduce_piece(
        &mut self,
        mpi: &Mpi,
        kernel: &Kernel,
        locations: &[Location],
        piece: Range<usize>,
        receivers: Receivers,
    ) -> Result<(), Failed> {
        let (ranks, at) = (self.ranks, piece.start * kernel.size);
        let (count, bytes) = (piece.len(), piece.len() * kernel.size);
        let home = match receivers {
            Receivers::All => self.rank,
            Receivers::Root(root) => root,
        };
        let from = |rank: usize| locations[rank].from.wrapping_add(at).cast_const();
        let target = locations[home].to.wrapping_add(at);
        // The operand in the result's buffer must come first. If the order matters, the result is
        // built in scratch memory.
        let is_in_place = std::ptr::eq(from(home), target);
        let (to, last) = match (kernel.is_commutative, is_in_place) {
            (true, _) => (target, home),
            (false, false) => (target, ranks - 1),
            (false, true) => {
                self.scratch.resize(self.scratch.len().max(bytes), 0);
                (self.scratch.as_mut_ptr(), ranks - 1)
            }
        };
        let before = |steps: usize| from((last + ranks - steps) % ranks);
        // SAFETY: all ranks have buffers of this size, and wait until all ranks are done. Only this
        // rank writes or reads this piece now.
        unsafe {
            kernel.combine(mpi, to, before(1), from(last), count)?;
            for steps in 2..ranks {
                kernel.combine(mpi, to, before(steps), to, count)?;
            }
            if to != target {
                copy(to, target, bytes);
            }
            if receivers == Receivers::All {
                for other in self.others() {
                    copy(target, locations[other].to.wrapping_add(at), bytes);
                }
            }
        }
        Ok(())
    }
}
