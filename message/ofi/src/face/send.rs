//! Sends: an eager message travels in the receiver's ring, a large one by rendezvous.

use libc::{iovec, ssize_t};
use sync::pieces;
use sync::ring::{self, Sender, lines_of};

use crate::abi::{self, Context};
use crate::engine::completion::{Completion, kind_flag};
use crate::engine::port::Peer;
use crate::engine::progress::Work;
use crate::engine::space::{Here, ticket};
use crate::engine::state::{self, ClaimedSend, Core, Endpoint, PendingSend, State};
use crate::engine::transfer::Help;
use crate::face::args::{answer, list};
use crate::face::endpoint_object::EndpointObject;
use crate::protocol::parts::{PARTS, Parts};
use crate::protocol::posted::Claimed;
use crate::protocol::wire::{EAGER_MAX, ENVELOPE_BYTES, Envelope, Kind, RTS_BYTES, Rts};

/// Flags of a call without flags: the endpoint's flags apply.
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

/// The properties of a message by its call and its endpoint.
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
    /// The parts are readable buffers of the program's, which stay until the completion.
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
        let held = match endpoint.hold_last(core.here, peer.task) {
            true => None,
            false => Some(core.here.hold(peer.task).ok_or(abi::ECONNRESET)?),
        };
        if !peer.is_open() {
            return Err(abi::ECONNRESET);
        }
        // The completion at the delivery comes when the record returns, so such a message has one.
        let waits = flags & (abi::DELIVERY_COMPLETE | abi::MATCH_COMPLETE) != 0 && !self.injected;
        let completion = Completion {
            context: self.context as usize,
            flags: abi::SEND | kind_flag(self.kind),
            ..Completion::default()
        };
        let wanted = !self.injected && endpoint.send.wants(flags);
        let sent = if length > EAGER_MAX || waits && !injected {
            let terms = Terms { length, completion, wanted };
            self.send_rendezvous(core, object.number, endpoint, peer, terms, held.is_none())
        } else {
            // SAFETY: this function's contract, and `length` is the length of all parts.
            let sent = unsafe { self.send_eager(core.here, endpoint, peer, length) };
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

    /// Sends an eager message. Error: EAGAIN without room, EINVAL.
    ///
    /// # Safety
    /// As for `send`. All parts have `length` bytes.
    #[inline]
    unsafe fn send_eager(
        &self,
        here: &Here,
        endpoint: &Endpoint,
        peer: &mut Peer,
        length: usize,
    ) -> Result {
        let mut sender = Sender::new(ticket(here.us), endpoint.source);
        let bytes = Envelope::of(self.kind, self.tag, self.data).bytes();
        // SAFETY: a readable buffer of the program's, by this function's contract.
        let piece = |part: &iovec| unsafe { list(part.iov_base.cast(), part.iov_len) };
        let mut pieces: [&[u8]; 1 + PARTS] = [&[]; 1 + PARTS];
        let places = pieces.get_mut(1..=self.parts.len()).ok_or(abi::EINVAL)?;
        places.iter_mut().zip(self.parts).for_each(|(place, part)| *place = piece(part));
        let reserved = sender.reserve(&peer.ring, lines_of(ENVELOPE_BYTES + length));
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
        peer.ring_doorbell();
        Ok(())
    }

    /// Sends a request to send a large message. Returns the copy to make, if the message has
    /// claimed its receive. `lasting`: the peer stays held after this call. Error: EAGAIN without
    /// room, EINVAL.
    #[inline(never)]
    fn send_rendezvous(
        &self,
        core: &Core,
        number: usize,
        endpoint: &mut Endpoint,
        peer: &mut Peer,
        terms: Terms,
        lasting: bool,
    ) -> Result<Option<Work>> {
        let Terms { length, completion, wanted } = terms;
        let mut sender = Sender::new(ticket(core.here.us), endpoint.source);
        let parts = Parts::of(self.parts).ok_or(abi::EINVAL)?;
        let in_parts = parts.list().len() != 1;
        // A sender that claims the receive copies the message, and needs a lasting hold for that.
        let is_long = (pieces::BYTES_MIN..=pieces::BYTES_MAX).contains(&(length as u64));
        let may_claim = is_long && !in_parts && peer.is_alone && lasting;
        if may_claim {
            peer.head().posted.table.prepare();
        }
        let reserved = sender.reserve(&peer.ring, lines_of(ENVELOPE_BYTES + RTS_BYTES));
        let reserved = reserved.map_err(|_| abi::EAGAIN)?;
        let claimed = if may_claim { self.claim(core.here, endpoint.source, peer) } else { None };
        let work = claimed.map(|claimed| {
            let bytes = claimed.length.min(length as u64);
            let help = Help::claimed(&claimed, *peer, parts.address(), bytes);
            let (task, shares, is_helped) = (peer.task, help.shares, true);
            let send = ClaimedSend { task, shares, completion, wanted, is_helped };
            Work::Claimed(number, endpoint.claimed_sends.add(send), help)
        });
        let at = match work {
            Some(_) => endpoint.port.address(),
            None => self.make_record(endpoint, *peer, parts, completion, wanted),
        };
        let rts = Rts {
            at,
            address: parts.address(),
            length: length as u64,
            generation: core.here.us.generation,
            slot: claimed.map_or(0, |claimed| claimed.slot_use.slot() as u32),
        };
        let envelope = Envelope {
            is_rts: true,
            in_parts,
            is_claimed: claimed.is_some(),
            ..Envelope::of(self.kind, self.tag, self.data)
        };
        let bytes: [&[u8]; 2] = [&envelope.bytes(), &rts.bytes()];
        sender.fill(&peer.ring, &reserved, ring::Kind::Inline, &bytes);
        peer.ring_doorbell();
        if work.is_none() {
            peer.queued = reserved.number().wrapping_add(1);
        }
        Ok(work)
    }

    /// Claims the receive of a large message, if it is in the peer's table.
    fn claim(&self, here: &Here, source: u32, peer: &mut Peer) -> Option<Claimed> {
        let table = &peer.head().posted.table;
        let look = || {
            let has_taken = table.has_taken(peer.queued);
            has_taken.then(|| table.claim(self.kind, source, self.tag, ticket(here.us))).flatten()
        };
        let mut claimed = look();
        if claimed.is_none() && peer.finds {
            // A bounded search of some 0.2 µs: a claim saves a record and its answer, which take
            // longer.
            claimed = (0..POLLS).find_map(|_| {
                (0..PAUSES).for_each(|_| std::hint::spin_loop());
                look()
            });
        }
        peer.finds = claimed.is_some();
        claimed
    }

    /// Makes the record of a message that has not claimed its receive. Returns its address.
    fn make_record(
        &self,
        endpoint: &mut Endpoint,
        peer: Peer,
        parts: Parts,
        completion: Completion,
        wanted: bool,
    ) -> u64 {
        let port = endpoint.port.address();
        let record = endpoint.records.pop().unwrap_or_default();
        let at = std::ptr::from_ref(&*record) as u64;
        let (completion, is_helped, done) = (Some(completion), false, None);
        let send = PendingSend { record, peer, completion, wanted, is_helped, done };
        let number = endpoint.pending.add(send);
        if let Some(send) = endpoint.pending.get_mut(number) {
            send.record.begin(number as u64, port, parts);
        }
        at
    }

    /// Sends the message again after `error`, if the peer is now found by its name.
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

/// Returns EAGAIN: the receiver has no room, and may need the processor. The caller waits, and may
/// have other work, so this does not sleep.
#[cold]
fn full(here: &Here) -> i32 {
    if here.is_crowded() {
        rustix::thread::sched_yield();
    }
    abi::EAGAIN
}
