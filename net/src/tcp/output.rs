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

/// Messages and sealed bytes that are not sent yet.
#[derive(Default)]
pub struct Output {
    /// Has sealed records from `start` to `end`. Its length grows only, since each growth fills the
    /// new bytes with zeros.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
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
        room(&mut self.buffer, &mut self.start, &mut self.end, bytes.len()).copy_from_slice(bytes);
    }

    /// Returns true if nothing at all waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.bytes().is_empty()
    }

    /// Returns the sealed bytes for the socket.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Notes that the socket has taken some of [`bytes`](Self::bytes).
    pub fn wrote(&mut self, bytes: usize) {
        self.start += bytes;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
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
        let Self { buffer, start, end, first, .. } = self;
        let put = |parts: &[&[u8]]| -> Result<(), Infallible> {
            let record = match parts {
                [record] => record,
                parts => {
                    first.clear();
                    parts.iter().for_each(|part| first.extend_from_slice(part));
                    &first[..]
                }
            };
            seal(room(buffer, start, end, bytes_in_stream(record.len())), record, session);
            Ok(())
        };
        let Ok(is_last) = outgoing.put_next(RECORD_BYTES_MAX, put);
        is_last
    }

    /// Gives back memory if nothing waits.
    pub fn shrink(&mut self) {
        if self.is_empty() {
            (self.buffer, self.first) = (Vec::new(), Vec::new());
        }
    }

    /// Drops the bytes of a handshake that did not work. No message is sealed yet.
    pub fn drop_sealed(&mut self) {
        (self.buffer, self.start, self.end) = (Vec::new(), 0, 0);
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

/// Appends `bytes` to the part of the buffer that is in use, and returns them.
fn room<'a>(
    buffer: &'a mut Vec<u8>,
    start: &mut usize,
    end: &mut usize,
    bytes: usize,
) -> &'a mut [u8] {
    if buffer.len() - *end < bytes {
        buffer.copy_within(*start..*end, 0);
        (*start, *end) = (0, *end - *start);
        let needed = *end + bytes;
        if buffer.len() < needed {
            buffer.resize(needed.next_power_of_two(), 0);
        }
    }
    let begin = std::mem::replace(end, *end + bytes);
    &mut buffer[begin..*end]
}
