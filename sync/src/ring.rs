//! The ring: a lock-free receive buffer with many senders and one receiver (FCP II).
//!
//! The buffer lies in the memory of the receiver, and senders write into it (Kikuchi et al.,
//! §3.3). It is a ring of lines of 64 bytes. A message occupies whole, consecutive lines. Its
//! header of two 32-bit words comes first in its first line, so a small message travels as one
//! cache line.
//!
//! ```text
//! tail      message number, position, bit: senders wait for room     (written by senders)
//! head      position, bit: the receiver sleeps                       (written by the receiver)
//! claims    sender and number of lines of message number n           (written by senders)
//! lines     header │ payload …                                       (written by both)
//! ```
//! A sender *claims* message number n by a compare-and-swap on claim n. It writes the payload,
//! then the header, and finally moves the tail. Another sender moves the tail if the first is
//! late. The receiver takes messages in order, as soon as they have a header. It clears the first
//! word of every line before it frees lines, several at a time. So old payload is never taken for
//! a header. A sender that is killed between its claim and its header leaves a gap of known size.
//! The receiver skips the gap once it knows that the sender is dead.
//!
//! A claim contains the lap of its message number. So a sender that was stopped for a whole lap
//! cannot take a claim that was used since. Claims and payload have separate memory.
//!
//! This file makes no system call and reads no clock. A [`Buffer`] provides memory and atomics,
//! so that loom can model the protocol (`tests/ring_model.rs`).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::word::{Word32, Word64};

/// Size of a line in bytes: one cache line.
pub const LINE_SIZE: usize = 64;
/// Size of a header in bytes: two 32-bit words.
pub const HEADER_SIZE: usize = 8;

/// Largest number of lines in a ring: 2 MiB.
pub const LINES_MAX: u32 = 1 << 15;

const POSITION_MASK: u32 = (1 << 31) - 1;
/// The lowest bit. In the head it means that the receiver sleeps; in the tail, that senders wait
/// for room.
const WAITS: u32 = 1;

/// The memory of one receive buffer, zero at first.
pub trait Buffer {
    /// Type of the 32-bit words.
    type Word32: Word32;
    /// Type of the 64-bit words.
    type Word64: Word64;
    /// Returns the number of lines, a power of two from 4 to [`LINES_MAX`].
    fn lines(&self) -> u32;
    /// Returns the tail: number and position of the next message to be sent.
    fn tail(&self) -> &Self::Word64;
    /// Returns the head: the position up to which the receiver has freed lines.
    fn head(&self) -> &Self::Word32;
    /// Returns the claim for all message numbers that are `index` modulo `lines`.
    fn claim(&self, index: u32) -> &Self::Word64;
    /// Returns the first word of a line.
    fn header(&self, line: u32) -> &Self::Word64;
    /// Writes payload behind the header of `line`, at `offset` bytes.
    ///
    /// # Safety
    /// The caller must have reserved the lines, and must not have published the message yet.
    unsafe fn write(&self, line: u32, offset: usize, bytes: &[u8]);
    /// Reads payload behind the header of `line`, at `offset` bytes.
    ///
    /// # Safety
    /// The caller must be the receiver. The message must be published and not yet consumed.
    unsafe fn read(&self, line: u32, offset: usize, bytes: &mut [u8]);
    /// Executes a full fence. An atomic exchange always precedes it, which is a full fence itself
    /// on some processors.
    fn fence(&self);
}

/// The kind of a message, in its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The payload is the message.
    Inline = 1,
    /// The payload describes the location of the rest of the message in the sender's memory.
    Remote = 2,
    /// No message: the lines up to the end of the ring are too few for the next one.
    Skip = 3,
    /// The payload describes the location of the rest of the message in an exposed buffer of the
    /// sender.
    Lent = 4,
    /// The payload is a part of a message.
    Part = 5,
}

