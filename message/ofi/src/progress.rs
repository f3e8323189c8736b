//! Progress: what has come is taken in and finds its receive; what is done is told.

use std::sync::atomic::Ordering::Relaxed;

use fcp::ring::{Found, HEADER_SIZE, Message};
use pvas::hold::Identity;

use crate::abi;
use crate::matching::{Head, Match, Matching, Parts};
use crate::record::{self, Called, Record};
use crate::slab::Slab;
use crate::space::Here;
use crate::state::{Body, Completion, Core, Endpoint, Queue, Sent, State};
use crate::transfer::{Help, Outcome, Source, Transfer};
use crate::wire::{ENVELOPE, Envelope, Kind, OFFER, Offer};

/// Most bytes of messages that nobody has asked for. More stay in the ring, and when that is full
/// their senders wait.
const KEPT_MAX: usize = 1 << 30;

/// By what a ring's receiver asks whether a sender lives.
pub fn ticket(sender: Identity) -> u32 {
    sender.id << 16 | sender.generation & 0xffff
}

/// What is told of a message once it is received.
pub fn completion(kind: Kind, head: &Head, taken: &Match, vector: Option<usize>) -> Completion {
    let room = taken.buffer.length();
    let length = head.length.min(room);
    let is_cut = head.length > room;
    let flag = |is: bool, flag: u64| if is { flag } else { 0 };
    Completion {
        context: taken.context,
        flags: abi::RECV
            | kind.flag()
            | flag(head.data.is_some(), abi::REMOTE_CQ_DATA)
            | flag(taken.multiple && taken.last, abi::MULTI_RECV),
        length,
        buffer: taken.buffer.address(),
        data: head.data.unwrap_or(0),
        tag: head.tag,
        source: vector.map(|vector| (head.source, vector)),
        error: if is_cut { abi::ETRUNC } else { 0 },
        overflow: head.length - length,
    }
}

/// Copies bytes into a buffer of ours, as many as it has room for.
pub fn scatter(buffer: &Parts, bytes: usize, mut read: impl FnMut(usize, &mut [u8])) {
    let mut done = 0;
    for part in buffer.list() {
        let length = (bytes - done).min(part.length as usize);
        if length == 0 {
            continue;
        }
        // SAFETY: the program's buffer, which it has given us for this.
        let to = unsafe { std::slice::from_raw_parts_mut(part.address as *mut u8, length) };
        read(done, to);
        done += length;
    }
}

impl Endpoint {
    /// Messages of this kind.
    pub fn matching(&mut self, kind: Kind) -> &mut Matching<Body> {
        if kind == Kind::Plain { &mut self.plain } else { &mut self.tagged }
    }

