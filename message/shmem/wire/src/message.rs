//! Requests of a PE to the agent of another node, and the replies.
//!
//! A message is a header of fixed size, and a payload: data of symmetric memory. An address is the
//! number of an area of a PE's memory and an offset in it, so no node knows addresses of another
//! one. Incoming bytes are not trusted: [`Request::parse`] accepts a header only if all fields are
//! in their ranges, and [`Request::ranges`] returns the memory that the request uses.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a header.
pub const HEADER_BYTES: usize = size_of::<Header>();

/// Bytes of a part of an area, which is registered at once. Registered memory is allocated and
/// locked, so a large heap is registered only as far as it is used.
pub const PART_BYTES: u64 = 64 << 20;

/// A header. Fields that a kind of message does not use are 0.
#[derive(Debug, Default, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    kind: u8,
    /// The atomic operation; for a put, 1 if it may take effect early.
    operation: u8,
    area: u8,
    /// The area of the signal, or the bytes of the word of an atomic operation.
    second: u8,
    pe: U32,
    sequence: U64,
    offset: U64,
    bytes: U64,
    value: U64,
    other: U64,
}

/// An area of a PE's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Area {
    /// The symmetric heap.
    Heap = 0,
    /// The program's static data.
    Data = 1,
    /// The PE's control block.
    Block = 2,
}

impl Area {
    fn of(number: u8) -> Option<Self> {
        [Self::Heap, Self::Data, Self::Block].into_iter().find(|area| *area as u8 == number)
    }
}

/// A place in a PE's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The area.
    pub area: Area,
    /// Bytes from its start.
    pub offset: u64,
}

/// An atomic operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// Reads the word.
    Fetch = 0,
    /// Writes it.
    Set = 1,
    /// Writes it, and returns its former value.
    Swap = 2,
    /// Writes it if it has the value of the comparison.
    CompareSwap = 3,
    /// Adds to it.
    Add = 4,
    /// The bitwise and.
    And = 5,
    /// The bitwise or.
    Or = 6,
    /// The bitwise exclusive or.
    Xor = 7,
}

impl Op {
    /// All operations.
    pub const ALL: [Self; 8] = [
        Self::Fetch,
        Self::Set,
        Self::Swap,
        Self::CompareSwap,
        Self::Add,
        Self::And,
        Self::Or,
        Self::Xor,
    ];

    fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// An update of a signal after the data of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    /// The word, of 64 bits.
    pub at: Place,
    /// [`Op::Set`] or [`Op::Add`].
    pub op: Op,
    /// Its operand.
    pub value: u64,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Writes the payload. If `is_early`, before earlier requests of the connection, perhaps.
    Put {
        /// The target.
        to: Place,
        /// The payload may be received into the target.
        is_early: bool,
    },
    /// Writes the payload, then the signal.
    PutSignal {
        /// The target.
        to: Place,
        /// The payload may be received into the target.
        is_early: bool,
        /// The signal.
        signal: Signal,
    },
    /// Writes the elements of the payload.
    Scatter {
        /// The first element of the target.
        to: Place,
        /// Bytes of an element.
        element: u64,
        /// Bytes from the start of an element of the target to that of the next.
        stride: u64,
    },
    /// Requests data.
    Get {
        /// The source.
        from: Place,
        /// Number of bytes.
        bytes: u64,
    },
    /// Requests elements.
    Gather {
        /// The first element of the source.
        from: Place,
        /// Bytes of an element.
        element: u64,
        /// Bytes from the start of an element of the source to that of the next.
        stride: u64,
        /// Number of elements.
        n: u64,
    },
    /// Performs an atomic operation.
    Atomic {
        /// The word.
        at: Place,
        /// Its bytes: 4 or 8.
        word: u8,
        /// The operation.
        op: Op,
        /// Its operand.
        value: u64,
        /// The value with which [`Op::CompareSwap`] compares.
        compare: u64,
        /// The reply has the former value.
        replies: bool,
    },
    /// Requests a reply once all earlier requests have taken effect.
    Flush,
    /// Requests the key of a [part](PART_BYTES) of an area, by which the network reads and writes
    /// it without the agent.
    Register {
        /// The start of the part.
        at: Place,
    },
    /// Requests the end of the node's PEs with this status.
    End {
        /// The exit status.
        status: u8,
    },
}

