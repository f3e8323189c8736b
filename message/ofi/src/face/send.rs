//! Sends: a short message travels in the receiver's ring, a large one is offered there.

use libc::{iovec, ssize_t};
use sync::pieces;
use sync::ring::{self, Sender, lines_of};

use crate::abi::{self, Context};
use crate::engine::completion::{Completion, kind_flag};
use crate::engine::port::Peer;
use crate::engine::progress::Work;
use crate::engine::space::{Here, ticket};
use crate::engine::state::{self, Core, Endpoint, Placing, Sent, State};
use crate::engine::transfer::Help;
use crate::face::args::{answer, list};
use crate::face::endpoint_object::EndpointObject;
use crate::protocol::parts::{PARTS, Parts};
use crate::protocol::wire::{EAGER_MAX, ENVELOPE, Envelope, Kind, OFFER, Offer};

/// Flags of a call that has none: the endpoint's flags apply.
pub const DEFAULTS: u64 = u64::MAX;

/// Number of further polls for the receive of a large message, if the last message found its
/// receive. A peer that has just got an answer posts the next receive at about the time of our
/// send. The polls take a tenth of the time of such a message, and save a fifth.
const POLLS: u32 = 8;
/// Pauses of the processor between these polls.
const PAUSES: u32 = 2;

type Result<T = ()> = std::result::Result<T, i32>;

/// A call that sends a message.
pub struct Sending<'a> {
    pub kind: Kind,
    pub parts: &'a [iovec],
    pub to: u64,
    pub tag: u64,
    pub data: Option<u64>,
    pub context: Context,
    /// [`DEFAULTS`]: the endpoint's flags apply.
    pub flags: u64,
    /// The message is copied at once, and has no completion.
    pub injected: bool,
}

/// What the flags and the endpoint say of a message.
struct Terms {
    length: usize,
    completion: Completion,
    /// The completion is reported.
    wanted: bool,
}