/// The header of a message: its length, its kind and its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Kind of the message.
    pub kind: Kind,
    /// Length of the payload in bytes.
    pub length: u32,
    /// Number of the sender, which [`Sender::new`] sets.
    pub source: u32,
}

impl Header {
    /// Longest payload that a header can describe, in bytes.
    pub const LENGTH_MAX: u32 = (1 << 29) - 1;

    #[inline]
    fn word(self) -> u64 {
        u64::from(self.length) << 3 | self.kind as u64 | u64::from(self.source) << 32
    }

    #[inline]
    fn parse(word: u64) -> Option<Self> {
        let kind = match word & 7 {
            1 => Kind::Inline,
            2 => Kind::Remote,
            3 => Kind::Skip,
            4 => Kind::Lent,
            5 => Kind::Part,
            _ => return None,
        };
        Some(Self { kind, length: word as u32 >> 3, source: (word >> 32) as u32 })
    }
}

/// Returns the number of lines that a payload of `length` bytes occupies.
#[inline]
pub fn lines_of(length: usize) -> u32 {
    (HEADER_SIZE + length).div_ceil(LINE_SIZE) as u32
}

/// A message number and a position, as in the tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    number: u32,
    position: u32,
}

impl Place {
    #[inline]
    fn word(self, waits: u64) -> u64 {
        u64::from(self.number) << 32 | u64::from(self.position) << 1 | waits
    }

    #[inline]
    fn parse(word: u64) -> Self {
        Self { number: (word >> 32) as u32, position: word as u32 >> 1 }
    }

    #[inline]
    fn after(self, lines: u32) -> Self {
        Self {
            number: self.number.wrapping_add(1),
            position: self.position.wrapping_add(lines) & POSITION_MASK,
        }
    }
}

/// Returns the number of lines from position `from` to position `to`.
#[inline]
fn distance(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) & POSITION_MASK
}

/// A claim: it assigns a message number and some lines to a sender. The lower bits of the message
/// number are the index of the claim. The upper bits, its lap, share a half word with the number
/// of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claim {
    /// The lap plus 1. So a zero word claims nothing.
    after: u32,
    lines: u32,
    ticket: u32,
}

impl Claim {
    /// Returns the claim of message `number` in a ring of `ring` lines.
    #[inline]
    fn of(number: u32, ring: u32, lines: u32, ticket: u32) -> Self {
        Self { after: Self::lap_after(number, ring), lines, ticket }
    }

    #[inline]
    fn lap_after(number: u32, ring: u32) -> u32 {
        let bits = ring.trailing_zeros();
        (number >> bits).wrapping_add(1) & (u32::MAX >> bits)
    }

    #[inline]
    fn word(self, ring: u32) -> u64 {
        let half = self.after << ring.trailing_zeros() | (self.lines - 1);
        u64::from(self.ticket) << 32 | u64::from(half)
    }

    #[inline]
    fn parse(word: u64, ring: u32) -> Self {
        let half = word as u32;
        Self {
            after: half >> ring.trailing_zeros(),
            lines: (half & (ring - 1)) + 1,
            ticket: (word >> 32) as u32,
        }
    }

    /// Parses `word`. Returns `None` if it is not a claim of message `number`.
    #[inline]
    fn found(word: u64, number: u32, ring: u32) -> Option<Self> {
        let claim = Self::parse(word, ring);
        (claim.after == Self::lap_after(number, ring)).then_some(claim)
    }
}

/// Lines that a sender has claimed and not yet published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    /// Index of the first line.
    pub line: u32,
    lines: u32,
    /// The tail at the time of the claim.
    tail: u64,
}

impl Reserved {
    /// Returns the message number: 1 more than that of the previous message, modulo 2³².
    #[inline]
    pub fn number(&self) -> u32 {
        Place::parse(self.tail).number
    }
}

/// Returns the number of the next message to be sent.
pub fn next_number<B: Buffer>(buffer: &B) -> u32 {
    Place::parse(buffer.tail().load(Acquire)).number
}

