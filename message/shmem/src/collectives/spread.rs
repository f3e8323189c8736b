//! Broadcast.

use std::ptr;

use outbox::outbox::{DATA_MAX, Location, Published};
use outbox::spread::{HELPED_MIN, copy};

use crate::collectives::channel::Channel;
use crate::context;
use crate::rma;

/// The arguments of a collective operation: the caller's objects, and the bytes that it passes.
#[derive(Clone, Copy)]
pub struct Call {
    /// The function's name, for messages.
    pub f: &'static str,
    /// The object that receives.
    pub dest: *mut u8,
    /// The object that sends.
    pub source: *const u8,
    /// Bytes of `source`, or of the part for one PE.
    pub bytes: usize,
}

impl Call {
    /// Copies this PE's source to its own dest, unless they are the same.
    ///
    /// # Safety
    /// Both have `bytes` bytes, and are the same or do not overlap.
    pub unsafe fn copy_own(&self, dest: *mut u8) {
        if !ptr::eq(self.source, dest) {
            // SAFETY: this function has the contract of the copy.
            unsafe { copy(self.source, dest, self.bytes) };
        }
    }
}

impl Channel {
    /// Copies the source of the PE `root` to the dest of all others, and to its own if `is_full`.
    ///
    /// # Safety
    /// The standard's contract of the function `call.f`.
    pub unsafe fn broadcast(&mut self, call: Call, root: usize, is_full: bool) {
        let Call { f, dest, source, bytes } = call;
        self.check(f, source, bytes);
        self.check(f, dest, bytes);
        if bytes == 0 {
            // Nobody waits.
            return;
        }
        // SAFETY: this function has the contract of the called ones.
        unsafe {
            if root == self.me() && is_full {
                call.copy_own(dest);
            }
            if self.far.is_some() {
                return self.broadcast_far(call, root);
            }
            self.broadcast_near(call, root);
        }
    }

    /// Copies the source of a PE of this node to the dest of the node's others.
    ///
    /// # Safety
    /// That of [`broadcast`](Self::broadcast).
    pub unsafe fn broadcast_near(&mut self, call: Call, root: usize) {
        if self.group.ranks == 1 {
            return;
        }
        // SAFETY: this function has the contract of the called ones.
        unsafe {
            match root == self.group.rank {
                true => self.send(call),
                false => self.receive(call, root),
            }
        }
    }

    unsafe fn send(&mut self, Call { f, dest, source, bytes }: Call) {
        let step = self.group.step();
        if bytes <= DATA_MAX {
            // SAFETY: the program passed this data, and it fits into a slot.
            unsafe { self.group.publish_data(step, source, bytes) };
            return self.group.finish();
        }
        let helps = bytes >= HELPED_MIN && self.group.has_processors();
        let from = source.cast_mut();
        let to = if helps { from } else { ptr::null_mut() };
        self.group.publish_location(step, Location { from, to, bytes });
        if helps {
            for other in self.group.others() {
                let to = self.reach(f, other, dest, bytes);
                // SAFETY: the program passed this data.
                unsafe { self.group.help(other, step, source, bytes, Some(to)) };
            }
        }
        self.group.finish();
        self.group.wait_done(step);
    }

    unsafe fn receive(&mut self, Call { f, dest, source, bytes }: Call, root: usize) {
        let step = self.group.step();
        match self.group.await_published(root, step) {
            // SAFETY: the root's data stays until this PE is done. The program passed `dest`.
            Published::Data(from, length) => unsafe { copy(from, dest, length.min(bytes)) },
            Published::Location(location) => {
                let from = self.reach(f, root, source, bytes);
                let location = Location { from, bytes: location.bytes.min(bytes), ..location };
                // SAFETY: the root's source, which stays until this PE is done.
                unsafe { self.group.fetch(step, root, location, dest, bytes) };
            }
        }
        self.group.finish();
    }

    /// Broadcasts to several nodes: first the root puts the data to the leaders of the others.
    ///
    /// # Safety
    /// That of [`broadcast`](Self::broadcast).
    #[cold]
    unsafe fn broadcast_far(&mut self, call: Call, root: usize) {
        let Call { f, dest, source, bytes } = call;
        let root_world = self.world(root) as usize;
        let near = self.near.iter().position(|peer| peer.pe == root_world);
        if root == self.me() {
            let leaders = self.far.iter().flat_map(|far| far.leaders.to_vec());
            let leaders: Vec<i32> = leaders.map(|leader| self.world(leader)).collect();
            for pe in leaders.into_iter().filter(|&pe| self.job.peers[pe as usize].is_far()) {
                // SAFETY: the program passed these objects.
                unsafe { rma::put(f, context::default(), dest, source, bytes, pe) };
            }
            rma::quiet();
        }
        self.sync(f);
        // The leader has the data in its own dest.
        let call = if near.is_none() { Call { source: dest, ..call } } else { call };
        // SAFETY: this function has the contract of the called one.
        unsafe { self.broadcast_near(call, near.unwrap_or(0)) };
    }
}