impl Sending<'_> {
    /// Sends the message.
    ///
    /// # Safety
    /// The parts are the program's, and stay until the completion.
    #[inline]
    pub unsafe fn send(&self, object: &EndpointObject) -> Result {
        let core = &*object.core;
        let mut state = core.lock();
        let State { endpoints, queues, vectors } = &mut *state;
        let endpoint = endpoints.get_mut(object.number).ok_or(abi::EINVAL)?;
        let peer = state::peer(vectors, endpoint.vector, self.to)?;
        if !endpoint.enabled {
            return Err(abi::EOPBADSTATE);
        }
        let flags = if self.flags == DEFAULTS { endpoint.send_flags } else { self.flags };
        let length: usize = self.parts.iter().map(|part| part.iov_len).sum();
        let injected = self.injected || flags & abi::INJECT != 0;
        if injected && length > EAGER_MAX {
            return Err(abi::EMSGSIZE);
        }
        let held = match endpoint.has_last(core.here, peer.whom) {
            true => None,
            false => Some(core.here.hold(peer.whom).ok_or(abi::ECONNRESET)?),
        };
        if !peer.is_open() {
            return Err(abi::ECONNRESET);
        }
        // A completion at the delivery needs a record, which comes back then.
        let waits = flags & (abi::DELIVERY_COMPLETE | abi::MATCH_COMPLETE) != 0 && !self.injected;
        let completion = Completion {
            context: self.context as usize,
            flags: abi::SEND | kind_flag(self.kind),
            ..Completion::default()
        };
        let wanted = !self.injected && endpoint.send.wants(flags);
        let sent = if length > EAGER_MAX || waits && !injected {
            let terms = Terms { length, completion, wanted };
            self.offer(core, object.number, endpoint, peer, terms, held.is_none())
        } else {
            // SAFETY: this function's contract.
            let sent = unsafe { self.send_short(core.here, endpoint, peer, length) };
            sent.map(|()| {
                endpoint.send.complete(queues, completion, wanted);
                None
            })
        };
        drop((held, state));
        match sent {
            Ok(None) => Ok(()),
            Ok(Some(work)) => {
                work.run(core);
                Ok(())
            }
            Err(abi::EAGAIN) => Err(full(core.here)),
            Err(error) => Err(error),
        }
    }

    /// Sends a message in the receiver's ring. Error: EAGAIN without room, EINVAL.
    ///
    /// # Safety
    /// As for `send`, of `length` bytes.
    #[inline]
    unsafe fn send_short(
        &self,
        here: &Here,
        endpoint: &Endpoint,
        peer: &mut Peer,
        length: usize,
    ) -> Result {
        let mut sender = Sender::new(ticket(here.us), endpoint.source);
        let bytes = Envelope::of(self.kind, self.tag, self.data).bytes();
        // SAFETY: the parts are the program's, by this function's contract.
        let piece = |part: &iovec| unsafe { list(part.iov_base.cast(), part.iov_len) };
        let mut pieces: [&[u8]; 1 + PARTS] = [&[]; 1 + PARTS];
        let places = pieces.get_mut(1..=self.parts.len()).ok_or(abi::EINVAL)?;
        places.iter_mut().zip(self.parts).for_each(|(place, part)| *place = piece(part));
        let reserved = sender.reserve(&peer.ring, lines_of(ENVELOPE + length));
        let reserved = reserved.map_err(|_| abi::EAGAIN)?;
        match self.parts {
            [one] => sender.fill(&peer.ring, &reserved, ring::Kind::Inline, &[&bytes, piece(one)]),
            all => {
                pieces[0] = &bytes;
                let pieces = &pieces[..=all.len()];
                sender.fill(&peer.ring, &reserved, ring::Kind::Inline, pieces)
            }
        };
        peer.queued = reserved.number().wrapping_add(1);
        peer.ring_bell();
        Ok(())
    }

    /// Offers a large message: the ring carries only where it lies. Returns the copy, if the
    /// message has found its receive. Error: EAGAIN without room, EINVAL. `lasting`: the peer stays
    /// held after this call.
    #[inline(never)]
    fn offer(
        &self,
        core: &Core,
        number: usize,
        endpoint: &mut Endpoint,
        peer: &mut Peer,
        terms: Terms,
        lasting: bool,
    ) -> Result<Option<Work>> {
        let Terms { length, completion, wanted } = terms;
        let ticket = ticket(core.here.us);
        let mut sender = Sender::new(ticket, endpoint.source);
        let parts = Parts::of(self.parts).ok_or(abi::EINVAL)?;
        let in_parts = parts.list().len() != 1;
        let table = &peer.head().posted.table;
        // With its receive found, we begin to copy; that needs a lasting hold.
        let is_long = (pieces::BYTES_MIN..=pieces::BYTES_MAX).contains(&(length as u64));
        let looks = is_long && !in_parts && peer.is_alone && lasting;
        if looks {
            table.prepare();
        }
        let reserved = sender.reserve(&peer.ring, lines_of(ENVELOPE + OFFER));
        let reserved = reserved.map_err(|_| abi::EAGAIN)?;
        let look = || {
            let has_taken = looks && table.has_taken(peer.queued);
            has_taken.then(|| table.claim(self.kind, endpoint.source, self.tag, ticket)).flatten()
        };
        let mut claimed = look();
        if looks {
            if peer.finds && claimed.is_none() {
                claimed = (0..POLLS).find_map(|_| {
                    (0..PAUSES).for_each(|_| std::hint::spin_loop());
                    look()
                });
            }
            peer.finds = claimed.is_some();
        }
        let work = claimed.map(|claimed| {
            let bytes = claimed.length.min(length as u64);
            let help = Help::placed(&claimed, *peer, parts.address(), bytes);
            let (whom, shares, is_helped) = (peer.whom, help.shares, true);
            let placing = Placing { whom, shares, completion, wanted, is_helped };
            Work::Place(number, endpoint.placing.add(placing), help)
        });
        let at = match work {
            Some(_) => endpoint.port.address(),
            None => self.record(endpoint, *peer, parts, completion, wanted),
        };
        let offer = Offer {
            at,
            address: parts.address(),
            length: length as u64,
            generation: core.here.us.generation,
            slot: claimed.map_or(0, |claimed| claimed.place.slot() as u32),
        };
        let envelope = Envelope {
            is_offer: true,
            in_parts,
            is_placed: claimed.is_some(),
            ..Envelope::of(self.kind, self.tag, self.data)
        };
        let bytes: [&[u8]; 2] = [&envelope.bytes(), &offer.bytes()];
        sender.fill(&peer.ring, &reserved, ring::Kind::Inline, &bytes);
        peer.ring_bell();
        if work.is_none() {
            peer.queued = reserved.number().wrapping_add(1);
        }
        Ok(work)
    }

    /// Makes the record of a message that has not found its receive. Returns its address.
    fn record(
        &self,
        endpoint: &mut Endpoint,
        peer: Peer,
        parts: Parts,
        completion: Completion,
        wanted: bool,
    ) -> u64 {
        let port = endpoint.port.address();
        let mut record = endpoint.records.pop().unwrap_or_default();
        let at = std::ptr::from_mut(&mut *record);
        let (completion, is_helped, done) = (Some(completion), false, None);
        let number = endpoint.sent.add(Sent { record, peer, completion, wanted, is_helped, done });
        // SAFETY: `at` is the box in `sent`, which no other task knows before the offer is sent.
        unsafe { (*at).begin(number as u64, port, parts) };
        at as u64
    }

    /// Sends the message after this error, if its peer is now found by name.
    ///
    /// # Safety
    /// As for `send`.
    #[cold]
    pub unsafe fn send_again(&self, object: &EndpointObject, error: i32) -> ssize_t {
        if ![abi::EINVAL, abi::ECONNRESET].contains(&error) {
            return -(error as ssize_t);
        }
        let here = object.core.here;
        let found = object.core.lock().seek(here, object.number, self.to, error);
        if found == Err(abi::EAGAIN) {
            full(here);
        }
        // SAFETY: this function's contract.
        answer(found.and_then(|()| unsafe { self.send(object) }))
    }
}

/// The receiver has no room, and may need our processor.
#[cold]
fn full(here: &Here) -> i32 {
    if here.is_crowded() {
        rustix::thread::sched_yield();
    }
    abi::EAGAIN
}