/// Reason why a message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// The buffer has no room now.
    Full,
    /// The message would not fit into an empty buffer.
    TooLong,
}

/// A sender to a buffer. Any number of senders may use a buffer at once.
#[derive(Debug)]
pub struct Sender {
    ticket: u32,
    source: u32,
    /// The last position of the receiver that this sender read, and the message number then.
    seen: Option<Place>,
}

impl Sender {
    /// Returns a sender whose headers name `source`. The receiver uses `ticket` to find out
    /// whether the sender is alive.
    pub fn new(ticket: u32, source: u32) -> Self {
        Self { ticket, source, seen: None }
    }

    /// Sends the concatenation of `parts`. Returns true if the receiver sleeps and must be woken.
    ///
    /// # Errors
    /// Returns [`SendError`] if there is no room; nothing is sent then.
    #[inline]
    pub fn send<B: Buffer>(
        &mut self,
        buffer: &B,
        kind: Kind,
        parts: &[&[u8]],
    ) -> Result<bool, SendError> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length > Header::LENGTH_MAX as usize || lines_of(length) > buffer.lines() {
            return Err(SendError::TooLong);
        }
        let reserved = self.reserve(buffer, lines_of(length))?;
        Ok(self.fill(buffer, &reserved, kind, parts))
    }

    /// Sends the concatenation of `parts` in lines that were reserved for as many bytes. Returns
    /// true if the receiver sleeps and must be woken.
    // Inlined always, so that the compiler knows the number of parts and the length of a header.
    #[inline(always)]
    pub fn fill<B: Buffer>(
        &self,
        buffer: &B,
        reserved: &Reserved,
        kind: Kind,
        parts: &[&[u8]],
    ) -> bool {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        assert!(lines_of(length) <= reserved.lines);
        let mut offset = 0;
        for part in parts {
            // SAFETY: `reserve` gave these lines to this sender, the assertion above checks that
            // they hold `length` bytes, and the header is not yet written.
            unsafe { buffer.write(reserved.line, offset, part) };
            offset += part.len();
        }
        let header = Header { kind, length: length as u32, source: self.source };
        // A plain store leaves the core together with the payload. The exchange of the tail, and
        // with it the fence, comes after the header, so that the receiver can already read on.
        buffer.header(reserved.line).store(header.word(), Release);
        advance(buffer, reserved.tail, reserved.lines);
        buffer.fence();
        buffer.head().load(Relaxed) & WAITS != 0
    }

    /// Claims the next message number and `wanted` consecutive lines.
    // Inlined always: the result would otherwise be returned in memory, and its load would stall.
    #[inline(always)]
    pub fn reserve<B: Buffer>(&mut self, buffer: &B, wanted: u32) -> Result<Reserved, SendError> {
        let ring = buffer.lines();
        loop {
            let tail = buffer.tail().load(Acquire);
            let place = Place::parse(tail);
            let claim = buffer.claim(place.number & (ring - 1));
            let before = claim.load(Acquire);
            if let Some(others) = Claim::found(before, place.number, ring) {
                advance(buffer, tail, others.lines);
                continue;
            }
            let line = place.position & (ring - 1);
            let to_end = ring - line;
            let lines = wanted.min(to_end);
            let has_room = |seen: &Place| distance(seen.position, place.position) + lines <= ring;
            // Positions wrap around, so an observation that is a lap old has no meaning.
            let recent = |seen: &Place| place.number.wrapping_sub(seen.number) < ring;
            if !self.seen.as_ref().is_some_and(|seen| recent(seen) && has_room(seen)) {
                let position = buffer.head().load(Acquire) >> 1;
                let seen = Place { number: place.number, position };
                if claim.load(Acquire) != before {
                    continue; // the receiver may have passed this tail
                }
                if has_room(&seen) {
                    self.seen = Some(seen);
                } else if buffer.tail().load(Acquire) >> 1 == tail >> 1 {
                    return Err(SendError::Full);
                }
            }
            if buffer.tail().load(Acquire) >> 1 != tail >> 1 {
                continue; // the claim may belong to a later message
            }
            let ours = Claim::of(place.number, ring, lines, self.ticket);
            if claim.compare_exchange(before, ours.word(ring)).is_err() {
                continue;
            }
            if lines == wanted {
                return Ok(Reserved { line, lines, tail });
            }
            let skip = Header { kind: Kind::Skip, length: 0, source: self.source };
            buffer.header(line).store(skip.word(), Release);
            advance(buffer, tail, lines);
        }
    }

    /// Announces that senders wait for room. Returns the value of [`Buffer::head`] to sleep on.
    /// Call `send` once more before sleeping. The receiver changes the head, and wakes sleepers,
    /// when it frees lines.
    pub fn wait_for_room<B: Buffer>(&self, buffer: &B) -> u32 {
        let head = buffer.head().load(Acquire);
        buffer.tail().fetch_or(u64::from(WAITS), SeqCst);
        buffer.fence();
        head
    }
}

