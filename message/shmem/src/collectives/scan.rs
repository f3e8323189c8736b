//! Prefix sums: each PE gets the sum of the sources up to its own.
//!
//! Of large data each PE computes a slice for all PEs, in the order of PEs.

use outbox::outbox::DATA_MAX;
use outbox::slices::{PIECE, pieces, slice};
use outbox::spread::copy;

use crate::collectives::channel::Channel;
use crate::collectives::reduce::Kernel;
use crate::collectives::spread::Call;
use crate::context;
use crate::rma;

impl Channel {
    /// Writes the sum of the sources up to this PE's to its dest. `is_inclusive`: with its own.
    ///
    /// # Safety
    /// The standard's contract of the function `call.f`. `call.bytes` are whole elements, and zero
    /// bytes are a zero.
    pub unsafe fn scan(&mut self, call: Call, kernel: Kernel, is_inclusive: bool) {
        let Call { f, dest, source, bytes } = call;
        self.check(f, source, bytes);
        self.check(f, dest, bytes);
        // SAFETY: this function has the contract of the called ones.
        unsafe {
            match () {
                () if bytes == 0 => self.sync(f),
                () if self.far.is_some() => self.scan_far(call, kernel, is_inclusive),
                () if bytes <= DATA_MAX => self.scan_published(call, kernel, is_inclusive),
                () => self.scan_slices(call, kernel, is_inclusive),
            }
        }
    }

    unsafe fn scan_published(&mut self, call: Call, kernel: Kernel, is_inclusive: bool) {
        let Call { dest, source, bytes, .. } = call;
        let step = self.group.step();
        // SAFETY: the program passed this data, and it fits into a slot.
        unsafe { self.group.publish_data(step, source, bytes) };
        self.group.meet(step);
        let summands = self.group.rank + usize::from(is_inclusive);
        for rank in 0..summands {
            let input = self.group.published(rank, step).data();
            // SAFETY: published data stays until this PE is done. The outboxes do not overlap
            // `dest`.
            unsafe { add(kernel, dest, input, bytes, rank == 0) };
        }
        if summands == 0 {
            // SAFETY: the program passed `dest`.
            unsafe { dest.write_bytes(0, bytes) };
        }
        self.group.finish();
    }

    unsafe fn scan_slices(&mut self, call: Call, kernel: Kernel, is_inclusive: bool) {
        let Call { f, dest, source, bytes } = call;
        let step = self.group.step();
        self.group.publish_nothing(step);
        self.group.meet(step);
        let (rank, ranks, size) = (self.group.rank, self.group.ranks, kernel.size);
        let mut sums = [0, 1].map(|_| vec![0_u8; PIECE + size]);
        for piece in pieces(slice(bytes / size, size, rank, ranks), size) {
            let (at, length) = (piece.start * size, piece.len() * size);
            let [mut sum, mut next] = sums.each_mut().map(|sum| sum.as_mut_ptr());
            for pe in 0..ranks {
                let from = self.reach(f, pe, source, bytes).wrapping_add(at);
                let to = self.reach(f, pe, dest, bytes).wrapping_add(at);
                // SAFETY: all PEs have objects of this size, and wait until all are done. Only this
                // PE uses this piece now. In place, each source is read before it is replaced.
                unsafe {
                    match pe {
                        0 => copy(from, next, length),
                        _ => (kernel.run)(next, sum, from, piece.len()),
                    }
                    match (is_inclusive, pe) {
                        (true, _) => copy(next, to, length),
                        (false, 0) => to.write_bytes(0, length),
                        (false, _) => copy(sum, to, length),
                    }
                }
                (sum, next) = (next, sum);
            }
        }
        self.group.finish_all();
    }

    /// Computes the sum from the sources of PEs on several nodes.
    #[cold]
    unsafe fn scan_far(&mut self, call: Call, kernel: Kernel, is_inclusive: bool) {
        let Call { f, dest, source, bytes } = call;
        self.sync(f);
        let mut sum = vec![0_u128; bytes.div_ceil(16)];
        let mut operand = sum.clone();
        let (sum, operand) = (sum.as_mut_ptr().cast::<u8>(), operand.as_mut_ptr().cast::<u8>());
        for pe in 0..self.me() + usize::from(is_inclusive) {
            // SAFETY: both vectors have room. The sources stay until all have met.
            unsafe {
                rma::get(f, context::default(), operand, source, bytes, self.world(pe));
                add(kernel, sum, operand, bytes, pe == 0);
            }
        }
        self.sync(f);
        // SAFETY: the program passed `dest`.
        unsafe { copy(sum, dest, bytes) };
    }
}

/// Adds a summand to a sum, or begins the sum with it.
unsafe fn add(kernel: Kernel, sum: *mut u8, summand: *const u8, bytes: usize, is_first: bool) {
    // SAFETY: the callers guarantee both ranges, which do not overlap.
    unsafe {
        match is_first {
            true => copy(summand, sum, bytes),
            false => (kernel.run)(sum, sum, summand, bytes / kernel.size),
        }
    }
}
