//! Messages: fi_send, fi_tsend, fi_recv, fi_trecv and their like.

use std::ffi::c_void;

use libc::{iovec, size_t, ssize_t};
use sync::pieces;
use sync::ring::{self, Sender, lines_of};

use crate::abi::{self, Context, Desc, Descs, Ep};
use crate::endpoint::{self, EndpointObject};
use crate::matching::{Head, Match, PARTS, Parts, Receive};
use crate::progress::{Work, completion, scatter, ticket};
use crate::rma::list;
use crate::space::Here;
use crate::state::{self, Body, Completion, Placing, Sent, State};
use crate::transfer::{Help, Transfer};
use crate::wire::{EAGER_MAX, ENVELOPE, Envelope, Kind, OFFER, Offer};

/// The calls for messages without tags.
pub static PLAIN: abi::OpsMsg = abi::OpsMsg {
    size: size_of::<abi::OpsMsg>(),
    recv: Some(recv),
    recvv: Some(recvv),
    recvmsg: Some(recvmsg),
    send: Some(send),
    sendv: Some(sendv),
    sendmsg: Some(sendmsg),
    inject: Some(inject),
    senddata: Some(senddata),
    injectdata: Some(injectdata),
};

/// The calls for messages with tags.
pub static TAGGED: abi::OpsTagged = abi::OpsTagged {
    size: size_of::<abi::OpsTagged>(),
    recv: Some(trecv),
    recvv: Some(trecvv),
    recvmsg: Some(trecvmsg),
    send: Some(tsend),
    sendv: Some(tsendv),
    sendmsg: Some(tsendmsg),
    inject: Some(tinject),
    senddata: Some(tsenddata),
    injectdata: Some(tinjectdata),
};

/// Flags that only say what the endpoint's defaults say otherwise.
const DEFAULTS: u64 = u64::MAX;

/// What is to be sent.
struct Sending<'a> {
    kind: Kind,
    parts: &'a [iovec],
    to: u64,
    tag: u64,
    data: Option<u64>,
    context: Context,
    /// [`DEFAULTS`]: the endpoint's.
    flags: u64,
    /// It is copied at once, and no completion told.
    injected: bool,
}

/// How often we look again for the receive of a large message, where the last one was found: who
/// has just got an answer posts the next receive about when we send. A tenth of what such a
/// message takes, to save a fifth of it.
const LOOKS: u32 = 8;
/// Pauses of the processor between these.
const PAUSES: u32 = 2;

type Result = std::result::Result<(), i32>;

fn answer(result: Result) -> ssize_t {
    result.map_or_else(|error| -(error as ssize_t), |()| 0)
}

fn part(buffer: *const c_void, length: usize) -> iovec {
    iovec { iov_base: buffer.cast_mut(), iov_len: length }
}

