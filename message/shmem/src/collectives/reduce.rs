//! Reductions.
//!
//! PEs publish small data, and each PE combines it. Of large data each PE combines a slice of the
//! sources of all PEs, and writes it to the dest of all. Operands are combined in the order of PEs.

use std::ops::Range;

use outbox::kernel::Loop;
use outbox::outbox::DATA_MAX;
use outbox::slices::{PIECE, pieces, slice};
use outbox::spread::copy;

use crate::collectives::channel::Channel;
use crate::collectives::spread::Call;
use crate::context;
use crate::rma;

/// The operation of a reduction on elements of a type.
#[derive(Clone, Copy)]
pub struct Kernel {
    /// Bytes of an element.
    pub size: usize,
    /// Combines elements.
    pub run: Loop,
}

impl Channel {
    /// Writes the combination of all sources to each dest.
    ///
    /// # Safety
    /// The standard's contract of the function `call.f`. `call.bytes` are whole elements.
    pub unsafe fn reduce(&mut self, call: Call, kernel: Kernel) {
        let Call { f, dest, source, bytes } = call;
        self.check(f, source, bytes);
        self.check(f, dest, bytes);
        if bytes == 0 {
            return self.sync(f);
        }
        // SAFETY: this function has the contract of the called ones.
        unsafe {
            self.reduce_near(call, kernel);
            if self.far.is_some() {
                self.reduce_far(call, kernel);
            }
        }
    }

    /// Combines the sources of this node's PEs.
    #[inline]
    unsafe fn reduce_near(&mut self, call: Call, kernel: Kernel) {
        // SAFETY: this function has the contract of the called ones.
        unsafe {
            match () {
                () if self.group.ranks == 1 => call.copy_own(call.dest),
                () if call.bytes <= DATA_MAX => self.reduce_published(call, kernel),
                () => self.reduce_slices(call, kernel),
            }
        }
    }

    unsafe fn reduce_published(&mut self, Call { dest, source, bytes, .. }: Call, kernel: Kernel) {
        let step = self.group.step();
        // SAFETY: the program passed this data, and it fits into a slot.
        unsafe { self.group.publish_data(step, source, bytes) };
        self.group.meet(step);
        let count = bytes / kernel.size;
        let input = |rank| self.group.published(rank, step).data();
        // SAFETY: published data stays until this PE is done. The outboxes do not overlap `dest`.
        unsafe {
            (kernel.run)(dest, input(0), input(1), count);
            for rank in 2..self.group.ranks {
                (kernel.run)(dest, dest, input(rank), count);
            }
        }
        self.group.finish();
    }

    unsafe fn reduce_slices(&mut self, call: Call, kernel: Kernel) {
        let Call { f, dest, source, bytes } = call;
        let step = self.group.step();
        self.group.publish_nothing(step);
        self.group.meet(step);
        let (rank, ranks) = (self.group.rank, self.group.ranks);
        let at = |rank: usize, object: *const u8| self.reach(f, rank, object, bytes);
        let sources: Vec<*const u8> =
            (0..ranks).map(|rank| at(rank, source).cast_const()).collect();
        let dests: Vec<*mut u8> = (0..ranks).map(|rank| at(rank, dest)).collect();
        let mut scratch = match std::ptr::eq(source, dest) {
            true => vec![0; PIECE + kernel.size],
            false => Vec::new(),
        };
        for piece in pieces(slice(bytes / kernel.size, kernel.size, rank, ranks), kernel.size) {
            // In place the result must not replace an operand too early.
            let result = match scratch.is_empty() {
                true => dests[rank].wrapping_add(piece.start * kernel.size),
                false => scratch.as_mut_ptr(),
            };
            // SAFETY: all PEs have objects of this size, and wait until all are done. Only this PE
            // writes or reads this piece now.
            unsafe { combine_piece(kernel, &sources, &dests, result, piece) };
        }
        self.group.finish_all();
    }

    /// Combines the results of the nodes, which all their PEs have in `dest`.
    #[cold]
    unsafe fn reduce_far(&mut self, call: Call, kernel: Kernel) {
        let Call { f, dest, bytes, .. } = call;
        let Some(far) = &self.far else { return };
        let leaders: Vec<i32> = far.leaders.iter().map(|&leader| self.world(leader)).collect();
        let is_leader = self.group.rank == 0;
        self.sync(f);
        let mut result = vec![0_u128; if is_leader { bytes.div_ceil(16) } else { 0 }];
        let mut operand = result.clone();
        if is_leader {
            let (to, from) = (result.as_mut_ptr().cast::<u8>(), operand.as_mut_ptr().cast::<u8>());
            for (at, &leader) in leaders.iter().enumerate() {
                let into = if at == 0 { to } else { from };
                // SAFETY: both vectors have room. The leaders write their dest again only after all
                // have met.
                unsafe {
                    rma::get(f, context::default(), into, dest, bytes, leader);
                    if at > 0 {
                        (kernel.run)(to, to, from, bytes / kernel.size);
                    }
                }
            }
        }
        self.sync(f);
        if is_leader {
            // SAFETY: the program passed `dest`.
            unsafe { copy(result.as_ptr().cast(), dest, bytes) };
        }
        // SAFETY: the leader's dest is the source of the others.
        unsafe { self.broadcast_near(Call { source: dest, ..call }, 0) };
    }
}

/// Combines a piece of all sources in `result`, and copies it to all dests.
unsafe fn combine_piece(
    kernel: Kernel,
    sources: &[*const u8],
    dests: &[*mut u8],
    result: *mut u8,
    piece: Range<usize>,
) {
    let (at, count) = (piece.start * kernel.size, piece.len());
    let from = |rank: usize| sources[rank].wrapping_add(at);
    // SAFETY: the caller guarantees all objects, and that nobody else uses the piece.
    unsafe {
        (kernel.run)(result, from(0), from(1), count);
        for rank in 2..sources.len() {
            (kernel.run)(result, result, from(rank), count);
        }
        for dest in dests.iter().map(|dest| dest.wrapping_add(at)) {
            if dest != result {
                copy(result, dest, count * kernel.size);
            }
        }
    }
}
