//! Progress: what has come is taken in and finds its receive; what is done is told.

use std::sync::atomic::Ordering::Relaxed;

use control::Identity;
use sync::pieces;
use sync::ring::{Found, HEADER_SIZE, Message};

use crate::abi;
use crate::engine::completion::{Completion, completion, kind_flag};
use crate::engine::owner::{Entry, Got};
use crate::engine::scatter::scatter;
use crate::engine::space::{Here, ticket};
use crate::engine::state::{Core, Endpoint, Locked, Queue, Sent, State};
use crate::engine::transfer::{Body, Help, Outcome, Placed, Source, Transfer};
use crate::engine::vector::Vector;
use crate::protocol::matching::{Head, Match, Matching};
use crate::protocol::place::Place;
use crate::protocol::posted::Posted;
use crate::protocol::receive::Receive;
use crate::protocol::record::{self, Called, Record};
use crate::protocol::slab::Slab;
use crate::protocol::wire::{ENVELOPE, Envelope, Kind, OFFER, Offer};

/// Most bytes of messages that nobody has asked for. More stay in the ring, and when that is full
/// their senders wait.
const KEPT_MAX: usize = 1 << 30;

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
        self.received(queues, transfer.run(here));
    }

    /// What came of a transfer.
    fn received(&mut self, queues: &mut Slab<Queue>, outcome: Outcome) {
        match outcome {
            Outcome::Done(Transfer { completion, wanted, placed, .. }) => {
                if let Some(Placed { place, .. }) = placed {
                    self.port.head().posted.table.release(place);
                }
                self.receive.complete(queues, completion, wanted);
            }
            Outcome::Unfinished(unfinished) => {
                self.unfinished.push(unfinished);
                // A receive that was just posted may bring us here.
                self.looked();
            }
        }
    }

    /// Lets senders find the receive that was posted last, if it is for large messages.
    #[inline]
    pub fn publish(&mut self, kind: Kind, posted: &Receive) {
        let is_long = posted.buffer.length() >= pieces::BYTES_MIN;
        if !is_long || posted.buffer.list().len() != 1 || posted.multiple != 0 {
            return;
        }
        let matching = if kind == Kind::Plain { &mut self.plain } else { &mut self.tagged };
        let Posted { table, .. } = &self.port.head().posted;
        // The first piece is that of the sender who claims the receive.
        let begin = |place: Place| self.port.head().posted.pieces(place).begin(place.tag(), 1);
        matching.publish(|receive| table.publish(kind, receive, begin));
    }

    /// Takes in what the ring has.
    fn take_in(&mut self, here: &Here, queues: &mut Slab<Queue>, vectors: &Slab<Vector>) {
        let before = self.port.receiver.number();
        while let Found::Message(message) = self.port.receiver.look(&self.port.ring) {
            if !self.take(here, queues, vectors, &message) {
                break;
            }
            self.port.receiver.consume(&self.port.ring, &message);
        }
        let number = self.port.receiver.number();
        if number != before {
            self.port.head().posted.table.take_in(number);
        }
    }

    /// Takes one message, unless it has to stay.
    #[inline]
    fn take(
        &mut self,
        here: &Here,
        queues: &mut Slab<Queue>,
        vectors: &Slab<Vector>,
        message: &Message,
    ) -> bool {
        let length = message.header.length as usize;
        let Some(length) = length.checked_sub(ENVELOPE) else { return true };
        let mut bytes = [0; ENVELOPE];
        self.port.receiver.read(&self.port.ring, message, 0, &mut bytes);
        // What no sender writes is dropped.
        let Some(envelope) = Envelope::parse(&bytes) else { return true };
        let Envelope { kind, tag, data, .. } = envelope;
        let head = Head { source: message.header.source, tag, data, length: length as u64 };
        let is_short = !envelope.is_offer && matches!(kind, Kind::Plain | Kind::Tagged);
        if !is_short || self.owner.is_some() {
            return self.take_other(here, queues, vectors, message, &envelope, head);
        }
        match self.arrive(kind, &head) {
            Some(taken) => self.take_short(queues, kind, message, &head, &taken),
            None => return self.keep(kind, head, message, None, None),
        }
        true
    }

    /// The receive of ours that a message gets.
    #[inline]
    fn arrive(&mut self, kind: Kind, head: &Head) -> Option<Match> {
        let matching = if kind == Kind::Plain { &mut self.plain } else { &mut self.tagged };
        let table = &self.port.head().posted.table;
        matching.arrive(head, |place| table.withdraw(place))
    }

    /// Takes a message that travels in the ring, and has found its receive.
    #[inline]
    fn take_short(
        &mut self,
        queues: &mut Slab<Queue>,
        kind: Kind,
        message: &Message,
        head: &Head,
        taken: &Match,
    ) {
        let completion = completion(kind, head, taken, self.vector);
        let (receiver, ring) = (&self.port.receiver, &self.port.ring);
        scatter(&taken.buffer, completion.length as usize, |at, to| {
            receiver.read(ring, message, ENVELOPE + at, to);
        });
        self.receive.complete(queues, completion, taken.completes);
    }

    /// Takes what is not just a short message for us. Apart: those then find their way in the
    /// processor's cache.
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
            self.memory_was_written(queues, envelope, source);
            return true;
        }
        let mut from = None;
        if envelope.is_offer {
            let mut bytes = [0; OFFER];
            if head.length != OFFER as u64 {
                return true;
            }
            self.port.receiver.read(&self.port.ring, message, ENVELOPE, &mut bytes);
            let offer = Offer::parse(&bytes);
            head.length = offer.length;
            let whom = Identity { id: source >> 16, generation: offer.generation };
            from = Some(Source { whom, offer, in_parts: envelope.in_parts });
        }
        if envelope.is_placed {
            if let Some(source) = from {
                self.placed(kind, &head, source);
            }
            return true;
        }
        let mut entry = None;
        let taken = match &self.owner {
            None => self.arrive(kind, &head),
            Some(owner) => {
                let vector = self.vector.and_then(|vector| vectors.get(vector));
                let sender = vector.and_then(|vector| vector.name(head.source));
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
                let transfer = Transfer { source, to, completion, wanted, placed: None };
                self.transfer(here, queues, transfer, taken.multiple);
            }
            None => self.take_short(queues, kind, message, &head, &taken),
        }
        true
    }

    /// Keeps a message that nobody has asked for; with another provider's receives, in `entry`.
    /// `false`: there are too many, it has to stay.
    #[inline(never)]
    fn keep(
        &mut self,
        kind: Kind,
        head: Head,
        message: &Message,
        from: Option<Source>,
        entry: Option<Box<dyn Entry>>,
    ) -> bool {
        if self.kept > KEPT_MAX {
            if let Some(entry) = entry {
                entry.free();
            }
            return false;
        }
        let length = message.header.length as usize - ENVELOPE;
        let body = match from {
            Some(source) => Body::Offer(source),
            None => {
                let mut bytes = vec![0; length].into_boxed_slice();
                self.port.receiver.read(&self.port.ring, message, ENVELOPE, &mut bytes);
                Body::Bytes(bytes)
            }
        };
        let is_kept = match entry {
            Some(entry) => entry.keep(head, body),
            None => {
                self.matching(kind).keep(head, body);
                true
            }
        };
        if is_kept {
            self.kept += length + HEADER_SIZE;
        }
        is_kept
    }

    /// A message came whose sender has claimed its receive.
    fn placed(&mut self, kind: Kind, head: &Head, source: Source) {
        let slot = source.offer.slot as usize;
        let Some((taken, place)) = self.matching(kind).placed(slot, head.length) else { return };
        let completion = completion(kind, head, &taken, self.vector);
        // SAFETY: a port is never freed.
        let pieces = unsafe { &*std::ptr::from_ref(self.port.head().posted.pieces(place)) };
        let placed = Some(Placed { place, pieces });
        let (to, wanted) = (taken.buffer, taken.completes);
        self.transfers.push_back(Transfer { source, to, completion, wanted, placed });
    }

    /// Somebody has written to our memory, and sends data with it.
    #[cold]
    fn memory_was_written(&mut self, queues: &mut Slab<Queue>, envelope: &Envelope, source: u32) {
        let completion = Completion {
            flags: kind_flag(envelope.kind) | abi::REMOTE_WRITE | abi::REMOTE_CQ_DATA,
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
        self.tell(queues, number, error);
        self.helping.retain(|&helped| helped != number);
        let Some(sent) = self.sent.remove(number) else { return };
        self.records.push(sent.record);
    }

    /// Tells that a large message of ours is done, if it was not told.
    fn tell(&mut self, queues: &mut Slab<Queue>, number: usize, error: i32) {
        let Some(sent) = self.sent.get_mut(number) else { return };
        let Some(completion) = sent.completion.take() else { return };
        self.send.complete(queues, Completion { error, ..completion }, sent.wanted);
    }

    /// We have helped to copy a large message of ours. `copied`: nothing is left to copy.
    fn helped(&mut self, queues: &mut Slab<Queue>, number: usize, copied: Option<i32>) {
        let Some(sent) = self.sent.get_mut(number) else { return };
        sent.is_helped = false;
        if let Some(error) = sent.done {
            self.sent(queues, number, Some(error));
        } else if let Some(error) = copied {
            // The receiver may come later for his part: the record stays.
            self.tell(queues, number, error);
        }
    }

    /// We have copied what we could of a message whose receive we have claimed.
    fn placed_helped(&mut self, here: &Here, queues: &mut Slab<Queue>, number: usize) {
        if let Some(placing) = self.placing.get_mut(number) {
            placing.is_helped = false;
            self.end_placing(here, queues, number);
        }
    }

    /// Tells of messages whose receives we have claimed, and of which all is copied.
    fn finish_placing(&mut self, here: &Here, queues: &mut Slab<Queue>) {
        for number in 0..self.placing.end() {
            self.end_placing(here, queues, number);
        }
    }

    /// Tells of one of these, if all is copied.
    #[inline]
    fn end_placing(&mut self, here: &Here, queues: &mut Slab<Queue>, number: usize) {
        let Some(placing) = self.placing.get(number).filter(|it| !it.is_helped) else { return };
        // Who lives no more has copied all that he will.
        let lives = here.is_living(placing.whom);
        let Some(error) = placing.shares.finished().or((!lives).then_some(abi::ECONNRESET)) else {
            return;
        };
        let Some(placing) = self.placing.remove(number) else { return };
        let completion = Completion { error, ..placing.completion };
        self.send.complete(queues, completion, placing.wanted);
        if self.placing.is_empty() {
            self.holds.clear();
        }
    }

    /// Ends what its senders have finished.
    fn finish(&mut self, here: &Here, queues: &mut Slab<Queue>) {
        let mut at = 0;
        while at < self.unfinished.len() {
            if !self.unfinished[at].is_ready(here) {
                at += 1;
                continue;
            }
            let outcome = self.unfinished.swap_remove(at).finish(here);
            self.received(queues, outcome);
        }
    }

    /// Receives whose senders have ended after they had claimed them.
    fn lose(&mut self, queues: &mut Slab<Queue>, kind: Kind, receives: Vec<Receive>) {
        for receive in receives {
            if let Some(place) = receive.place {
                self.port.head().posted.table.release(place);
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

    /// Takes all receives back from senders. `false`: some of them copy still.
    pub fn withdraw(&mut self) -> bool {
        let table = &self.port.head().posted.table;
        for matching in [&mut self.plain, &mut self.tagged] {
            matching.take_published(|place| table.withdraw(place));
        }
        let mut published = self.plain.published().chain(self.tagged.published());
        published.next().is_none() && self.transfers.is_empty() && self.unfinished.is_empty()
    }

    /// Looks for what the dead have left: a gap in the ring, receives that they have claimed,
    /// and messages that nobody will take.
    fn tend(&mut self, here: &Here, queues: &mut Slab<Queue>, vectors: &Slab<Vector>) {
        let lives = |whose: u32| {
            here.task.control.identity(whose >> 16).is_some_and(|now| ticket(now) == whose)
        };
        let table = &self.port.head().posted.table;
        let is_orphan = |place: &Place| table.claimed_by(*place).is_some_and(|who| !lives(who));
        let published = self.plain.published().chain(self.tagged.published());
        let orphans: Vec<_> = published.filter(is_orphan).collect();
        if !orphans.is_empty() {
            // Who is dead has sent all that he will.
            self.take_in(here, queues, vectors);
        }
        match self.port.receiver.look_closely(&self.port.ring) {
            Found::Unfinished(claimed) if !lives(claimed) => {
                self.port.receiver.skip_dead(&self.port.ring, claimed);
            }
            Found::Nothing => {
                for kind in [Kind::Plain, Kind::Tagged] {
                    let lost = self.matching(kind).take_published(|place| orphans.contains(&place));
                    self.lose(queues, kind, lost);
                }
            }
            _ => {}
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
        self.finish_placing(here, queues);
        if self.last.as_ref().is_some_and(|&(last, _)| !here.is_living(last)) {
            self.let_last_go();
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
    /// Copy what we send, whose receive we have claimed.
    Place(usize, usize, Help),
}

impl State {
    /// Takes in what has come to an endpoint.
    #[inline]
    pub fn progress(&mut self, here: &Here, number: usize) {
        let State { endpoints, queues, vectors } = self;
        let Some(endpoint) = endpoints.get_mut(number) else { return };
        endpoint.take_in(here, queues, vectors);
        endpoint.take_back(queues);
        if !endpoint.unfinished.is_empty() {
            endpoint.finish(here, queues);
        }
        if !endpoint.placing.is_empty() {
            endpoint.finish_placing(here, queues);
        }
        endpoint.looked();
    }

    /// Something that is to be done without the lock.
    #[inline]
    pub fn work(&mut self, number: usize) -> Option<Work> {
        let endpoint = self.endpoints.get_mut(number)?;
        if endpoint.helping.is_empty() && endpoint.transfers.is_empty() {
            return None;
        }
        let work = match endpoint.helping.pop_front() {
            Some(message) => endpoint.sent.get_mut(message).map(|sent| {
                sent.is_helped = true;
                let help = Help::shared(&sent.record, sent.peer);
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
            || !self.placing.is_empty()
            || self.kept > KEPT_MAX;
        self.port.looked(busy);
    }
}

impl Work {
    /// Does it.
    pub fn run(self, core: &Core) {
        match self {
            Self::Help(number, message, help) => {
                let copied = help.run(core.here);
                let mut state = core.lock();
                let State { endpoints, queues, .. } = &mut *state;
                let Some(endpoint) = endpoints.get_mut(number) else { return };
                endpoint.helped(queues, message, copied);
            }
            Self::Place(number, message, help) => {
                help.run(core.here);
                let mut state = core.lock();
                let State { endpoints, queues, .. } = &mut *state;
                let Some(endpoint) = endpoints.get_mut(number) else { return };
                endpoint.placed_helped(core.here, queues, message);
                endpoint.looked();
            }
            Self::Receive(number, transfer) => {
                let outcome = transfer.run(core.here);
                let mut state = core.lock();
                let State { endpoints, queues, .. } = &mut *state;
                let Some(endpoint) = endpoints.get_mut(number) else { return };
                endpoint.received(queues, outcome);
                endpoint.looked();
                drop(state);
                // Another thread may be waiting for it.
                core.ring();
            }
        }
    }
}

impl Locked<'_> {
    /// Gives the lock back, and copies what has just found its receive.
    pub fn work_off(mut self, core: &Core, number: usize) {
        if self.endpoints.get(number).is_none_or(|endpoint| endpoint.transfers.is_empty()) {
            return;
        }
        let work = self.work(number);
        drop(self);
        if let Some(work) = work {
            work.run(core);
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
        let State { endpoints, queues, vectors } = &mut *state;
        let numbers: Vec<_> = endpoints.numbers().collect();
        for number in numbers {
            if let Some(endpoint) = endpoints.get_mut(number) {
                endpoint.tend(self.here, queues, vectors);
                // Where word is only given back in large pieces, senders may wait for a small one.
                endpoint.port.receiver.publish(&endpoint.port.ring);
                endpoint.looked();
            }
        }
    }
}