impl Sending<'_> {
    /// Sends it.
    ///
    /// # Safety
    /// The parts are the program's, and stay until it is told that the message is sent.
    #[inline]
    unsafe fn send(&self, object: &EndpointObject) -> Result {
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
        // Who wants to know when it is received cannot let it go.
        let waits = flags & (abi::DELIVERY_COMPLETE | abi::MATCH_COMPLETE) != 0 && !self.injected;
        let offered = length > EAGER_MAX || waits && !injected;
        let wanted = !self.injected && endpoint.send.wants(flags);
        let completion = Completion {
            context: self.context as usize,
            flags: abi::SEND | self.kind.flag(),
            ..Completion::default()
        };
        let envelope = Envelope::of(self.kind, self.tag, self.data);
        let (ticket, ring) = (ticket(core.here.us), peer.ring);
        let mut sender = Sender::new(ticket, endpoint.source);
        if !offered {
            let bytes = envelope.bytes();
            // SAFETY: as the caller says.
            let piece = |part: &iovec| unsafe { list(part.iov_base.cast(), part.iov_len) };
            let mut pieces: [&[u8]; 1 + PARTS] = [&[]; 1 + PARTS];
            let places = pieces.get_mut(1..=self.parts.len()).ok_or(abi::EINVAL)?;
            places.iter_mut().zip(self.parts).for_each(|(place, part)| *place = piece(part));
            let Ok(reserved) = sender.reserve(&ring, lines_of(ENVELOPE + length)) else {
                drop((held, state));
                return Err(full(core.here));
            };
            match self.parts {
                [one] => sender.fill(&ring, &reserved, ring::Kind::Inline, &[&bytes, piece(one)]),
                all => {
                    pieces[0] = &bytes;
                    let pieces = &pieces[..=all.len()];
                    sender.fill(&ring, &reserved, ring::Kind::Inline, pieces)
                }
            };
            peer.queued = reserved.number().wrapping_add(1);
            peer.ring_bell();
            endpoint.send.complete(queues, completion, wanted);
            return Ok(());
        }
        let parts = Parts::of(self.parts).ok_or(abi::EINVAL)?;
        let in_parts = parts.list().len() != 1;
        let table = &peer.head().posted.table;
        // Where we find its receive we begin to copy; that needs a lasting hold.
        let is_long = (pieces::BYTES_MIN..=pieces::BYTES_MAX).contains(&(length as u64));
        let looks = is_long && !in_parts && peer.is_alone && held.is_none();
        if looks {
            table.prepare();
        }
        let Ok(reserved) = sender.reserve(&ring, lines_of(ENVELOPE + OFFER)) else {
            drop((held, state));
            return Err(full(core.here));
        };
        let look = || {
            let has_taken = looks && table.has_taken(peer.queued);
            has_taken.then(|| table.claim(self.kind, endpoint.source, self.tag, ticket)).flatten()
        };
        let mut claimed = look();
        if looks {
            if peer.finds && claimed.is_none() {
                claimed = (0..LOOKS).find_map(|_| {
                    (0..PAUSES).for_each(|_| std::hint::spin_loop());
                    look()
                });
            }
            peer.finds = claimed.is_some();
        }
        let help = claimed.map(|claimed| {
            let bytes = claimed.length.min(length as u64);
            let help = Help::placed(&claimed, *peer, parts.address(), bytes);
            let (whom, shares, is_helped) = (peer.whom, help.shares, true);
            let placing = Placing { whom, shares, completion, wanted, is_helped };
            Work::Place(object.number, endpoint.placing.add(placing), help)
        });
        let port = endpoint.port.address();
        let at = match help {
            Some(_) => port,
            None => {
                let mut record = endpoint.records.pop().unwrap_or_default();
                let at = std::ptr::from_mut(&mut *record);
                let (completion, is_helped, done) = (Some(completion), false, None);
                let sent = Sent { record, peer: *peer, completion, wanted, is_helped, done };
                let number = endpoint.sent.add(sent);
                // SAFETY: boxed, and nobody else knows of it yet.
                unsafe { (*at).begin(number as u64, port, parts) };
                at as u64
            }
        };
        let offer = Offer {
            at,
            address: parts.address(),
            length: length as u64,
            generation: core.here.us.generation,
            slot: claimed.map_or(0, |claimed| claimed.place.slot() as u32),
        };
        let envelope =
            Envelope { is_offer: true, in_parts, is_placed: claimed.is_some(), ..envelope };
        let pieces: [&[u8]; 2] = [&envelope.bytes(), &offer.bytes()];
        sender.fill(&ring, &reserved, ring::Kind::Inline, &pieces);
        peer.ring_bell();
        let Some(help) = help else {
            peer.queued = reserved.number().wrapping_add(1);
            return Ok(());
        };
        drop((held, state));
        help.run(core);
        Ok(())
    }
}