/// A request to a PE's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The PE whose memory it uses. 0 if it uses none.
    pub pe: u32,
    /// Its number on its connection, from 1; 0 for [`Action::End`].
    pub sequence: u64,
    /// The action.
    pub action: Action,
}

const PUT: u8 = 1;
const PUT_SIGNAL: u8 = 2;
const SCATTER: u8 = 3;
const GET: u8 = 4;
const GATHER: u8 = 5;
const ATOMIC: u8 = 6;
const ATOMIC_REPLIES: u8 = 7;
const FLUSH: u8 = 8;
const END: u8 = 9;
const DATA: u8 = 10;
const WORD: u8 = 11;
const FLUSHED: u8 = 12;
const REGISTER: u8 = 13;

/// In `operation` of a put with a signal, besides that of the signal.
const EARLY: u8 = 1 << 7;

/// A part of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Its start.
    pub start: Place,
    /// Its length.
    pub bytes: u64,
}

impl Range {
    /// Returns true if it lies in an area of this size.
    pub fn fits(&self, area_bytes: u64) -> bool {
        self.start.offset.checked_add(self.bytes).is_some_and(|end| end <= area_bytes)
    }
}

impl Request {
    /// Returns the header.
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header =
            Header { pe: self.pe.into(), sequence: self.sequence.into(), ..no_fields() };
        match self.action {
            Action::Put { to, is_early } => {
                header.set(PUT, to);
                header.operation = is_early.into();
            }
            Action::PutSignal { to, is_early, signal } => {
                header.set(PUT_SIGNAL, to);
                header.operation = signal.op as u8 | if is_early { EARLY } else { 0 };
                header.second = signal.at.area as u8;
                header.other = signal.at.offset.into();
                header.value = signal.value.into();
            }
            Action::Scatter { to, element, stride } => {
                header.set(SCATTER, to);
                (header.bytes, header.value) = (element.into(), stride.into());
            }
            Action::Get { from, bytes } => {
                header.set(GET, from);
                header.bytes = bytes.into();
            }
            Action::Gather { from, element, stride, n } => {
                header.set(GATHER, from);
                (header.bytes, header.value) = (element.into(), stride.into());
                header.other = n.into();
            }
            Action::Atomic { at, word, op, value, compare, replies } => {
                header.set(if replies { ATOMIC_REPLIES } else { ATOMIC }, at);
                (header.operation, header.second) = (op as u8, word);
                (header.value, header.other) = (value.into(), compare.into());
            }
            Action::Flush => header.kind = FLUSH,
            Action::Register { at } => header.set(REGISTER, at),
            Action::End { status } => {
                header.kind = END;
                header.value = u64::from(status).into();
            }
        }
        bytes_of(&header)
    }

    /// Parses a header, given the bytes of the payload. None if it violates the protocol.
    pub fn parse(header: &[u8], payload_bytes: usize) -> Option<Self> {
        let header = Header::read_from_bytes(header).ok()?;
        let payload_bytes = payload_bytes as u64;
        let place = Place { area: Area::of(header.area)?, offset: header.offset.get() };
        let (value, other, bytes) = (header.value.get(), header.other.get(), header.bytes.get());
        let action = match header.kind {
            PUT => Action::Put { to: place, is_early: flag(header.operation)? },
            PUT_SIGNAL => {
                let op = Op::of(header.operation & !EARLY)?;
                let at = Place { area: Area::of(header.second)?, offset: other };
                let signal = Signal { at, op, value };
                let is_valid = matches!(op, Op::Set | Op::Add) && at.offset.is_multiple_of(8);
                let is_early = header.operation & EARLY != 0;
                is_valid.then_some(Action::PutSignal { to: place, is_early, signal })?
            }
            SCATTER => Action::Scatter { to: place, element: bytes, stride: value },
            GET => Action::Get { from: place, bytes },
            GATHER => Action::Gather { from: place, element: bytes, stride: value, n: other },
            ATOMIC | ATOMIC_REPLIES => {
                let (op, word) = (Op::of(header.operation)?, header.second);
                let is_valid = matches!(word, 4 | 8) && place.offset.is_multiple_of(word.into());
                let replies = header.kind == ATOMIC_REPLIES;
                let atomic = Action::Atomic { at: place, word, op, value, compare: other, replies };
                is_valid.then_some(atomic)?
            }
            FLUSH => Action::Flush,
            REGISTER => {
                let is_valid = place.offset.is_multiple_of(PART_BYTES);
                is_valid.then_some(Action::Register { at: place })?
            }
            END => Action::End { status: u8::try_from(value).ok()? },
            _ => return None,
        };
        // A control block has words, which only atomic operations change.
        let has_block = place.area == Area::Block
            || matches!(action, Action::PutSignal { signal, .. } if signal.at.area == Area::Block);
        if has_block && !matches!(action, Action::Atomic { .. }) {
            return None;
        }
        let has_payload = matches!(
            action,
            Action::Put { .. } | Action::PutSignal { .. } | Action::Scatter { .. }
        );
        let is_numbered = !matches!(action, Action::End { .. });
        let this = Self { pe: header.pe.get(), sequence: header.sequence.get(), action };
        let is_valid = (has_payload || payload_bytes == 0)
            && is_numbered == (this.sequence > 0)
            // Unused fields are 0.
            && this.header() == bytes_of(&header)
            && this.ranges(payload_bytes).is_some();
        is_valid.then_some(this)
    }

    /// Returns the memory that the request uses, and that of its signal. None if the number of
    /// bytes is not possible.
    pub fn ranges(&self, payload_bytes: u64) -> Option<[Option<Range>; 2]> {
        let one = |start, bytes| Some([Some(Range { start, bytes }), None]);
        match self.action {
            Action::Put { to, .. } => one(to, payload_bytes),
            Action::PutSignal { to, signal, .. } => {
                let data = Range { start: to, bytes: payload_bytes };
                Some([Some(data), Some(Range { start: signal.at, bytes: 8 })])
            }
            Action::Scatter { to, element, stride } => {
                let n = payload_bytes.checked_div(element)?;
                let is_whole = n.checked_mul(element)? == payload_bytes;
                one(to, is_whole.then(|| span(element, stride, n))??)
            }
            Action::Get { from, bytes } => {
                (bytes <= isize::MAX as u64).then(|| one(from, bytes)).flatten()
            }
            Action::Gather { from, element, stride, n } => {
                n.checked_mul(element).filter(|&bytes| bytes <= isize::MAX as u64)?;
                one(from, span(element, stride, n)?)
            }
            Action::Atomic { at, word, .. } => one(at, word.into()),
            Action::Flush | Action::Register { .. } | Action::End { .. } => Some([None, None]),
        }
    }

    /// Returns the place into which the payload may be received at once.
    pub fn early(&self) -> Option<Place> {
        match self.action {
            Action::Put { to, is_early: true } => Some(to),
            Action::PutSignal { to, is_early: true, .. } => Some(to),
            _ => None,
        }
    }
}

