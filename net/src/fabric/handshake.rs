//! The start of a connection: hello, welcome, ready.

use std::collections::VecDeque;

use slotmap::{DefaultKey, Key as _};
use sync::clock;
use zerocopy::{FromBytes, IntoBytes};

use super::{ANSWER_MAX, ANSWERING_MAX, Fabric};
use crate::carrier::{Way, key_of};
use crate::event::{Event, Peer, SendId, Sending};
use crate::order::InOrder;
use crate::payload::Payload;
use crate::secret::{Domain, Nonce, random};
use crate::session::{INCOMING, Link, Outgoing, Phase, Session};
use crate::wire::{Address, Header, Hello, Kind, Welcome};

impl Fabric {
    pub(super) fn hello(&mut self, key: DefaultKey) {
        let Some(session) = self.sessions.get(key) else { return };
        let (_, sections) = Address::parse(&self.address).expect("our own");
        let hello = Hello {
            from: self.id.into(),
            to: session.id.into(),
            session: key.data().as_ffi().into(),
            nonce: session.nonce,
        };
        let payload = [hello.as_bytes(), sections].concat();
        let token = self.secret.token(Domain::Hello, &[&payload]);
        let header = Header::new(Kind::Hello, 0, 0, token, 0);
        self.transmit(key, header.as_bytes(), payload.into(), 0);
    }

    /// Handles a hello, which came on this way.
    pub(super) fn answer(&mut self, way: (usize, Way), header: &Header, payload: &[u8]) {
        let Some((hello, sections)) = Hello::parse(payload) else {
            self.dropped.malformed += 1;
            return;
        };
        let token = self.secret.token(Domain::Hello, &[payload]);
        let id = hello.from.get();
        if !token.matches(&header.token) || hello.to.get() != self.id || id == self.id {
            self.dropped.unauthenticated += 1;
            return;
        }
        // Both call at once: one connection is enough. The other may have closed that and call
        // again, which is another connection.
        let theirs = hello.session.get();
        let is_same = |s: &Session| {
            let is_free = match &s.phase {
                Phase::Calling(_, link) => link.as_ref().is_none_or(|link| link.session == theirs),
                _ => false,
            };
            s.id == id && s.address == sections && is_free
        };
        if let Some((key, session)) = self.sessions.iter_mut().find(|(_, s)| is_same(s)) {
            let (us, them) = ((self.id, &session.nonce), (id, &hello.nonce));
            if let Phase::Calling(_, link) = &mut session.phase {
                *link = Some(Link::new(&self.secret, us, them, theirs));
            }
            if session.incoming_way.is_none() {
                let tag = key.data().as_ffi() | INCOMING;
                session.incoming_way = self.carriers.adopt(way, tag);
            }
            return self.welcome(key, theirs, hello.nonce);
        }
        let answering = |s: &&Session| matches!(s.phase, Phase::Answering(..));
        if self.sessions.values().filter(answering).count() >= ANSWERING_MAX {
            self.dropped.unauthenticated += 1;
            return;
        }
        let deadline = clock::now() + ANSWER_MAX;
        let nonce = random();
        let (us, them) = ((self.id, &nonce), (id, &hello.nonce));
        let link = Link::new(&self.secret, us, them, theirs);
        let key = self.begin(id, sections, Some(way), nonce, Phase::Answering(deadline, link));
        self.welcome(key, theirs, hello.nonce);
    }

    pub(super) fn welcome(&mut self, key: DefaultKey, session: u64, answered: Nonce) {
        let Some(ours) = self.sessions.get(key) else { return };
        let welcome = Welcome {
            from: self.id.into(),
            to: ours.id.into(),
            session: key.data().as_ffi().into(),
            nonce: ours.nonce,
            answered,
        };
        let token = self.secret.token(Domain::Welcome, &[welcome.as_bytes()]);
        let header = Header::new(Kind::Welcome, session, 0, token, 0);
        let payload = welcome.as_bytes().to_vec();
        self.transmit(key, header.as_bytes(), payload.into(), 0);
    }

