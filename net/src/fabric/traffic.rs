//! Messages on their way: out, in, and out to the user in order.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;

use slotmap::{DefaultKey, Key as _};
use zerocopy::IntoBytes;

use super::Fabric;
use crate::carrier::{self, Data, Happened, Landing, Way, key_of};
use crate::error::FabricError;
use crate::event::{Event, Peer, SendId, Sending};
use crate::payload::Payload;
use crate::session::{INCOMING, Incoming, Phase, Session};
use crate::wire::{Header, Kind, USER_HEADER_BYTES_MAX};

impl Fabric {
    /// Sends a message on a connection that stands.
    pub(super) fn post(
        &mut self,
        key: DefaultKey,
        kind: Kind,
        user_header: &[u8],
        payload: Payload,
        id: u64,
    ) -> Result<Sending, FabricError> {
        let Phase::Open(link) = &mut self.sessions[key].phase else {
            unreachable!("it stands");
        };
        let header = Header::new(kind, link.session, link.sent, link.ours, user_header.len());
        link.sent += 1;
        let mut bytes = [0; size_of::<Header>() + USER_HEADER_BYTES_MAX];
        let (start, rest) = bytes.split_at_mut(size_of::<Header>());
        start.copy_from_slice(header.as_bytes());
        rest[..user_header.len()].copy_from_slice(user_header);
        let bytes = &bytes[..size_of::<Header>() + user_header.len()];
        if self.transmit(key, bytes, payload, id) {
            Ok(Sending::Pending(SendId(id)))
        } else if self.sessions.get(key).is_some_and(|s| matches!(s.phase, Phase::Open(_))) {
            Ok(Sending::Done)
        } else {
            Err(FabricError::Gone)
        }
    }

    /// Passes a message to its carrier. Returns true if an event about it will follow.
    pub(super) fn transmit(
        &mut self,
        key: DefaultKey,
        header: &[u8],
        payload: Payload,
        id: u64,
    ) -> bool {
        let Some(session) = self.sessions.get_mut(key) else { return false };
        let Some(endpoint) = session.endpoint else { return false };
        let send = self.sends.insert((key, id));
        self.is_idle = false;
        match self.carriers.send(endpoint, header, payload, send.data().as_ffi()) {
            carrier::Sending::Pending => {
                session.operations += 1;
                true
            }
            carrier::Sending::Done => {
                self.sends.remove(send);
                false
            }
            carrier::Sending::Failed(why) => {
                self.sends.remove(send);
                self.lose(key, why.into_owned());
                false
            }
        }
    }

    /// Handles an event of a carrier, given by its place in the list.
    pub(super) fn happened(&mut self, carrier: usize, happened: Happened) {
        match happened {
            Happened::Came { header, data, way } => self.came((carrier, way), header, data),
            Happened::Sent(send, result) => {
                let send = key_of(send);
                let (key, id) = self.sends.remove(send).expect("completes once");
                if id != 0 {
                    let sent = if result.is_ok() { Event::Sent } else { Event::Unsent };
                    self.events.push_back(sent(SendId(id)));
                }
                self.completed(key);
                if let Err(why) = result {
                    self.lose(key, why.into_owned());
                }
            }
            Happened::Received(receipt, payload) => {
                let receipt = key_of(receipt);
                let (key, number) = self.receipts.remove(receipt).expect("completes once");
                self.completed(key);
                let Some(session) = self.sessions.get_mut(key) else { return };
                match (payload, session.incoming.get_mut(number)) {
                    (Some(payload), Some(incoming)) => {
                        incoming.payload = Some(payload);
                        self.deliver(key);
                    }
                    _ => self.lose(key, "a message broke off".to_owned()),
                }
            }
            Happened::Failed(tag, why) => {
                self.way_failed(tag, why.into_owned());
            }
            Happened::Closed(tag) => self.completed(key_of(tag & !INCOMING)),
        }
    }

