//! Collect: each PE gets the blocks of all, in their order.

use outbox::outbox::{DATA_MAX, Location, Published};
use outbox::spread::copy;

use crate::collectives::channel::Channel;
use crate::collectives::spread::Call;
use crate::context;
use crate::rma;

impl Channel {
    /// Writes the sources of all PEs to each dest. `is_equal`: all have the same size.
    ///
    /// # Safety
    /// The standard's contract of the function `call.f`.
    pub unsafe fn collect(&mut self, call: Call, is_equal: bool) {
        self.check(call.f, call.source, call.bytes);
        // SAFETY: this function has the contract of the called ones.
        unsafe {
            match self.far.is_some() {
                true => self.collect_far(call, is_equal),
                false => self.collect_near(call),
            }
        }
    }

    unsafe fn collect_near(&mut self, Call { f, dest, source, bytes }: Call) {
        let (ranks, step) = (self.group.ranks, self.group.step());
        if bytes <= DATA_MAX {
            // SAFETY: the program passed this data, and it fits into a slot.
            unsafe { self.group.publish_data(step, source, bytes) };
        } else {
            let from = source.cast_mut();
            self.group.publish_location(step, Location { from, to: std::ptr::null_mut(), bytes });
        }
        self.group.meet(step);
        let sizes = (0..ranks).map(|rank| self.group.published(rank, step).bytes());
        let total = sizes.sum();
        self.check(f, dest, total);
        let (mut at, mut is_in_slots) = (0, true);
        for rank in 0..ranks {
            let published = self.group.published(rank, step);
            let length = published.bytes();
            let from = match published {
                Published::Data(data, _) => data,
                Published::Location(_) => {
                    is_in_slots = false;
                    self.reach(f, rank, source, length).cast_const()
                }
            };
            // SAFETY: published data stays until this PE is done, and the standard demands that
            // `dest` has room and does not overlap a source.
            unsafe { copy(from, dest.wrapping_add(at), length) };
            at += length;
        }
        match is_in_slots {
            true => self.group.finish(),
            false => self.group.finish_all(),
        }
    }

    /// Collects from several nodes: each PE puts its block to all.
    #[cold]
    unsafe fn collect_far(&mut self, Call { f, dest, source, bytes }: Call, is_equal: bool) {
        let sizes = match is_equal {
            true => vec![bytes as u64; self.n()],
            false => self.exchange_words(f, bytes as u64),
        };
        let at: u64 = sizes[..self.me()].iter().sum();
        let to = dest.wrapping_add(at as usize);
        for pe in 0..self.n() {
            // SAFETY: the program passed these objects.
            unsafe { rma::put(f, context::default(), to, source, bytes, self.world(pe)) };
        }
        rma::quiet();
        self.sync(f);
    }
}