    /// Our hello is answered.
    pub(super) fn welcomed(&mut self, header: &Header, payload: &[u8]) {
        let Ok(welcome) = Welcome::ref_from_bytes(payload) else {
            self.dropped.malformed += 1;
            return;
        };
        let key = key_of(header.session.get());
        let token = self.secret.token(Domain::Welcome, &[payload]);
        let expected = self.sessions.get(key).filter(|session| {
            let is_awaited = match &session.phase {
                Phase::Calling(_, Some(link)) => link.session == welcome.session.get(),
                Phase::Calling(_, None) => true,
                _ => false,
            };
            token.matches(&header.token)
                && is_awaited
                && welcome.from.get() == session.id
                && welcome.to.get() == self.id
                && welcome.answered == session.nonce
        });
        let Some(session) = expected else {
            self.dropped.unauthenticated += 1;
            return;
        };
        let them = (session.id, &welcome.nonce);
        let us = (self.id, &session.nonce);
        let link = Link::new(&self.secret, us, them, welcome.session.get());
        self.open(key, Some(link));
    }

    /// Opens the connection, and sends the queued messages.
    pub(super) fn open(&mut self, key: DefaultKey, link: Option<Link>) {
        let session = &mut self.sessions[key];
        let link = match (std::mem::replace(&mut session.phase, Phase::Over(None)), link) {
            (Phase::Calling(..), Some(link))
            | (Phase::Calling(_, Some(link)) | Phase::Answering(_, link), None) => link,
            (phase, _) => return session.phase = phase,
        };
        session.phase = Phase::Open(link);
        let (id, address) = (session.id, session.address.clone());
        // A restarted peer, which has another address, has not announced the end of its earlier
        // connection. Another connection of the same process ends in order.
        let is_older = |s: &Session| {
            let stands = matches!(s.phase, Phase::Open(_) | Phase::Leaving(_));
            s.id == id && s.address != address && stands
        };
        let older = self.sessions.iter().find(|&(other, s)| other != key && is_older(s));
        if let Some((older, _)) = older {
            self.lose(older, "replaced by a new connection".to_owned());
        }
        self.events.push_back(Event::Connected(Peer { key, id }));
        let _ = self.post(key, Kind::Ready, &[], Payload::EMPTY, 0);
        while let Some(session) = self.sessions.get_mut(key) {
            if !matches!(session.phase, Phase::Open(_)) {
                break;
            }
            let Some(outgoing) = session.queue.pop_front() else { break };
            let Outgoing { kind, header, payload, id } = outgoing;
            match kind {
                Kind::Bye => self.bye(key),
                _ => match self.post(key, kind, &header, payload, id) {
                    Ok(Sending::Done) => self.events.push_back(Event::Sent(SendId(id))),
                    Ok(Sending::Pending(_)) => {}
                    Err(_) => self.events.push_back(Event::Unsent(SendId(id))),
                },
            }
        }
    }

    /// Creates a session, and its way: back on the way of a hello, or a new one.
    pub(super) fn begin(
        &mut self,
        id: u64,
        sections: &[u8],
        answered: Option<(usize, Way)>,
        nonce: Nonce,
        phase: Phase,
    ) -> DefaultKey {
        let key = self.sessions.insert(Session {
            id,
            address: sections.to_vec(),
            endpoint: None,
            incoming_way: None,
            nonce,
            phase,
            is_wanted: false,
            queue: VecDeque::new(),
            incoming: InOrder::default(),
            operations: 0,
        });
        let tag = key.data().as_ffi();
        let endpoint = match answered {
            Some(way) => self.carriers.answer(way, sections, tag),
            None => self.carriers.connect(sections, tag),
        };
        match endpoint {
            Ok(endpoint) => self.sessions[key].endpoint = Some(endpoint),
            Err(why) => self.lose(key, why.into_owned()),
        }
        key
    }
}