impl Sending<'_> {
    /// Sends it after this error, if its peer is found by name meanwhile.
    ///
    /// # Safety
    /// As for `send`.
    #[cold]
    unsafe fn send_again(&self, object: &EndpointObject, error: i32) -> ssize_t {
        if ![abi::EINVAL, abi::ECONNRESET].contains(&error) {
            return -(error as ssize_t);
        }
        let here = object.core.here;
        let found = object.core.lock().seek(here, object.number, self.to, error);
        if found == Err(abi::EAGAIN) {
            full(here);
        }
        // SAFETY: as the caller says.
        answer(found.and_then(|()| unsafe { self.send(object) }))
    }
}

/// There is no room at the receiver's, who may need our processor.
#[cold]
fn full(here: &Here) -> i32 {
    if here.is_crowded() {
        rustix::thread::sched_yield();
    }
    abi::EAGAIN
}

/// What is to be received.
struct Receiving<'a> {
    kind: Kind,
    parts: &'a [iovec],
    from: u64,
    tag: u64,
    ignore: u64,
    context: Context,
    /// [`DEFAULTS`]: the endpoint's.
    flags: u64,
}

impl Receiving<'_> {
    fn post(&self, object: &EndpointObject) -> Result {
        let core = &*object.core;
        let mut state = core.lock();
        let endpoint = state.endpoints.get(object.number).ok_or(abi::EINVAL)?;
        if !endpoint.receives {
            return Err(abi::EOPBADSTATE);
        }
        let flags = if self.flags == DEFAULTS { endpoint.receive_flags } else { self.flags };
        let source = match self.from {
            from if endpoint.directed && from != abi::ADDR_UNSPEC => {
                Some(state.source(core.here, object.number, from)?)
            }
            _ => None,
        };
        if flags & abi::PEEK != 0 {
            // What has come counts, even if it was not taken in yet.
            state.progress(core.here, object.number);
        }
        let State { endpoints, queues, .. } = &mut *state;
        let endpoint = endpoints.get_mut(object.number).ok_or(abi::EINVAL)?;
        let buffer = Parts::of(self.parts).ok_or(abi::EINVAL)?;
        let multiple = if flags & abi::MULTI_RECV != 0 && self.kind == Kind::Plain {
            endpoint.min_multiple
        } else {
            0
        };
        let mut receive = Receive {
            context: self.context as usize,
            source,
            tag: self.tag,
            ignore: self.ignore,
            buffer,
            completes: endpoint.receive.wants(flags),
            multiple,
            place: None,
        };
        if flags & abi::PEEK != 0 {
            return self.peek(core.here, endpoint, queues, &receive, flags);
        }
        let here = core.here;
        if flags & abi::CLAIM != 0 {
            let claimed = endpoint.matching(self.kind).claimed(receive.context);
            let (head, body) = claimed.ok_or(abi::EINVAL)?;
            if flags & abi::DISCARD != 0 {
                drop_body(here, endpoint, body);
                let taken = nothing(&receive);
                let mut done = completion(self.kind, &head, &taken, endpoint.vector);
                (done.error, done.length, done.overflow) = (0, 0, 0);
                endpoint.receive.complete(queues, done, receive.completes);
                return Ok(());
            }
            let taken = Match {
                context: receive.context,
                buffer,
                completes: receive.completes,
                multiple: false,
                last: true,
            };
            deliver(here, endpoint, queues, self.kind, &taken, &head, body);
        } else {
            // A receive of several messages may get some at once.
            loop {
                let found = endpoint.matching(self.kind).receive(&mut receive);
                let Some((taken, head, body)) = found else {
                    endpoint.publish(self.kind, &receive);
                    break;
                };
                deliver(here, endpoint, queues, self.kind, &taken, &head, body);
                if taken.last {
                    break;
                }
            }
        }
        state.work_off(core, object.number);
        Ok(())
    }

    /// Tells of the message that a receive would get; claims or drops it.
    #[cold]
    fn peek(
        &self,
        here: &crate::space::Here,
        endpoint: &mut crate::state::Endpoint,
        queues: &mut crate::slab::Slab<crate::state::Queue>,
        receive: &Receive,
        flags: u64,
    ) -> Result {
        let found = if flags & abi::DISCARD != 0 {
            endpoint.matching(self.kind).discard(receive).map(|(head, body)| {
                drop_body(here, endpoint, body);
                head
            })
        } else {
            endpoint.matching(self.kind).peek(receive, flags & abi::CLAIM != 0)
        };
        let taken = nothing(receive);
        let none = Head { source: 0, tag: self.tag, data: None, length: 0 };
        let mut done = completion(self.kind, &found.unwrap_or(none), &taken, endpoint.vector);
        (done.overflow, done.buffer) = (0, 0);
        match found {
            Some(head) => (done.error, done.length) = (0, head.length),
            None => (done.error, done.source) = (abi::ENOMSG, None),
        }
        endpoint.receive.complete(queues, done, true);
        Ok(())
    }
}

