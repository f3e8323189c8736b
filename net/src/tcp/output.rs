//! The outgoing side of a connection: messages, sealed piece by piece as the socket takes them.

use std::collections::VecDeque;
use std::convert::Infallible;

use super::noise::{PLAIN_BYTES_MAX, Session};
use super::record::seal;
use crate::stream::outgoing::Outgoing;

/// Sealed bytes that may wait for the socket. More is sealed when they are fewer.
const SEALED_BYTES_WAITING: usize = 128 << 10;

/// Messages and sealed bytes that are not sent yet.
#[derive(Default)]
pub struct Output {
    /// Sealed records, the first `written` bytes of which the socket has taken.
    sealed: Vec<u8>,
    written: usize,
    queue: VecDeque<Outgoing>,
    /// The first record of a frame before it is sealed.
    first: Vec<u8>,
}

impl Output {
    /// Adds a message behind the others.
    pub fn push(&mut self, outgoing: Outgoing) {
        self.queue.push_back(outgoing);
    }

    /// Appends handshake bytes, which are not sealed.
    pub fn push_plain(&mut self, bytes: &[u8]) {
        self.sealed.extend_from_slice(bytes);
    }

    /// Returns true if nothing at all waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.bytes().is_empty()
    }

    /// Returns the sealed bytes for the socket.
    pub fn bytes(&self) -> &[u8] {
        &self.sealed[self.written..]
    }

    /// Notes that the socket has taken some of [`bytes`](Self::bytes).
    pub fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        debug_assert!(self.written <= self.sealed.len());
        if self.written == self.sealed.len() {
            self.sealed.clear();
            self.written = 0;
        }
    }

    /// Seals waiting messages as far as the socket should have bytes. Calls `done` with the tag of
    /// each message whose payload is no longer needed.
    pub fn fill(&mut self, session: &mut Session, mut done: impl FnMut(u64)) {
        while self.bytes().len() < SEALED_BYTES_WAITING {
            let Some(mut outgoing) = self.queue.pop_front() else { return };
            if self.seal_next(&mut outgoing, session) {
                done(outgoing.tag);
            } else {
                self.queue.push_front(outgoing);
            }
        }
    }

    /// Seals the next record of a message. Returns true if it is the last one.
    fn seal_next(&mut self, outgoing: &mut Outgoing, session: &mut Session) -> bool {
        if self.written > 0 {
            self.sealed.drain(..self.written);
            self.written = 0;
        }
        let (sealed, first) = (&mut self.sealed, &mut self.first);
        let put = |parts: &[&[u8]]| -> Result<(), Infallible> {
            let record = match parts {
                [record] => record,
                parts => {
                    first.clear();
                    parts.iter().for_each(|part| first.extend_from_slice(part));
                    &first[..]
                }
            };
            seal(sealed, record, session);
            Ok(())
        };
        let Ok(is_last) = outgoing.put_next(PLAIN_BYTES_MAX, put);
        is_last
    }

    /// Gives back memory if nothing waits.
    pub fn shrink(&mut self) {
        if self.is_empty() {
            (self.sealed, self.first) = (Vec::new(), Vec::new());
        }
    }

    /// Drops the bytes of a handshake that did not work. No message is sealed yet.
    pub fn drop_sealed(&mut self) {
        (self.sealed, self.written) = (Vec::new(), 0);
    }

    /// Drops all messages and bytes. Returns the tags of the messages.
    pub fn clear(&mut self) -> impl Iterator<Item = u64> + use<> {
        self.drop_sealed();
        std::mem::take(&mut self.queue).into_iter().map(|outgoing| outgoing.tag)
    }

    /// Drops the messages that are not sealed; returns their tags. One that is sealed in part would
    /// break the stream, so the sealed bytes go, too, in that case.
    pub fn drop_messages(&mut self) -> impl Iterator<Item = u64> + use<> {
        if self.queue.front().is_some_and(Outgoing::has_begun) {
            self.drop_sealed();
        }
        std::mem::take(&mut self.queue).into_iter().map(|outgoing| outgoing.tag)
    }
}