/// Moves the tail past the claimed message, unless another sender has done so.
#[inline]
fn advance<B: Buffer>(buffer: &B, mut tail: u64, lines: u32) {
    let place = Place::parse(tail);
    loop {
        let next = place.after(lines).word(tail & u64::from(WAITS));
        match buffer.tail().compare_exchange(tail, next) {
            Ok(_) => return,
            Err(now) if now >> 1 == tail >> 1 => tail = now, // a sender began to wait
            Err(_) => return,
        }
    }
}

/// Result of the receiver's search for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// There is no message.
    Nothing,
    /// A sender with this ticket has claimed the next message, and is still writing it or dead.
    Unfinished(u32),
    /// A message, to be read and then consumed.
    Message(Message),
    /// Protocol violation: the memory contains a value that no sender writes. The receiver cannot
    /// continue.
    Corrupt,
}

/// A message in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// The header of the message.
    pub header: Header,
    line: u32,
}

/// The receiver of a buffer.
#[derive(Debug, Default)]
pub struct Receiver {
    number: u32,
    position: u32,
    /// The position in `head`. Lines from here to `position` are consumed and not yet cleared.
    /// A write to a line takes it from the sender's core, and would delay an answer.
    published: u32,
}

impl Receiver {
    /// Searches for the next message, and for a claim of it if there is none. Senders write
    /// claims, so this is too expensive for polling.
    pub fn look_closely<B: Buffer>(&mut self, buffer: &B) -> Found {
        match self.look(buffer) {
            Found::Nothing => self.unfinished(buffer),
            found => found,
        }
    }

    /// Searches for the next message. Never returns [`Found::Unfinished`].
    #[inline]
    pub fn look<B: Buffer>(&mut self, buffer: &B) -> Found {
        let ring = buffer.lines();
        loop {
            let line = self.position & (ring - 1);
            let word = buffer.header(line).load(Acquire);
            let Some(header) = Header::parse(word) else {
                return match word {
                    0 => Found::Nothing,
                    _ => Found::Corrupt,
                };
            };
            match header.kind {
                Kind::Skip => {
                    self.pass(ring - line);
                    self.clear(buffer);
                }
                _ if lines_of(header.length as usize) > ring - line => return Found::Corrupt,
                _ => return Found::Message(Message { header, line }),
            }
        }
    }

    /// Returns the number of the next message. All messages before it are consumed.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the first line of the next message. There is no message while its header is 0.
    #[inline]
    pub fn next_line<B: Buffer>(&self, buffer: &B) -> u32 {
        self.position & (buffer.lines() - 1)
    }

    fn unfinished<B: Buffer>(&self, buffer: &B) -> Found {
        self.claim(buffer).map_or(Found::Nothing, |claim| Found::Unfinished(claim.ticket))
    }