/// The bytes from the start of the first element to the end of the last. None if there is no
/// element, elements overlap, or the number is too large.
fn span(element: u64, stride: u64, n: u64) -> Option<u64> {
    let is_valid = element > 0 && stride >= element && n > 0;
    is_valid.then(|| stride.checked_mul(n - 1)?.checked_add(element)).flatten()
}

/// A reply to the request of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// The number of the request. All requests before it have taken effect, too.
    pub sequence: u64,
    /// The result.
    pub result: Outcome,
}

/// The result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The payload has the data. Those of [`Action::Register`] are the key, or none if the network
    /// cannot read and write the memory.
    Data,
    /// The former value of a word.
    Word(u64),
    /// All requests before have taken effect.
    Flushed,
}

impl Reply {
    /// Returns the header.
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let (kind, value) = match self.result {
            Outcome::Data => (DATA, 0),
            Outcome::Word(value) => (WORD, value),
            Outcome::Flushed => (FLUSHED, 0),
        };
        let (sequence, value) = (self.sequence.into(), value.into());
        bytes_of(&Header { kind, sequence, value, ..no_fields() })
    }

    /// Parses a header, given the bytes of the payload. None if it violates the protocol.
    pub fn parse(header: &[u8], payload_bytes: usize) -> Option<Self> {
        let header = Header::read_from_bytes(header).ok()?;
        let result = match header.kind {
            DATA => Outcome::Data,
            WORD => Outcome::Word(header.value.get()),
            FLUSHED => Outcome::Flushed,
            _ => return None,
        };
        let this = Self { sequence: header.sequence.get(), result };
        let is_valid = (result == Outcome::Data || payload_bytes == 0)
            && this.sequence > 0
            && this.header() == bytes_of(&header);
        is_valid.then_some(this)
    }
}

