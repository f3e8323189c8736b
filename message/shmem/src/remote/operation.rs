//! Put, get and atomic operations on PEs of other nodes.

use net::payload::Payload;
use shmem_wire::message::{Action, Op, Place, Signal};

use crate::context::{self, Handle};
use crate::job::{Job, Peer};
use crate::remote::far::Far;
use crate::remote::link::Use;
use crate::strides::Strides;
use crate::word::Word;

/// Most bytes of strided elements that are packed into one message.
const PACKED_MAX: usize = 1 << 20;

/// An operation on a PE of another node: the name of the function, its context and its target.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The name of the function, for messages.
    pub f: &'a str,
    /// The job.
    pub job: &'a Job,
    /// The context.
    pub context: Handle,
    /// The PE.
    pub peer: &'a Peer,
}

impl<'a> Call<'a> {
    fn far(&self) -> &'a Far {
        self.job.far.as_deref().expect("a job over several nodes")
    }

    /// Returns the node of the PE.
    fn node(&self) -> usize {
        self.far().node_of(self.peer.pe)
    }

    fn place(&self, object: *const u8, bytes: usize) -> Place {
        self.job.place(self.f, object, bytes, self.peer)
    }

    /// The context's operations include this one.
    fn note(&self, sequence: u64) {
        let marks = context::marks(self.f, self.context).unwrap_or(&self.far().marks);
        marks.note(self.node(), sequence);
    }

    fn send(&self, action: Action, payload: Payload) {
        let link = &self.far().link;
        self.note(link.send(self.f, self.node(), self.peer.pe, action, payload));
    }

    fn put_payload(&self, payload: Payload, action: impl FnOnce(bool) -> Action) {
        let link = &self.far().link;
        self.note(link.put(self.f, self.node(), self.peer.pe, payload, action));
    }

    /// Sends a request, and waits for the result if `waits`.
    fn ask(&self, action: Action, use_: Use, waits: bool) {
        let (link, node) = (&self.far().link, self.node());
        let sequence = link.ask(self.f, node, self.peer.pe, action, use_);
        match waits {
            true => link.wait_for(self.f, node, sequence),
            false => self.note(sequence),
        }
    }

    /// Copies bytes to a symmetric object. If it waits, `from` may be changed when it returns;
    /// otherwise after `quiet`.
    ///
    /// # Safety
    /// `from` has `bytes` bytes, until it may be changed.
    pub unsafe fn put(&self, object: *mut u8, from: *const u8, bytes: usize, waits: bool) {
        let to = self.place(object, bytes);
        let at = (self.node(), self.peer.pe);
        // SAFETY: this function has the contract of the called one.
        let done = unsafe { self.far().link.write(self.f, at, to, (from, bytes), waits) };
        if done == bytes {
            return;
        }
        let to = Place { offset: to.offset + done as u64, ..to };
        // SAFETY: `Link::put` returns when the payload is no longer needed.
        let payload = unsafe { Payload::borrowed(from.add(done), bytes - done) };
        self.put_payload(payload, |is_early| Action::Put { to, is_early });
    }

    /// Copies bytes to a symmetric object, then updates a signal.
    ///
    /// # Safety
    /// `from` has `bytes` bytes.
    pub unsafe fn put_signal(
        &self,
        object: *mut u8,
        from: *const u8,
        bytes: usize,
        (word, op, value): (*mut u64, Op, u64),
    ) {
        let signal = Signal { at: self.place(word.cast(), size_of::<u64>()), op, value };
        let to = if bytes == 0 { signal.at } else { self.place(object, bytes) };
        // SAFETY: `Link::put` returns when the payload is no longer needed.
        let payload = unsafe { Payload::borrowed(from, bytes) };
        self.put_payload(payload, |is_early| Action::PutSignal { to, is_early, signal });
    }

    /// Copies bytes from a symmetric object. If it does not wait, `to` has them after `quiet`.
    ///
    /// # Safety
    /// `to` has `bytes` bytes, until they have come.
    pub unsafe fn get(&self, to: *mut u8, object: *const u8, bytes: usize, waits: bool) {
        let from = self.place(object, bytes);
        let at = (self.node(), self.peer.pe);
        // SAFETY: this function has the contract of the called one.
        let done = unsafe { self.far().link.read(self.f, at, from, (to, bytes), waits) };
        if done == bytes {
            return;
        }
        let (to, bytes) = (to.wrapping_add(done), bytes - done);
        let from = Place { offset: from.offset + done as u64, ..from };
        let action = Action::Get { from, bytes: bytes as u64 };
        self.ask(action, Use::Bytes(to, bytes), waits);
    }

    /// Copies elements to a symmetric object.
    ///
    /// # Safety
    /// `from` has the elements.
    pub unsafe fn put_elements(&self, object: *mut u8, from: *const u8, strides: Strides) {
        let Strides { element, target, source, n } = strides;
        let first = self.place(object, strides.span(target));
        let (target, source) = (target as usize * element, source as usize * element);
        let per_message = (PACKED_MAX / element).max(1);
        for at in (0..n).step_by(per_message) {
            let n = per_message.min(n - at);
            let mut packed = Vec::with_capacity(n * element);
            for at in at..at + n {
                // SAFETY: the caller guarantees the elements.
                let bytes = unsafe { std::slice::from_raw_parts(from.add(at * source), element) };
                packed.extend_from_slice(bytes);
            }
            let to = Place { offset: first.offset + (at * target) as u64, ..first };
            let (element, stride) = (element as u64, target as u64);
            self.send(Action::Scatter { to, element, stride }, packed.into());
        }
    }

    /// Copies elements from a symmetric object.
    ///
    /// # Safety
    /// `to` has the elements.
    pub unsafe fn get_elements(&self, to: *mut u8, object: *const u8, strides: Strides) {
        let Strides { element, target, source, n } = strides;
        let first = self.place(object, strides.span(source));
        let (target, source) = (target as usize * element, source as usize * element);
        let per_message = (PACKED_MAX / element).max(1);
        for at in (0..n).step_by(per_message) {
            let n = per_message.min(n - at);
            let from = Place { offset: first.offset + (at * source) as u64, ..first };
            let to = to.wrapping_add(at * target);
            let use_ = Use::Elements { to, element, stride: target, n };
            let (element, stride, n) = (element as u64, source as u64, n as u64);
            self.ask(
                Action::Gather { from, element, stride, n },
                use_,
                at as u64 + n == strides.n as u64,
            );
        }
    }

    /// Performs an atomic operation without a result.
    pub fn change<W: Word>(&self, op: Op, object: *mut u8, value: W) {
        self.send(self.atomic(op, object, [value, value], false), Payload::EMPTY);
    }

    /// Stores a word of this library in symmetric memory. `quiet` does not wait for it, since it is
    /// no operation of the program.
    pub fn store(&self, object: *mut u8, value: u64) {
        let action = self.atomic(Op::Set, object, [value, value], false);
        self.far().link.send(self.f, self.node(), self.peer.pe, action, Payload::EMPTY);
    }

    /// Performs an atomic operation. Returns the former value of the object.
    pub fn fetch<W: Word>(&self, op: Op, object: *mut u8, values: [W; 2]) -> W {
        let mut former = 0_u64;
        let to = (&raw mut former).cast();
        let action = self.atomic(op, object, values, true);
        self.ask(action, Use::Word(to, size_of::<W>() as u8), true);
        W::of(former)
    }

    /// The same; `to` has the former value after `quiet`.
    ///
    /// # Safety
    /// `to` has a word, until it has come.
    pub unsafe fn fetch_nbi<W: Word>(&self, op: Op, object: *mut u8, values: [W; 2], to: *mut u8) {
        let action = self.atomic(op, object, values, true);
        self.ask(action, Use::Word(to, size_of::<W>() as u8), false);
    }

    fn atomic<W: Word>(&self, op: Op, object: *mut u8, values: [W; 2], replies: bool) -> Action {
        let at = self.place(object, size_of::<W>());
        let [value, compare] = values.map(W::bits);
        // The compiler knows that other operations compare nothing.
        let compare = if op == Op::CompareSwap { compare } else { 0 };
        Action::Atomic { at, word: size_of::<W>() as u8, op, value, compare, replies }
    }

    /// Stores a value in a word of the PE's control block, at this offset.
    pub fn notify(&self, offset: usize, value: u64) {
        let at = Place { area: shmem_wire::message::Area::Block, offset: offset as u64 };
        let (op, compare, replies) = (Op::Set, 0, false);
        self.send(Action::Atomic { at, word: 8, op, value, compare, replies }, Payload::EMPTY);
    }
}
