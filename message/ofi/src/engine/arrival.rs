//! Arriving messages: an endpoint takes them out of its ring, matches them, and completes receives.

use control::Identity;
use sync::pieces;
use sync::ring::{Found, HEADER_SIZE, Message};

use crate::abi;
use crate::engine::completion::{Completion, completion, kind_flag};
use crate::engine::copy;
use crate::engine::owner::{Entry, Got};
use crate::engine::space::Here;
use crate::engine::state::{Endpoint, Queue};
use crate::engine::transfer::{Body, ClaimedReceive, Outcome, Source, Transfer};
use crate::engine::vector::Vector;
use crate::protocol::matching::{Head, Match, Matching};
use crate::protocol::posted::Posted;
use crate::protocol::receive::Receive;
use crate::protocol::slab::Slab;
use crate::protocol::slot_use::SlotUse;
use crate::protocol::wire::{ENVELOPE_BYTES, Envelope, Kind, RTS_BYTES, Rts};

/// Most bytes of unexpected messages that an endpoint keeps. Further messages stay in the ring, and
/// their senders wait once that is full.
pub const UNEXPECTED_BYTES_MAX: usize = 1 << 30;

impl Endpoint {
    /// Returns the queues of messages of this kind.
    pub fn matching(&mut self, kind: Kind) -> &mut Matching<Body> {
        if kind == Kind::Plain { &mut self.plain } else { &mut self.tagged }
    }

    /// Starts the copy of a rendezvous message that has its receive. `now`: the receive takes
    /// several messages, and the last one must be copied before the buffer is returned.
    pub fn transfer(
        &mut self,
        here: &Here,
        queues: &mut Slab<Queue>,
        transfer: Transfer,
        now: bool,
    ) {
        if !now {
            self.transfers.push_back(transfer);
            return;
        }
        self.finish_transfer(queues, transfer.run(here));
    }

    /// Completes the receive of a transfer, or keeps the transfer for later.
    pub fn finish_transfer(&mut self, queues: &mut Slab<Queue>, outcome: Outcome) {
        match outcome {
            Outcome::Done(Transfer { completion, wanted, claimed, .. }) => {
                if let Some(ClaimedReceive { slot_use, .. }) = claimed {
                    self.port.head().posted.table.release(slot_use);
                }
                self.receive.complete(queues, completion, wanted);
            }
            Outcome::Unfinished(unfinished) => {
                self.unfinished.push(unfinished);
                // The caller may be a call that posts a receive, which makes no progress.
                self.update_watch();
            }
        }
    }

    /// Publishes the receive that was posted last, if it is for large messages.
    #[inline]
    pub fn publish(&mut self, kind: Kind, posted: &Receive) {
        let is_long = posted.buffer.length() >= pieces::BYTES_MIN;
        if !is_long || posted.buffer.list().len() != 1 || posted.multiple != 0 {
            return;
        }
        let matching = if kind == Kind::Plain { &mut self.plain } else { &mut self.tagged };
        let Posted { table, .. } = &self.port.head().posted;
        // The sender that claims the receive also gets the first piece.
        let begin = |slot_use: SlotUse| {
            self.port.head().posted.pieces(slot_use).begin(slot_use.tag(), 1);
        };
        matching.publish(|receive| table.publish(kind, receive, begin));
    }

    /// Takes the messages in the ring.
    pub fn drain_ring(&mut self, here: &Here, queues: &mut Slab<Queue>, vectors: &Slab<Vector>) {
        let before = self.port.receiver.number();
        while let Found::Message(message) = self.port.receiver.look(&self.port.ring) {
            if !self.take(here, queues, vectors, &message) {
                break;
            }
            self.port.receiver.consume(&self.port.ring, &message);
        }
        let number = self.port.receiver.number();
        if number != before {
            self.port.head().posted.table.set_taken(number);
        }
    }