/// What a receive without a buffer gets.
fn nothing(receive: &Receive) -> Match {
    Match {
        context: receive.context,
        buffer: Parts::default(),
        completes: receive.completes,
        multiple: false,
        last: true,
    }
}

/// Nobody wants a message any more.
pub fn drop_body(here: &crate::space::Here, endpoint: &mut crate::state::Endpoint, body: Body) {
    match body {
        Body::Bytes(bytes) => endpoint.kept -= bytes.len() + ring::HEADER_SIZE,
        Body::Offer(source) => {
            endpoint.kept -= crate::wire::OFFER + ring::HEADER_SIZE;
            source.refuse(here);
        }
    }
}

/// A message that was kept has found its receive.
pub fn deliver(
    here: &crate::space::Here,
    endpoint: &mut crate::state::Endpoint,
    queues: &mut crate::slab::Slab<crate::state::Queue>,
    kind: Kind,
    taken: &Match,
    head: &Head,
    body: Body,
) {
    let completion = completion(kind, head, taken, endpoint.vector);
    match body {
        Body::Bytes(bytes) => {
            endpoint.kept -= bytes.len() + ring::HEADER_SIZE;
            scatter(&taken.buffer, completion.length as usize, |at, to| {
                to.copy_from_slice(&bytes[at..at + to.len()]);
            });
            endpoint.receive.complete(queues, completion, taken.completes);
        }
        Body::Offer(source) => {
            endpoint.kept -= crate::wire::OFFER + ring::HEADER_SIZE;
            let (to, wanted) = (taken.buffer, taken.completes);
            let transfer = Transfer { source, to, completion, wanted, placed: None };
            endpoint.transfer(here, queues, transfer, taken.multiple);
        }
    }
}

/// # Safety
/// As libfabric's manual has it.
#[inline]
unsafe fn do_send(ep: Ep, sending: &Sending<'_>) -> ssize_t {
    // SAFETY: as the caller says.
    unsafe {
        match sending.send(endpoint::of(ep)) {
            Ok(()) => 0,
            Err(error) => sending.send_again(endpoint::of(ep), error),
        }
    }
}

/// # Safety
/// As libfabric's manual has it.
#[inline]
unsafe fn do_receive(ep: Ep, receiving: &Receiving<'_>) -> ssize_t {
    // SAFETY: as the caller says.
    answer(receiving.post(unsafe { endpoint::of(ep) }))
}

/// Data of a message whose flags say that it has some.
fn data_of(flags: u64, data: u64) -> Option<u64> {
    (flags & abi::REMOTE_CQ_DATA != 0).then_some(data)
}

unsafe extern "C" fn recv(
    ep: Ep,
    buffer: *mut c_void,
    length: size_t,
    _: Desc,
    from: u64,
    context: Context,
) -> ssize_t {
    let (kind, parts, flags) = (Kind::Plain, &[part(buffer, length)], DEFAULTS);
    // SAFETY: as libfabric's manual has it.
    unsafe { do_receive(ep, &Receiving { kind, parts, from, tag: 0, ignore: 0, context, flags }) }
}