    /// A message that lies in its sender's memory has found its receive. One that shares its
    /// buffer with others is copied at once: the last of them gives the buffer back.
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
        match transfer.run(here) {
            Outcome::Done(Transfer { completion, wanted, .. }) => {
                self.receive.complete(queues, completion, wanted);
            }
            Outcome::Unfinished(unfinished) => self.unfinished.push(unfinished),
        }
    }

    /// Takes in what the ring has.
    fn take_in(&mut self, here: &Here, queues: &mut Slab<Queue>) {
        while let Found::Message(message) = self.port.receiver.look(&self.port.ring) {
            if !self.take(here, queues, &message) {
                break;
            }
            self.port.receiver.consume(&self.port.ring, &message);
        }
    }

    /// Takes one message, unless it has to stay.
    #[inline]
    fn take(&mut self, here: &Here, queues: &mut Slab<Queue>, message: &Message) -> bool {
        let length = message.header.length as usize;
        let Some(length) = length.checked_sub(ENVELOPE) else { return true };
        let mut bytes = [0; ENVELOPE];
        self.port.receiver.read(&self.port.ring, message, 0, &mut bytes);
        // What no sender writes is dropped.
        let Some(envelope) = Envelope::parse(&bytes) else { return true };
        let Envelope { kind, tag, data, .. } = envelope;
        let source = message.header.source;
        if kind == Kind::Event {
            self.memory_was_written(queues, &envelope, source);
            return true;
        }
        let mut head = Head { source, tag, data, length: length as u64 };
        let mut from = None;
        if envelope.is_offer {
            let mut bytes = [0; OFFER];
            if length != OFFER {
                return true;
            }
            self.port.receiver.read(&self.port.ring, message, ENVELOPE, &mut bytes);
            let offer = Offer::parse(&bytes);
            head.length = offer.length;
            let whom = Identity { id: source >> 16, generation: offer.generation };
            from = Some(Source { whom, offer, in_parts: envelope.in_parts });
        }
        let Some(taken) = self.matching(kind).arrive(&head) else {
            if self.kept > KEPT_MAX {
                return false;
            }
            let body = match from {
                Some(source) => Body::Offer(source),
                None => {
                    let mut bytes = vec![0; length].into_boxed_slice();
                    self.port.receiver.read(&self.port.ring, message, ENVELOPE, &mut bytes);
                    Body::Bytes(bytes)
                }
            };
            self.kept += length + HEADER_SIZE;
            self.matching(kind).keep(head, body);
            return true;
        };
        let completion = completion(kind, &head, &taken, self.vector);
        match from {
            Some(source) => {
                let (to, wanted) = (taken.buffer, taken.completes);
                let transfer = Transfer { source, to, completion, wanted };
                self.transfer(here, queues, transfer, taken.multiple);
            }
            None => {
                let (receiver, ring) = (&self.port.receiver, &self.port.ring);
                scatter(&taken.buffer, completion.length as usize, |at, to| {
                    receiver.read(ring, message, ENVELOPE + at, to);
                });
                self.receive.complete(queues, completion, taken.completes);
            }
        }
        true
    }

    /// Somebody has written to our memory, and sends data with it.
    #[cold]
    fn memory_was_written(&mut self, queues: &mut Slab<Queue>, envelope: &Envelope, source: u32) {
        let completion = Completion {
            flags: abi::RMA | abi::REMOTE_WRITE | abi::REMOTE_CQ_DATA,
            length: envelope.tag,
            data: envelope.data.unwrap_or(0),
            source: self.vector.map(|vector| (source, vector)),
            ..Completion::default()
        };
        // No receive has been done.
        let counter = self.receive.counter.take();
        self.receive.complete(queues, completion, true);
        self.receive.counter = counter;
    }

    /// Takes the records that have come back.
    fn take_back(&mut self, queues: &mut Slab<Queue>) {
        let stack = &self.port.head().stack.0;
        if stack.load(Relaxed) == 0 {
            return;
        }
        let mut next = record::take_all(stack);
        while next != 0 {
            // SAFETY: only records of ours get there, and stay until they are taken off.
            let record = unsafe { &*(next as *const Record) };
            next = record.next.load(Relaxed);
            let number = record.number.load(Relaxed) as usize;
            match record.join() {
                Called::Help => self.helping.push_back(number),
                Called::Done => self.sent(queues, number, None),
            }
        }
    }

    /// A large message of ours is done, or will never be.
    fn sent(&mut self, queues: &mut Slab<Queue>, number: usize, error: Option<i32>) {
        let Some(sent) = self.sent.get_mut(number) else { return };
        let error = error.unwrap_or_else(|| sent.record.error.load(Relaxed) as i32);
        sent.done = Some(error);
        if sent.is_helped {
            return;
        }
        self.helping.retain(|&helped| helped != number);
        let Some(sent) = self.sent.remove(number) else { return };
        let Sent { record, mut completion, wanted, .. } = sent;
        completion.error = error;
        self.send.complete(queues, completion, wanted);
        self.records.push(record);
    }

    /// Ends what its senders have finished.
    fn finish(&mut self, here: &Here, queues: &mut Slab<Queue>) {
        let mut at = 0;
        while at < self.unfinished.len() {
            if !self.unfinished[at].is_ready(here) {
                at += 1;
                continue;
            }
            match self.unfinished.swap_remove(at).finish(here) {
                Outcome::Done(Transfer { completion, wanted, .. }) => {
                    self.receive.complete(queues, completion, wanted);
                }
                Outcome::Unfinished(unfinished) => self.unfinished.push(unfinished),
            }
        }
    }

    /// Looks for what the dead have left: a gap in the ring, and messages that nobody will take.
    fn tend(&mut self, here: &Here, queues: &mut Slab<Queue>) {
        if let Found::Unfinished(claimed) = self.port.receiver.look_closely(&self.port.ring) {
            let now = here.task.control.identity(claimed >> 16);
            if now.is_none_or(|now| ticket(now) != claimed) {
                self.port.receiver.skip_dead(&self.port.ring, claimed);
            }
        }
        let dead = |sent: &Sent| !here.is_living(sent.peer.whom);
        let lost: Vec<_> =
            self.sent.numbers().filter(|&n| self.sent.get(n).is_some_and(dead)).collect();
        if !lost.is_empty() {
            // What they have done before they died counts.
            self.take_back(queues);
        }
        for number in lost {
            self.sent(queues, number, Some(abi::ECONNRESET));
        }
    }
}