impl Header {
    fn set(&mut self, kind: u8, place: Place) {
        (self.kind, self.area, self.offset) = (kind, place.area as u8, place.offset.into());
    }
}

fn no_fields() -> Header {
    Header::default()
}

fn bytes_of(header: &Header) -> [u8; HEADER_BYTES] {
    header.as_bytes().try_into().expect("the bytes of a header")
}

fn flag(number: u8) -> Option<bool> {
    (number <= 1).then_some(number == 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place_in(areas: &[Area]) -> impl Strategy<Value = Place> + use<> {
        (prop::sample::select(areas.to_vec()), any::<u64>())
            .prop_map(|(area, offset)| Place { area, offset })
    }

    fn place() -> impl Strategy<Value = Place> {
        place_in(&[Area::Heap, Area::Data])
    }

    fn aligned(areas: &[Area]) -> impl Strategy<Value = Place> + use<> {
        place_in(areas).prop_map(|place| Place { offset: place.offset / 8 * 8, ..place })
    }

    fn action() -> impl Strategy<Value = (Action, usize)> {
        let op = || prop::sample::select(Op::ALL.to_vec());
        let symmetric = [Area::Heap, Area::Data];
        let word = aligned(&[Area::Heap, Area::Data, Area::Block]);
        let signal =
            (aligned(&symmetric), prop::sample::select(vec![Op::Set, Op::Add]), any::<u64>())
                .prop_map(|(at, op, value)| Signal { at, op, value });
        prop_oneof![
            (place(), any::<bool>(), 0..1usize << 40)
                .prop_map(|(to, is_early, bytes)| (Action::Put { to, is_early }, bytes)),
            (place(), any::<bool>(), signal, 0..1usize << 40).prop_map(
                |(to, is_early, signal, bytes)| {
                    (Action::PutSignal { to, is_early, signal }, bytes)
                }
            ),
            (place(), 1..100u64, 0..100u64, 1..100usize).prop_map(|(to, element, more, n)| {
                let scatter = Action::Scatter { to, element, stride: element + more };
                (scatter, element as usize * n)
            }),
            (place(), 0..isize::MAX as u64)
                .prop_map(|(from, bytes)| (Action::Get { from, bytes }, 0)),
            (place(), 1..100u64, 0..100u64, 1..100u64).prop_map(|(from, element, more, n)| {
                (Action::Gather { from, element, stride: element + more, n }, 0)
            }),
            (word, prop::sample::select(vec![4, 8]), op(), any::<[u64; 2]>(), any::<bool>())
                .prop_map(|(at, word, op, [value, compare], replies)| {
                    (Action::Atomic { at, word, op, value, compare, replies }, 0)
                }),
            Just((Action::Flush, 0)),
            (prop::sample::select(vec![Area::Heap, Area::Data]), 0..1u64 << 30).prop_map(
                |(area, part)| {
                    (Action::Register { at: Place { area, offset: part * PART_BYTES } }, 0)
                }
            ),
            any::<u8>().prop_map(|status| (Action::End { status }, 0)),
        ]
    }

    proptest! {
        #[test]
        fn a_request_is_parsed_from_its_header(
            pe in any::<u32>(), sequence in 1..u64::MAX, (action, payload) in action(),
        ) {
            let sequence = if matches!(action, Action::End { .. }) { 0 } else { sequence };
            let request = Request { pe, sequence, action };
            prop_assert_eq!(Request::parse(&request.header(), payload), Some(request));
            prop_assert_eq!(Reply::parse(&request.header(), payload), None);
        }

        #[test]
        fn a_reply_is_parsed_from_its_header(
            sequence in 1..u64::MAX, value in any::<u64>(), bytes in any::<usize>(),
        ) {
            for result in [Outcome::Data, Outcome::Word(value), Outcome::Flushed] {
                let reply = Reply { sequence, result };
                let payload = if result == Outcome::Data { bytes } else { 0 };
                prop_assert_eq!(Reply::parse(&reply.header(), payload), Some(reply));
                prop_assert_eq!(Request::parse(&reply.header(), payload), None);
            }
        }

        /// Nothing but a valid header is accepted, and its ranges are those of its bytes.
        #[test]
        fn changed_headers_are_refused_or_have_their_own_meaning(
            pe in any::<u32>(), (action, payload) in action(),
            at in 0..HEADER_BYTES, to in any::<u8>(), change in -9..9isize,
        ) {
            let mut header = Request { pe, sequence: 7, action }.header();
            header[at] = to;
            let payload = payload.saturating_add_signed(change);
            if let Some(request) = Request::parse(&header, payload) {
                prop_assert_eq!(request.header(), header);
                prop_assert!(request.ranges(payload as u64).is_some());
            }
        }
    }

    fn at(offset: u64) -> Place {
        Place { area: Area::Heap, offset }
    }

    fn is_accepted(action: Action, payload: usize) -> bool {
        Request::parse(&Request { pe: 0, sequence: 1, action }.header(), payload).is_some()
    }

    #[test]
    fn requests_that_violate_the_protocol_are_refused() {
        let scatter = |element, stride| Action::Scatter { to: at(0), element, stride };
        assert!(is_accepted(scatter(4, 8), 12) && is_accepted(scatter(4, 4), 4));
        // Part of an element, no element, elements that overlap, elements of no bytes.
        assert!(!is_accepted(scatter(4, 8), 13) && !is_accepted(scatter(4, 8), 0));
        assert!(!is_accepted(scatter(4, 3), 8) && !is_accepted(scatter(0, 8), 8));
        let gather = |element, stride, n| Action::Gather { from: at(0), element, stride, n };
        assert!(is_accepted(gather(4, 8, 3), 0));
        assert!(!is_accepted(gather(4, 8, 0), 0) && !is_accepted(gather(4, u64::MAX, 3), 0));
        assert!(!is_accepted(gather(1 << 40, 1 << 40, 1 << 40), 0));
        assert!(!is_accepted(Action::Get { from: at(0), bytes: 8 }, 1), "a payload");
        assert!(!is_accepted(Action::Get { from: at(0), bytes: u64::MAX }, 0));
        let atomic = |offset, word, op| {
            let (value, compare, replies) = (1, 2, true);
            Action::Atomic { at: at(offset), word, op, value, compare, replies }
        };
        assert!(is_accepted(atomic(4, 4, Op::Add), 0));
        assert!(!is_accepted(atomic(4, 8, Op::Add), 0) && !is_accepted(atomic(0, 2, Op::Add), 0));
        let signal = |offset, op| {
            let signal = Signal { at: at(offset), op, value: 1 };
            Action::PutSignal { to: at(0), is_early: false, signal }
        };
        assert!(is_accepted(signal(8, Op::Add), 5));
        assert!(!is_accepted(signal(4, Op::Add), 5) && !is_accepted(signal(8, Op::Xor), 5));
        let flush = Request { pe: 0, sequence: 0, action: Action::Flush };
        assert_eq!(Request::parse(&flush.header(), 0), None, "no number");
        let register = |area, offset| Action::Register { at: Place { area, offset } };
        assert!(is_accepted(register(Area::Data, PART_BYTES), 0));
        assert!(
            !is_accepted(register(Area::Data, 8), 0) && !is_accepted(register(Area::Block, 0), 0)
        );
        assert_eq!(Request::parse(&flush.header()[1..], 0), None, "too short");
    }

    #[test]
    fn ranges_end_where_the_last_element_does() {
        let action = Action::Gather { from: at(16), element: 4, stride: 12, n: 3 };
        let ranges = Request { pe: 0, sequence: 1, action }.ranges(0).expect("valid");
        assert_eq!(ranges, [Some(Range { start: at(16), bytes: 28 }), None]);
        let range = ranges[0].expect("one");
        assert!(range.fits(44) && !range.fits(43));
        assert!(!Range { start: at(u64::MAX), bytes: 2 }.fits(u64::MAX));
        let signal = Signal { at: at(80), op: Op::Set, value: 1 };
        let action = Action::PutSignal { to: at(0), is_early: true, signal };
        let request = Request { pe: 0, sequence: 1, action };
        let [data, word] = request.ranges(7).expect("valid");
        assert_eq!(data, Some(Range { start: at(0), bytes: 7 }));
        assert_eq!(word, Some(Range { start: at(80), bytes: 8 }));
        assert_eq!(request.early(), Some(at(0)));
    }
}
