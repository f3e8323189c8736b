//! The outgoing side of a connection: messages, sealed piece by piece as the socket takes them.

use std::collections::VecDeque;
use std::convert::Infallible;

use super::noise::{PLAIN_BYTES_MAX, Session};
use super::record::{bytes_in_stream, seal};
use crate::stream::outgoing::Outgoing;

/// Sealed bytes that may wait for the socket. More is sealed when they are fewer.
const SEALED_BYTES_WAITING: usize = 128 << 10;

/// Maximum length of a record of a payload.
const RECORD_BYTES_MAX: usize = PLAIN_BYTES_MAX;

/// Sealed bytes for the socket: those of the buffer from `start` to `end`. The buffer's length only
/// grows, since each growth fills the new bytes with zeros.
#[derive(Default)]
struct Sealed {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Sealed {
    /// Appends this number of bytes, and returns them.
    fn append(&mut self, bytes: usize) -> &mut [u8] {
        if self.buffer.len() - self.end < bytes {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let needed = self.end + bytes;
            if self.buffer.len() < needed {
                self.buffer.resize(needed.next_power_of_two(), 0);
            }
        }
        self.end += bytes;
        &mut self.buffer[self.end - bytes..self.end]
    }
}

/// Messages and sealed bytes that are not sent yet.
#[derive(Default)]
pub struct Output {
    sealed: Sealed,
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
        self.sealed.append(bytes.len()).copy_from_slice(bytes);
    }

    /// Returns true if nothing at all waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.bytes().is_empty()
    }

    /// Returns the sealed bytes for the socket.
    pub fn bytes(&self) -> &[u8] {
        &self.sealed.buffer[self.sealed.start..self.sealed.end]
    }

    /// Notes that the socket has taken some of [`bytes`](Self::bytes).
    pub fn wrote(&mut self, bytes: usize) {
        let Sealed { start, end, .. } = &mut self.sealed;
        *start += bytes;
        debug_assert!(*start <= *end);
        if start == end {
            (*start, *end) = (0, 0);
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
        let Self { sealed, first, .. } = self;
        let put = |parts: &[&[u8]]| -> Result<(), Infallible> {
            let record = match parts {
                [record] => record,
                parts => {
                    first.clear();
                    parts.iter().for_each(|part| first.extend_from_slice(part));
                    &first[..]
                }
            };
            seal(sealed.append(bytes_in_stream(record.len())), record, session);
            Ok(())
        };
        let Ok(is_last) = outgoing.put_next(RECORD_BYTES_MAX, put);
        is_last
    }

    /// Gives back memory if nothing waits.
    pub fn shrink(&mut self) {
        if self.is_empty() {
            (self.sealed, self.first) = (Sealed::default(), Vec::new());
        }
    }

    /// Drops the bytes of a handshake that did not work. No message is sealed yet.
    pub fn drop_sealed(&mut self) {
        self.sealed = Sealed::default();
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