/// What is to be done without the lock.
#[derive(Debug)]
pub enum Work {
    /// Copy what has found its receive.
    Receive(usize, Transfer),
    /// Help to copy what we have sent.
    Help(usize, usize, Help),
}

impl State {
    /// Takes in what has come to an endpoint.
    #[inline]
    pub fn progress(&mut self, here: &Here, number: usize) {
        let State { endpoints, queues, .. } = self;
        let Some(endpoint) = endpoints.get_mut(number) else { return };
        endpoint.take_in(here, queues);
        endpoint.take_back(queues);
        if !endpoint.unfinished.is_empty() {
            endpoint.finish(here, queues);
        }
        endpoint.looked();
    }

    /// Something that is to be done without the lock.
    pub fn work(&mut self, number: usize) -> Option<Work> {
        let endpoint = self.endpoints.get_mut(number)?;
        let work = match endpoint.helping.pop_front() {
            Some(message) => endpoint.sent.get_mut(message).map(|sent| {
                sent.is_helped = true;
                let help = Help { record: &raw const *sent.record, peer: sent.peer };
                Work::Help(number, message, help)
            }),
            None => endpoint.transfers.pop_front().map(|transfer| Work::Receive(number, transfer)),
        };
        endpoint.looked();
        work
    }
}

impl Endpoint {
    /// Says whether something is still to be done, for those who look without the lock.
    fn looked(&self) {
        let busy = !self.transfers.is_empty()
            || !self.helping.is_empty()
            || !self.unfinished.is_empty()
            || self.kept > KEPT_MAX;
        self.port.looked(busy);
    }
}

impl Work {
    /// Does it.
    pub fn run(self, core: &Core) {
        match self {
            Self::Help(number, message, help) => {
                help.run(core.here);
                let mut state = core.lock();
                let State { endpoints, queues, .. } = &mut *state;
                let Some(endpoint) = endpoints.get_mut(number) else { return };
                let Some(sent) = endpoint.sent.get_mut(message) else { return };
                sent.is_helped = false;
                if let Some(error) = sent.done {
                    endpoint.sent(queues, message, Some(error));
                }
            }
            Self::Receive(number, transfer) => {
                let outcome = transfer.run(core.here);
                let mut state = core.lock();
                let State { endpoints, queues, .. } = &mut *state;
                let Some(endpoint) = endpoints.get_mut(number) else { return };
                match outcome {
                    Outcome::Done(Transfer { completion, wanted, .. }) => {
                        endpoint.receive.complete(queues, completion, wanted);
                    }
                    Outcome::Unfinished(unfinished) => endpoint.unfinished.push(unfinished),
                }
                endpoint.looked();
                drop(state);
                // Another thread may be waiting for it.
                core.bell.ring();
            }
        }
    }
}

impl Core {
    /// Takes in what has come to any endpoint, and does what is to be done.
    pub fn progress_all(&self) {
        let mut state = self.lock();
        let numbers: Vec<_> = state.endpoints.numbers().collect();
        for &number in &numbers {
            state.progress(self.here, number);
        }
        drop(state);
        for number in numbers {
            loop {
                let work = self.lock().work(number);
                let Some(work) = work else { break };
                work.run(self);
            }
        }
    }

    /// Looks after what the dead have left. Not for every look.
    #[cold]
    pub fn tend(&self) {
        let mut state = self.lock();
        let State { endpoints, queues, .. } = &mut *state;
        let numbers: Vec<_> = endpoints.numbers().collect();
        for number in numbers {
            if let Some(endpoint) = endpoints.get_mut(number) {
                endpoint.tend(self.here, queues);
                // Where word is only given back in large pieces, senders may wait for a small one.
                endpoint.port.receiver.publish(&endpoint.port.ring);
                endpoint.looked();
            }
        }
    }
}
