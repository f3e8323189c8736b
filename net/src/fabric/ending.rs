//! The end of a connection: a bye from both sides, or a failure.

use std::time::Instant;

use slotmap::DefaultKey;
use sync::clock;
use zerocopy::IntoBytes;

use super::{ANSWER_MAX, Fabric};
use crate::carrier::key_of;
use crate::event::{Event, Peer, SendId};
use crate::payload::Payload;
use crate::session::{INCOMING, Phase, Session};
use crate::wire::{Header, Kind};

impl Fabric {
    pub(super) fn bye(&mut self, key: DefaultKey) {
        if self.post(key, Kind::Bye, &[], Payload::EMPTY, 0).is_ok() {
            let session = &mut self.sessions[key];
            if let Phase::Open(link) = std::mem::replace(&mut session.phase, Phase::Over(None)) {
                session.phase = Phase::Leaving(link);
            }
        }
    }

    /// Both sides have sent bye. The side that sent it first closes the endpoint, once its own bye
    /// is out. The other side then sees the endpoint fail.
    pub(super) fn part(&mut self, key: DefaultKey, first: bool) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.phase = Phase::Parting { deadline: clock::now() + ANSWER_MAX, first };
        if first && session.operations == 0 {
            self.end(key, None);
        }
    }

    /// Notifies the peer that this side gives up, if that is possible at once. UCX would report a
    /// closed endpoint only when the peer sends.
    pub(super) fn reset(&mut self, key: DefaultKey) {
        if let Some(link) = self.sessions.get(key).and_then(Session::link) {
            let header = Header::new(Kind::Reset, link.session, link.sent, link.ours, 0);
            self.transmit(key, header.as_bytes(), Payload::EMPTY, 0);
        }
    }

    /// A way of a connection has failed, with this tag. If there is a way for each direction, the
    /// end of the incoming one ends the connection: it comes after all messages.
    pub(super) fn way_failed(&mut self, tag: u64, why: String) {
        let key = key_of(tag & !INCOMING);
        let has_another =
            self.sessions.get(key).is_some_and(|session| session.incoming_way.is_some());
        if tag & INCOMING != 0 || !has_another {
            self.lose(key, why);
        }
    }

    /// The connection has broken.
    pub(super) fn lose(&mut self, key: DefaultKey, why: String) {
        let visible = self.sessions.get(key).is_some_and(Session::is_visible);
        self.end(key, visible.then_some(why));
    }

    /// Ends the connection for any reason.
    pub(super) fn end(&mut self, key: DefaultKey, why: Option<String>) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if matches!(session.phase, Phase::Over(_)) {
            return;
        }
        session.phase = Phase::Over(why);
        for outgoing in std::mem::take(&mut session.queue) {
            if outgoing.id != 0 {
                self.events.push_back(Event::Unsent(SendId(outgoing.id)));
            }
        }
        for way in [session.endpoint.take(), session.incoming_way.take()].into_iter().flatten() {
            session.operations += 1;
            self.carriers.close(way);
        }
        self.bury(key);
    }

    /// Forgets a connection that is over and in whose name UCX does nothing more.
    pub(super) fn bury(&mut self, key: DefaultKey) {
        let session = &self.sessions[key];
        if session.operations == 0 && matches!(session.phase, Phase::Over(_)) {
            let session = self.sessions.remove(key).expect("it is there");
            if let Phase::Over(Some(why)) = session.phase {
                self.events.push_back(Event::Lost { peer: Peer { key, id: session.id }, why });
            }
        }
    }

    /// UCX has let go of something of a connection's.
    pub(super) fn completed(&mut self, key: DefaultKey) {
        let session = self.sessions.get_mut(key).expect("stays until all is complete");
        session.operations -= 1;
        if session.operations == 0 && matches!(session.phase, Phase::Parting { first: true, .. }) {
            self.end(key, None);
        } else {
            self.bury(key);
        }
    }

    /// Gives up connections whose peer has not answered.
    pub(super) fn expire(&mut self, now: Instant) {
        let is_late = |s: &Session| s.deadline().is_some_and(|deadline| deadline <= now);
        let late: Vec<_> =
            self.sessions.iter().filter(|(_, s)| is_late(s)).map(|(k, _)| k).collect();
        for key in late {
            let session = &mut self.sessions[key];
            if let Phase::Parting { deadline, .. } = &mut session.phase
                && session.operations > 0
            {
                // The last messages are on their way. The carrier reports the end of the peer.
                *deadline = now + ANSWER_MAX;
                continue;
            }
            let why = format!(
                "it has not answered within {} s; does it run, and has it the same secret?",
                ANSWER_MAX.as_secs()
            );
            // It may have got the answer meanwhile, and believe in the connection.
            self.reset(key);
            self.lose(key, why);
        }
    }
}