unsafe extern "C" fn recvv(
    ep: Ep,
    parts: *const iovec,
    _: Descs,
    count: size_t,
    from: u64,
    context: Context,
) -> ssize_t {
    let (kind, flags) = (Kind::Plain, DEFAULTS);
    // SAFETY: as libfabric's manual has it.
    unsafe {
        let parts = list(parts, count);
        do_receive(ep, &Receiving { kind, parts, from, tag: 0, ignore: 0, context, flags })
    }
}

unsafe extern "C" fn recvmsg(ep: Ep, message: *const abi::Msg, flags: u64) -> ssize_t {
    // SAFETY: as libfabric's manual has it.
    unsafe {
        let Some(message) = message.as_ref() else { return -(abi::EINVAL as ssize_t) };
        let (from, context) = (message.addr, message.context);
        let parts = list(message.msg_iov, message.iov_count);
        let kind = Kind::Plain;
        do_receive(ep, &Receiving { kind, parts, from, tag: 0, ignore: 0, context, flags })
    }
}

unsafe extern "C" fn trecv(
    ep: Ep,
    buffer: *mut c_void,
    length: size_t,
    _: Desc,
    from: u64,
    tag: u64,
    ignore: u64,
    context: Context,
) -> ssize_t {
    let (kind, parts, flags) = (Kind::Tagged, &[part(buffer, length)], DEFAULTS);
    // SAFETY: as libfabric's manual has it.
    unsafe { do_receive(ep, &Receiving { kind, parts, from, tag, ignore, context, flags }) }
}

unsafe extern "C" fn trecvv(
    ep: Ep,
    parts: *const iovec,
    _: Descs,
    count: size_t,
    from: u64,
    tag: u64,
    ignore: u64,
    context: Context,
) -> ssize_t {
    let (kind, flags) = (Kind::Tagged, DEFAULTS);
    // SAFETY: as libfabric's manual has it.
    unsafe {
        let parts = list(parts, count);
        do_receive(ep, &Receiving { kind, parts, from, tag, ignore, context, flags })
    }
}

unsafe extern "C" fn trecvmsg(ep: Ep, message: *const abi::MsgTagged, flags: u64) -> ssize_t {
    // SAFETY: as libfabric's manual has it.
    unsafe {
        let Some(message) = message.as_ref() else { return -(abi::EINVAL as ssize_t) };
        let (from, context) = (message.addr, message.context);
        let (tag, ignore) = (message.tag, message.ignore);
        let parts = list(message.msg_iov, message.iov_count);
        let kind = Kind::Tagged;
        do_receive(ep, &Receiving { kind, parts, from, tag, ignore, context, flags })
    }
}

/// A message of one part.
fn one<'a>(
    kind: Kind,
    parts: &'a [iovec],
    to: u64,
    tag: u64,
    data: Option<u64>,
    context: Context,
) -> Sending<'a> {
    Sending { kind, parts, to, tag, data, context, flags: DEFAULTS, injected: false }
}

/// The same, copied at once.
fn injected(kind: Kind, parts: &[iovec], to: u64, tag: u64, data: Option<u64>) -> Sending<'_> {
    let (context, flags) = (std::ptr::null_mut(), 0);
    Sending { kind, parts, to, tag, data, context, flags, injected: true }
}

unsafe extern "C" fn send(
    ep: Ep,
    buffer: *const c_void,
    length: size_t,
    _: Desc,
    to: u64,
    context: Context,
) -> ssize_t {
    // SAFETY: as libfabric's manual has it.
    unsafe { do_send(ep, &one(Kind::Plain, &[part(buffer, length)], to, 0, None, context)) }
}

unsafe extern "C" fn sendv(
    ep: Ep,
    parts: *const iovec,
    _: Descs,
    count: size_t,
    to: u64,
    context: Context,
) -> ssize_t {
    // SAFETY: as libfabric's manual has it.
    unsafe { do_send(ep, &one(Kind::Plain, list(parts, count), to, 0, None, context)) }
}

