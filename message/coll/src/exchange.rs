//! `MPI_Allgather` and `MPI_Alltoall`.

use outbox::outbox::{DATA_MAX, Location, Published};
use outbox::spread::copy;

use crate::buffer::{Elements, Failed};
use crate::mpi::Mpi;
use crate::team::Team;

/// The part of each rank's input that this rank receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block {
    /// The whole input: `MPI_Allgather`.
    Whole,
    /// The block for this rank: `MPI_Alltoall`.
    Own,
}

impl Team {
    /// Copies `block` of each rank's input into `output`, in the order of ranks. `input` is this
    /// rank's; if `None`, it is in `output` already.
    #[inline]
    pub fn exchange(
        &mut self,
        mpi: &Mpi,
        input: Option<Elements>,
        output: Elements,
        block: Block,
    ) -> Result<(), Failed> {
        let bytes = output.bytes() / self.ranks;
        let target = output.target();
        let input_bytes = match block {
            Block::Whole => bytes,
            Block::Own => output.bytes(),
        };
        let source = input.unwrap_or(output).source(mpi, self.comm)?;
        let mut address = source.address.cast_const();
        // Input in the output buffer must not be overwritten before all ranks have read it.
        let mut copied = Vec::new();
        if input.is_none() && block == Block::Whole {
            address = address.wrapping_add(self.rank * bytes);
        } else if input.is_none() && input_bytes > DATA_MAX {
            // SAFETY: the program passed this buffer.
            copied.extend_from_slice(unsafe { std::slice::from_raw_parts(address, input_bytes) });
            address = copied.as_ptr();
        }
        let step = self.step();
        let is_in_slot = input_bytes <= DATA_MAX;
        if is_in_slot {
            // SAFETY: the program passed this data, and it fits into a slot.
            unsafe { self.publish_data(step, address, input_bytes) };
        } else {
            let from = address.cast_mut();
            self.publish_location(
                step,
                Location { from, to: std::ptr::null_mut(), bytes: input_bytes },
            );
        }
        self.meet(step);
        for rank in std::iter::once(self.rank).chain(self.others()) {
            let (data, length) = match self.published(rank, step) {
                Published::Data(data, length) => (data, length),
                Published::Location(location) => (location.from.cast_const(), location.bytes),
            };
            let skip = if block == Block::Own { self.rank * bytes } else { 0 };
            let (from, to) = (data.wrapping_add(skip), target.address.wrapping_add(rank * bytes));
            if !std::ptr::eq(from, to) {
                // SAFETY: published data stays until this rank is done, and the output buffer has a
                // block for each rank.
                unsafe { copy(from, to, bytes.min(length.saturating_sub(skip))) };
            }
        }
        if is_in_slot {
            self.finish()
        } else {
            self.finish_all()
        }
        output.unpack(mpi, self.comm, target)
    }
}
