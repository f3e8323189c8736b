//! All gather, and all to all.

use crate::buffer::{Elements, Failed};
use crate::mpi::Mpi;
use crate::seat::{EAGER, Place, Sight};
use crate::spread::copy;
use crate::team::Team;

/// Which block of what a rank gives we take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block {
    /// All that it gives: `MPI_Allgather`.
    Whole,
    /// That for us: `MPI_Alltoall`.
    Ours,
}

impl Team {
    /// `given` is what we give, and `block` of what each rank gives becomes block after block of
    /// `taken`. `given` may be `None`: in `taken` already, at its place.
    #[inline]
    pub fn exchange(
        &mut self,
        mpi: &Mpi,
        given: Option<Elements>,
        taken: Elements,
        block: Block,
    ) -> Result<(), Failed> {
        let bytes = taken.bytes() / self.ranks;
        let to = taken.taken();
        let gives = match block {
            Block::Whole => bytes,
            Block::Ours => taken.bytes(),
        };
        // What we give, and whether it lies where nobody writes.
        let from = given.unwrap_or(taken).given(mpi, self.comm)?;
        let mut address = from.address.cast_const();
        let mut aside = Vec::new();
        if given.is_none() && block == Block::Whole {
            address = address.wrapping_add(self.rank * bytes);
        } else if given.is_none() && gives > EAGER {
            // SAFETY: the program's data.
            aside.extend_from_slice(unsafe { std::slice::from_raw_parts(address, gives) });
            address = aside.as_ptr();
        }
        let step = self.step();
        let is_shown = gives <= EAGER;
        if is_shown {
            // SAFETY: the program's data, which fits.
            unsafe { self.show_data(step, address, gives) };
        } else {
            let from = address.cast_mut();
            self.show_place(step, Place { from, to: std::ptr::null_mut(), bytes: gives });
        }
        self.meet(step);
        for rank in std::iter::once(self.rank).chain(self.others()) {
            let (shown, length) = match self.sight(rank, step) {
                Sight::Data(data, length) => (data, length),
                Sight::Place(place) => (place.from.cast_const(), place.bytes),
            };
            let skip = if block == Block::Ours { self.rank * bytes } else { 0 };
            let (shown, to) = (shown.wrapping_add(skip), to.address.wrapping_add(rank * bytes));
            if !std::ptr::eq(shown, to) {
                // SAFETY: what it shows stays until we are through, and there is room.
                unsafe { copy(shown, to, bytes.min(length.saturating_sub(skip))) };
            }
        }
        if is_shown {
            self.through()
        } else {
            self.part()
        }
        taken.put(mpi, self.comm, to)
    }
}