    /// Takes one message. Returns false if it has to stay in the ring.
    #[inline]
    fn take(
        &mut self,
        here: &Here,
        queues: &mut Slab<Queue>,
        vectors: &Slab<Vector>,
        message: &Message,
    ) -> bool {
        let length = message.header.length as usize;
        let Some(length) = length.checked_sub(ENVELOPE_BYTES) else { return true };
        let mut bytes = [0; ENVELOPE_BYTES];
        self.port.receiver.read(&self.port.ring, message, 0, &mut bytes);
        // Malformed messages are dropped.
        let Some(envelope) = Envelope::parse(&bytes) else { return true };
        let Envelope { kind, tag, data, .. } = envelope;
        let head = Head { source: message.header.source, tag, data, length: length as u64 };
        let is_eager = !envelope.is_rts && matches!(kind, Kind::Plain | Kind::Tagged);
        if !is_eager || self.owner.is_some() {
            return self.take_other(here, queues, vectors, message, &envelope, head);
        }
        match self.arrive(kind, &head) {
            Some(taken) => self.receive_eager(queues, kind, message, &head, &taken),
            None => return self.keep(kind, head, message, None, None),
        }
        true
    }

    /// Finds the receive for a message in this endpoint's queues.
    #[inline]
    fn arrive(&mut self, kind: Kind, head: &Head) -> Option<Match> {
        let matching = if kind == Kind::Plain { &mut self.plain } else { &mut self.tagged };
        let table = &self.port.head().posted.table;
        matching.arrive(head, |slot_use| table.withdraw(slot_use))
    }

    /// Copies an eager message into its receive's buffer.
    #[inline]
    fn receive_eager(
        &mut self,
        queues: &mut Slab<Queue>,
        kind: Kind,
        message: &Message,
        head: &Head,
        taken: &Match,
    ) {
        let completion = completion(kind, head, taken, self.vector);
        let (receiver, ring) = (&self.port.receiver, &self.port.ring);
        copy::scatter(&taken.buffer, completion.length as usize, |at, to| {
            receiver.read(ring, message, ENVELOPE_BYTES + at, to);
        });
        self.receive.complete(queues, completion, taken.completes);
    }

    /// Takes a message that is not eager, or whose receives are another provider's. A function of
    /// its own keeps the code for eager messages small.
    #[inline(never)]
    fn take_other(
        &mut self,
        here: &Here,
        queues: &mut Slab<Queue>,
        vectors: &Slab<Vector>,
        message: &Message,
        envelope: &Envelope,
        mut head: Head,
    ) -> bool {
        let (kind, source) = (envelope.kind, head.source);
        if matches!(kind, Kind::Written | Kind::Changed) {
            self.report_remote_write(queues, envelope, source);
            return true;
        }
        let mut from = None;
        if envelope.is_rts {
            let mut bytes = [0; RTS_BYTES];
            if head.length != RTS_BYTES as u64 {
                return true;
            }
            self.port.receiver.read(&self.port.ring, message, ENVELOPE_BYTES, &mut bytes);
            let rts = Rts::parse(&bytes);
            head.length = rts.length;
            let task = Identity { id: source >> 16, generation: rts.generation };
            from = Some(Source { task, rts, in_parts: envelope.in_parts });
        }
        if envelope.is_claimed {
            if let Some(source) = from {
                self.take_claimed(kind, &head, source);
            }
            return true;
        }
        let mut entry = None;
        let taken = match &self.owner {
            None => self.arrive(kind, &head),
            Some(owner) => {
                let vector = self.vector.and_then(|vector| vectors.get(vector));
                let sender = vector.and_then(|vector| vector.fi_addr(head.source));
                match owner.get(kind, &head, sender, &|flags| self.receive.wants(flags)) {
                    Got::Receive(taken) => Some(taken),
                    Got::Entry(left) => {
                        entry = Some(left);
                        None
                    }
                    Got::Nothing => return false,
                    Got::Refusal => {
                        if let Some(source) = from {
                            source.refuse(here);
                        }
                        return true;
                    }
                }
            }
        };
        let Some(taken) = taken else {
            return self.keep(kind, head, message, from, entry);
        };
        match from {
            Some(source) => {
                let completion = completion(kind, &head, &taken, self.vector);
                let (to, wanted) = (taken.buffer, taken.completes);
                let transfer = Transfer { source, to, completion, wanted, claimed: None };
                self.transfer(here, queues, transfer, taken.multiple);
            }
            None => self.receive_eager(queues, kind, message, &head, &taken),
        }
        true
    }

