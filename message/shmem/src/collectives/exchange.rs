//! All-to-all: each PE gets a block of each other one.

use outbox::outbox::DATA_MAX;
use outbox::spread::copy;

use crate::collectives::channel::Channel;
use crate::collectives::spread::Call;
use crate::context;
use crate::rma;
use crate::strides::Strides;

impl Channel {
    /// Writes the block for this PE of each PE's source to its dest. `call.bytes` are those of a
    /// block.
    ///
    /// # Safety
    /// The standard's contract of the function `call.f`.
    pub unsafe fn alltoall(&mut self, call: Call) {
        let Call { f, dest, source, bytes } = call;
        let total = bytes.saturating_mul(self.n());
        self.check(f, source, total);
        self.check(f, dest, total);
        if self.far.is_some() {
            // SAFETY: this function has the contract of the called one.
            return unsafe { self.alltoall_far(call) };
        }
        let (rank, step) = (self.group.rank, self.group.step());
        let is_in_slot = total <= DATA_MAX;
        if is_in_slot {
            // SAFETY: the program passed this data, and it fits into a slot.
            unsafe { self.group.publish_data(step, source, total) };
        } else {
            self.group.publish_nothing(step);
        }
        self.group.meet(step);
        for other in std::iter::once(rank).chain(self.group.others()) {
            let from = match is_in_slot {
                true => self.group.published(other, step).data().wrapping_add(rank * bytes),
                false => self.reach(f, other, source.wrapping_add(rank * bytes), bytes),
            };
            // SAFETY: published data and sources stay until this PE is done. `dest` has a block
            // for each PE, and the standard demands that it overlaps no source.
            unsafe { copy(from, dest.wrapping_add(other * bytes), bytes) };
        }
        match is_in_slot {
            true => self.group.finish(),
            false => self.group.finish_all(),
        }
    }

    /// Exchanges blocks between several nodes: each PE puts one to each other.
    #[cold]
    unsafe fn alltoall_far(&mut self, Call { f, dest, source, bytes }: Call) {
        let (me, n) = (self.me(), self.n());
        let to = dest.wrapping_add(me * bytes);
        for pe in (0..n).map(|step| (me + step) % n) {
            let from = source.wrapping_add(pe * bytes);
            // SAFETY: the program passed these objects.
            unsafe { rma::put(f, context::default(), to, from, bytes, self.world(pe)) };
        }
        rma::quiet();
        self.sync(f);
    }

    /// As [`alltoall`](Self::alltoall), with distances between the elements of a block.
    ///
    /// # Safety
    /// The standard's contract of the function `f`.
    pub unsafe fn alltoalls(
        &mut self,
        f: &str,
        dest: *mut u8,
        source: *const u8,
        strides: Strides,
    ) {
        let Strides { element, target, source: stride, n: elements } = strides;
        let (me, n) = (self.me(), self.n());
        let span = |stride: isize| match elements * n {
            0 => 0,
            all => (all - 1).saturating_mul(stride as usize * element).saturating_add(element),
        };
        self.check(f, source, span(stride));
        self.check(f, dest, span(target));
        if elements == 0 {
            return self.sync(f);
        }
        let block = |stride: isize, pe: usize| pe * elements * stride as usize * element;
        if self.far.is_some() {
            for pe in (0..n).map(|step| (me + step) % n) {
                let to = dest.wrapping_add(block(target, me));
                let from = source.wrapping_add(block(stride, pe));
                // SAFETY: the program passed these objects.
                unsafe { rma::iput(f, context::default(), to, from, strides, self.world(pe)) };
            }
            rma::quiet();
            return self.sync(f);
        }
        let step = self.group.step();
        self.group.publish_nothing(step);
        self.group.meet(step);
        for other in std::iter::once(me).chain(self.group.others()) {
            let from = source.wrapping_add(block(stride, me));
            let from = self.reach(f, other, from, element);
            let to = dest.wrapping_add(block(target, other));
            // SAFETY: the whole of both objects has been checked in this PE, and they are
            // symmetric. The source stays until this PE is done.
            unsafe { rma::scatter(from, to, strides) };
        }
        self.group.finish_all();
    }
}