    /// Returns the claim of the next message, if there is one.
    fn claim<B: Buffer>(&self, buffer: &B) -> Option<Claim> {
        let ring = buffer.lines();
        let word = buffer.claim(self.number & (ring - 1)).load(Acquire);
        let to_end = ring - (self.position & (ring - 1));
        Claim::found(word, self.number, ring).filter(|claim| claim.lines <= to_end)
    }

    /// Skips the gap that a dead sender left. The sender with this ticket must be dead. The
    /// messages that it has published stay.
    pub fn skip_dead<B: Buffer>(&mut self, buffer: &B, ticket: u32) {
        let line = self.position & (buffer.lines() - 1);
        match self.claim(buffer) {
            Some(claim) if claim.ticket == ticket && buffer.header(line).load(Acquire) == 0 => {
                self.pass(claim.lines);
                self.clear(buffer);
            }
            _ => {}
        }
    }

    /// Copies a part of the message's payload.
    ///
    /// # Panics
    /// Panics if the part reaches beyond the payload.
    #[inline]
    pub fn read<B: Buffer>(&self, buffer: &B, message: &Message, offset: usize, to: &mut [u8]) {
        assert!(offset + to.len() <= message.header.length as usize);
        // SAFETY: `look` returned the message, so it is published. Only this receiver consumes it,
        // and `consume` takes the message that is read here.
        unsafe { buffer.read(message.line, offset, to) };
    }

    /// Consumes the message. Returns true if senders wait for room and must be woken.
    #[inline]
    pub fn consume<B: Buffer>(&mut self, buffer: &B, message: &Message) -> bool {
        debug_assert_eq!(message.line, self.position & (buffer.lines() - 1));
        self.pass(lines_of(message.header.length as usize));
        // Senders read the head when the buffer seems full. If every message changed the head,
        // they would fetch its cache line for every message.
        if distance(self.published, self.position) >= buffer.lines() / 4 {
            return self.publish(buffer);
        }
        false
    }

    #[inline]
    fn pass(&mut self, lines: u32) {
        let next = Place { number: self.number, position: self.position }.after(lines);
        (self.number, self.position) = (next.number, next.position);
    }

    /// Clears the headers of the lines that are consumed and not yet freed.
    fn clear<B: Buffer>(&mut self, buffer: &B) {
        let ring = buffer.lines();
        for line in 0..distance(self.published, self.position) {
            buffer.header(self.published.wrapping_add(line) & (ring - 1)).store(0, Relaxed);
        }
    }

    /// Frees the consumed lines. Returns true if senders wait for room and must be woken.
    pub fn publish<B: Buffer>(&mut self, buffer: &B) -> bool {
        if self.published == self.position {
            return false;
        }
        self.clear(buffer);
        self.published = self.position;
        buffer.head().swap(self.position << 1, SeqCst);
        buffer.fence();
        if buffer.tail().load(Relaxed) & u64::from(WAITS) == 0 {
            return false;
        }
        buffer.tail().fetch_and(!u64::from(WAITS), SeqCst);
        true
    }

    /// Announces that the receiver is about to sleep. Returns the value of [`Buffer::head`] to
    /// sleep on. Call `look_closely` and [`Receiver::publish`] once more before sleeping, and
    /// [`Receiver::awake`] afterwards.
    pub fn about_to_sleep<B: Buffer>(&mut self, buffer: &B) -> u32 {
        let head = buffer.head().fetch_or(WAITS, SeqCst) | WAITS;
        buffer.fence();
        head
    }

    /// Announces that the receiver no longer sleeps.
    pub fn awake<B: Buffer>(&mut self, buffer: &B) {
        buffer.head().fetch_and(!WAITS, SeqCst);
    }
}

/// Marks the receiver as awake. A sender that found it asleep calls this before it wakes it.
pub fn rouse<B: Buffer>(buffer: &B) {
    buffer.head().fetch_and(!WAITS, SeqCst);
}