unsafe extern "C" fn sendmsg(ep: Ep, message: *const abi::Msg, flags: u64) -> ssize_t {
    // SAFETY: as libfabric's manual has it.
    unsafe {
        let Some(message) = message.as_ref() else { return -(abi::EINVAL as ssize_t) };
        let parts = list(message.msg_iov, message.iov_count);
        let data = data_of(flags, message.data);
        let (kind, to, context) = (Kind::Plain, message.addr, message.context);
        do_send(ep, &Sending { flags, ..one(kind, parts, to, 0, data, context) })
    }
}

unsafe extern "C" fn inject(ep: Ep, buffer: *const c_void, length: size_t, to: u64) -> ssize_t {
    // SAFETY: as libfabric's manual has it.
    unsafe { do_send(ep, &injected(Kind::Plain, &[part(buffer, length)], to, 0, None)) }
}

unsafe extern "C" fn senddata(
    ep: Ep,
    buffer: *const c_void,
    length: size_t,
    _: Desc,
    data: u64,
    to: u64,
    context: Context,
) -> ssize_t {
    // SAFETY: as libfabric's manual has it.
    unsafe { do_send(ep, &one(Kind::Plain, &[part(buffer, length)], to, 0, Some(data), context)) }
}

unsafe extern "C" fn injectdata(
    ep: Ep,
    buffer: *const c_void,
    length: size_t,
    data: u64,
    to: u64,
) -> ssize_t {
    // SAFETY: as libfabric's manual has it.
    unsafe { do_send(ep, &injected(Kind::Plain, &[part(buffer, length)], to, 0, Some(data))) }
}

unsafe extern "C" fn tsend(
    ep: Ep,
    buffer: *const c_void,
    length: size_t,
    _: Desc,
    to: u64,
    tag: u64,
    context: Context,
) -> ssize_t {
    // SAFETY: as libfabric's manual has it.
    unsafe { do_send(ep, &one(Kind::Tagged, &[part(buffer, length)], to, tag, None, context)) }
}

unsafe extern "C" fn tsendv(
    ep: Ep,
    parts: *const iovec,
    _: Descs,
    count: size_t,
    to: u64,
    tag: u64,
    context: Context,
) -> ssize_t {
    // SAFETY: as libfabric's manual has it.
    unsafe { do_send(ep, &one(Kind::Tagged, list(parts, count), to, tag, None, context)) }
}

unsafe extern "C" fn tsendmsg(ep: Ep, message: *const abi::MsgTagged, flags: u64) -> ssize_t {
    // SAFETY: as libfabric's manual has it.
    unsafe {
        let Some(message) = message.as_ref() else { return -(abi::EINVAL as ssize_t) };
        let parts = list(message.msg_iov, message.iov_count);
        let data = data_of(flags, message.data);
        let (kind, to, context) = (Kind::Tagged, message.addr, message.context);
        do_send(ep, &Sending { flags, ..one(kind, parts, to, message.tag, data, context) })
    }
}

unsafe extern "C" fn tinject(
    ep: Ep,
    buffer: *const c_void,
    length: size_t,
    to: u64,
    tag: u64,
) -> ssize_t {
    // SAFETY: as libfabric's manual has it.
    unsafe { do_send(ep, &injected(Kind::Tagged, &[part(buffer, length)], to, tag, None)) }
}

unsafe extern "C" fn tsenddata(
    ep: Ep,
    buffer: *const c_void,
    length: size_t,
    _: Desc,
    data: u64,
    to: u64,
    tag: u64,
    context: Context,
) -> ssize_t {
    let parts = &[part(buffer, length)];
    // SAFETY: as libfabric's manual has it.
    unsafe { do_send(ep, &one(Kind::Tagged, parts, to, tag, Some(data), context)) }
}

unsafe extern "C" fn tinjectdata(
    ep: Ep,
    buffer: *const c_void,
    length: size_t,
    data: u64,
    to: u64,
    tag: u64,
) -> ssize_t {
    // SAFETY: as libfabric's manual has it.
    unsafe { do_send(ep, &injected(Kind::Tagged, &[part(buffer, length)], to, tag, Some(data))) }
}