    /// Keeps an unexpected message, in `entry` if the receives are another provider's. Returns
    /// false if there are too many, so that the message has to stay in the ring.
    #[inline(never)]
    fn keep(
        &mut self,
        kind: Kind,
        head: Head,
        message: &Message,
        from: Option<Source>,
        entry: Option<Box<dyn Entry>>,
    ) -> bool {
        if self.unexpected_bytes > UNEXPECTED_BYTES_MAX {
            if let Some(entry) = entry {
                entry.free();
            }
            return false;
        }
        let length = message.header.length as usize - ENVELOPE_BYTES;
        let body = match from {
            Some(source) => Body::Remote(source),
            None => {
                let mut bytes = vec![0; length].into_boxed_slice();
                self.port.receiver.read(&self.port.ring, message, ENVELOPE_BYTES, &mut bytes);
                Body::Bytes(bytes)
            }
        };
        let is_kept = match entry {
            Some(entry) => entry.keep(head, body),
            None => {
                self.matching(kind).add_unexpected(head, body);
                true
            }
        };
        if is_kept {
            self.unexpected_bytes += length + HEADER_SIZE;
        }
        is_kept
    }

    /// Takes a message whose sender has claimed its receive.
    fn take_claimed(&mut self, kind: Kind, head: &Head, source: Source) {
        let slot = source.rts.slot as usize;
        // The slot number is input from outside: without such a receive the message is dropped.
        let found = self.matching(kind).take_claimed(slot, head.length);
        let Some((taken, slot_use)) = found else { return };
        let completion = completion(kind, head, &taken, self.vector);
        let pieces = self.port.head().posted.pieces(slot_use);
        let claimed = Some(ClaimedReceive { slot_use, pieces });
        let (to, wanted) = (taken.buffer, taken.completes);
        self.transfers.push_back(Transfer { source, to, completion, wanted, claimed });
    }

    /// Reports the data of a remote write to this task's memory.
    #[cold]
    fn report_remote_write(&mut self, queues: &mut Slab<Queue>, envelope: &Envelope, source: u32) {
        let completion = Completion {
            flags: kind_flag(envelope.kind) | abi::REMOTE_WRITE | abi::REMOTE_CQ_DATA,
            length: envelope.tag,
            data: envelope.data.unwrap_or(0),
            source: self.vector.map(|vector| (source, vector)),
            ..Completion::default()
        };
        // It completes no receive, so the counter of receives does not change.
        let counter = self.receive.counter.take();
        self.receive.complete(queues, completion, true);
        self.receive.counter = counter;
    }

    /// Completes the transfers of which the senders have copied their last pieces.
    pub fn finish_transfers(&mut self, here: &Here, queues: &mut Slab<Queue>) {
        let mut at = 0;
        while at < self.unfinished.len() {
            if !self.unfinished[at].is_ready(here) {
                at += 1;
                continue;
            }
            let outcome = self.unfinished.swap_remove(at).finish(here);
            self.finish_transfer(queues, outcome);
        }
    }

    /// Fails receives that were claimed by senders that have ended.
    pub fn fail_receives(&mut self, queues: &mut Slab<Queue>, kind: Kind, receives: Vec<Receive>) {
        for receive in receives {
            if let Some(slot_use) = receive.slot_use {
                self.port.head().posted.table.release(slot_use);
            }
            let completion = Completion {
                context: receive.context,
                flags: abi::RECV | kind_flag(kind),
                tag: receive.tag,
                error: abi::ECONNRESET,
                ..Completion::default()
            };
            self.receive.complete(queues, completion, true);
        }
    }

    /// Withdraws all published receives. Returns false while messages are copied into some.
    pub fn withdraw(&mut self) -> bool {
        let table = &self.port.head().posted.table;
        for matching in [&mut self.plain, &mut self.tagged] {
            matching.take_published(|slot_use| table.withdraw(slot_use));
        }
        let mut published = self.plain.published().chain(self.tagged.published());
        published.next().is_none() && self.transfers.is_empty() && self.unfinished.is_empty()
    }
}
