//! Reductions.
//!
//! Small data is shown, and who needs the result puts it together. Of large data each rank puts
//! together a slice, out of all the ranks' buffers, and writes it into those of who wants it.

use std::ops::Range;

use crate::buffer::Failed;
use crate::kernel::Kernel;
use crate::mpi::Mpi;
use crate::seat::{EAGER, Place, Sight};
use crate::spread::copy;
use crate::team::Team;

/// Bytes that are put together at once: they stay in the cache meanwhile.
const PIECE: usize = 16 << 10;
/// Slices begin at multiples of so many bytes.
const LINE: usize = 64;

/// Who gets the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    All,
    Root(usize),
}

impl Team {
    /// `MPI_Allreduce` and `MPI_Reduce`: `from` is our own part, and `to` where the result goes,
    /// if we get it; they may be the same.
    #[inline]
    pub fn reduce(
        &mut self,
        mpi: &Mpi,
        kernel: &Kernel,
        from: *const u8,
        to: *mut u8,
        count: usize,
        whose: Whose,
    ) -> Result<(), Failed> {
        if count * kernel.size <= EAGER {
            self.reduce_shown(mpi, kernel, from, to, count, whose)
        } else {
            self.reduce_slices(mpi, kernel, from, to, count, whose)
        }
    }

    fn reduce_shown(
        &mut self,
        mpi: &Mpi,
        kernel: &Kernel,
        from: *const u8,
        to: *mut u8,
        count: usize,
        whose: Whose,
    ) -> Result<(), Failed> {
        let step = self.step();
        // SAFETY: the program's data, which fits.
        unsafe { self.show_data(step, from, count * kernel.size) };
        match whose {
            Whose::All => self.meet(step),
            Whose::Root(root) if root == self.rank => {
                for other in self.others() {
                    self.await_sight(other, step);
                }
            }
            Whose::Root(_) => {
                self.through();
                return Ok(());
            }
        }
        let shown = |rank| match self.sight(rank, step) {
            Sight::Data(data, _) => data,
            Sight::Place(place) => place.from.cast_const(),
        };
        // From the right, so that the order is that of the ranks whatever the operator. Our own
        // part was shown, so its place may be written.
        let last = self.ranks - 1;
        // SAFETY: all that was shown stays until we are through; `to` is apart from it.
        let done = unsafe {
            let first = kernel.combine(mpi, to, shown(last - 1), shown(last), count);
            first.and_then(|()| {
                (0..last - 1)
                    .rev()
                    .try_for_each(|rank| kernel.combine(mpi, to, shown(rank), to, count))
            })
        };
        self.through();
        done
    }

    fn reduce_slices(
        &mut self,
        mpi: &Mpi,
        kernel: &Kernel,
        from: *const u8,
        to: *mut u8,
        count: usize,
        whose: Whose,
    ) -> Result<(), Failed> {
        let step = self.step();
        let bytes = count * kernel.size;
        self.show_place(step, Place { from: from.cast_mut(), to, bytes });
        self.meet(step);
        let places: Vec<Place> = (0..self.ranks)
            .map(|rank| match self.sight(rank, step) {
                Sight::Place(place) => place,
                Sight::Data(data, bytes) => {
                    Place { from: data.cast_mut(), to: std::ptr::null_mut(), bytes }
                }
            })
            .collect();
        let slice = slice(count, kernel.size, self.rank, self.ranks);
        let mut done = Ok(());
        for first in slice.clone().step_by((PIECE / kernel.size).max(1)) {
            let piece = first..slice.end.min(first + (PIECE / kernel.size).max(1));
            done = done.and(self.reduce_piece(mpi, kernel, &places, piece, whose));
        }
        self.part();
        done
    }

    /// Puts elements of all ranks' buffers together.
    fn reduce_piece(
        &mut self,
        mpi: &Mpi,
        kernel: &Kernel,
        places: &[Place],
        piece: Range<usize>,
        whose: Whose,
    ) -> Result<(), Failed> {
        let (ranks, at) = (self.ranks, piece.start * kernel.size);
        let (count, bytes) = (piece.len(), piece.len() * kernel.size);
        let home = match whose {
            Whose::All => self.rank,
            Whose::Root(root) => root,
        };
        let from = |rank: usize| places[rank].from.wrapping_add(at).cast_const();
        let target = places[home].to.wrapping_add(at);
        // An operand that lies where the result goes must be taken first. Where the order
        // matters, the result is made elsewhere.
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
        // SAFETY: all give and take as much, and wait until all are through; nobody else writes
        // this piece, nor reads it any more.
        unsafe {
            kernel.combine(mpi, to, before(1), from(last), count)?;
            for steps in 2..ranks {
                kernel.combine(mpi, to, before(steps), to, count)?;
            }
            if to != target {
                copy(to, target, bytes);
            }
            if whose == Whose::All {
                for other in self.others() {
                    copy(target, places[other].to.wrapping_add(at), bytes);
                }
            }
        }
        Ok(())
    }
}

/// The elements that a rank puts together: as many as the others, in whole cache lines as far as
/// elements allow.
fn slice(count: usize, size: usize, rank: usize, ranks: usize) -> Range<usize> {
    let whole = (LINE / size).max(1);
    let each = count.div_ceil(ranks).next_multiple_of(whole);
    (rank * each).min(count)..((rank + 1) * each).min(count)
}