    /// Handles an incoming message: finds its connection and checks its token.
    pub(super) fn came(&mut self, way: (usize, Way), mut bytes: Vec<u8>, data: Data) {
        let carrier = way.0;
        let Some((header, kind, user_header)) = Header::parse(&bytes) else {
            self.dropped.malformed += 1;
            return self.refuse(carrier, data);
        };
        match (kind, data) {
            (Kind::Hello, Data::Here(payload)) => self.answer(way, header, &payload),
            (Kind::Welcome, Data::Here(payload)) => self.welcomed(header, &payload),
            (Kind::Ready | Kind::Data | Kind::Bye | Kind::Reset, data) => {
                let key = key_of(header.session.get());
                let link = self.sessions.get(key).and_then(Session::link);
                if !link.is_some_and(|link| link.theirs.matches(&header.token)) {
                    self.dropped.unauthenticated += 1;
                    return self.refuse(carrier, data);
                }
                if kind == Kind::Reset {
                    self.refuse(carrier, data);
                    return self.lose(key, "it has given up the connection".to_owned());
                }
                self.open(key, None);
                let lower = header.sequence.get();
                bytes.drain(..bytes.len() - user_header.len());
                let incoming = Incoming { kind, header: bytes, payload: None };
                let Some(session) = self.sessions.get_mut(key) else {
                    return self.refuse(carrier, data);
                };
                let number = session.incoming.number_of(lower);
                let is_new = |&n: &u64| session.incoming.insert(n, incoming).is_ok();
                let Some(number) = number.filter(is_new) else {
                    self.dropped.unauthenticated += 1;
                    return self.refuse(carrier, data);
                };
                self.take(carrier, key, number, data);
                self.deliver(key);
            }
            (_, data) => {
                self.dropped.malformed += 1;
                self.refuse(carrier, data);
            }
        }
    }

    /// Gets a message's data.
    pub(super) fn take(&mut self, carrier: usize, key: DefaultKey, number: u64, data: Data) {
        let session = &mut self.sessions[key];
        let incoming = session.incoming.get_mut(number).expect("just came");
        let bytes = data.bytes();
        let peer = Peer { key, id: session.id };
        let place = match &mut self.place {
            Some(place) if bytes > 0 && incoming.kind == Kind::Data => {
                place(peer, &incoming.header, bytes)
            }
            _ => None,
        };
        let there = match data {
            Data::There(there) => there,
            Data::Here(payload) => {
                incoming.payload = Some(match place {
                    None => Landing::Bytes(payload),
                    Some(place) => {
                        // SAFETY: `place_with` requires that `bytes` bytes can be written at the
                        // user's place.
                        unsafe { place.copy_from(NonNull::from(&payload[..]).cast(), bytes) };
                        Landing::Place(place, bytes)
                    }
                });
                return;
            }
        };
        let landing = match place {
            Some(place) => Some(Landing::Place(place, bytes)),
            None => zeroed(bytes).map(Landing::Bytes),
        };
        let Some(landing) = landing else {
            self.carriers.refuse(carrier, there);
            self.reset(key);
            return self.lose(key, format!("no memory for a message of {bytes} bytes"));
        };
        let receipt = self.receipts.insert((key, number));
        match self.carriers.receive(carrier, there, landing, receipt.data().as_ffi()) {
            None => session.operations += 1,
            landing => {
                self.receipts.remove(receipt);
                incoming.payload = landing;
            }
        }
    }

    pub(super) fn refuse(&mut self, carrier: usize, data: Data) {
        if let Data::There(there) = data {
            self.carriers.refuse(carrier, there);
        }
    }

    /// Hands out what has come, in order.
    pub(super) fn deliver(&mut self, key: DefaultKey) {
        while let Some(session) = self.sessions.get_mut(key) {
            // The peer's bye was its last message. It may have sent others that violate this.
            if matches!(session.phase, Phase::Parting { .. }) {
                return;
            }
            let Some(incoming) = session.incoming.next_if(|m| m.payload.is_some()) else { return };
            let id = session.id;
            match incoming.kind {
                Kind::Data => {
                    let (from, header) = (Peer { key, id }, incoming.header);
                    self.events.push_back(match incoming.payload.expect("whole") {
                        Landing::Bytes(payload) => Event::Message { from, header, payload },
                        Landing::Place(at, bytes) => Event::Placed { from, header, at, bytes },
                    });
                }
                Kind::Bye if matches!(session.phase, Phase::Over(_)) => {}
                Kind::Bye => {
                    let first = matches!(session.phase, Phase::Leaving(_));
                    if !first {
                        self.bye(key);
                    }
                    self.events.push_back(Event::Closed(Peer { key, id }));
                    self.part(key, first);
                }
                Kind::Ready | Kind::Hello | Kind::Welcome | Kind::Reset => {}
            }
        }
    }
}

/// Allocates zeroed memory, or returns `None`. The kernel provides the zeros, so announced data
/// take memory only as they arrive.
fn zeroed(bytes: usize) -> Option<Vec<u8>> {
    if bytes == 0 {
        return Some(Vec::new());
    }
    let layout = Layout::array::<u8>(bytes).ok()?;
    // SAFETY: the layout has a size above 0. The vector gets memory that was allocated with the
    // layout of its type and capacity, and its bytes are zero.
    unsafe {
        let start = NonNull::new(alloc_zeroed(layout))?;
        Some(Vec::from_raw_parts(start.as_ptr(), bytes, bytes))
    }
}
