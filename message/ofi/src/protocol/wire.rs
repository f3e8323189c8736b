//! The contents of a ring behind the ring's header: an envelope, then the message itself or a
//! request to send (RTS).

use sync::ring;

/// Longest eager message, and longest injected message. From one core to another, a longer message
/// is faster by one copy than through the ring.
pub const EAGER_MAX: usize = 3072;

/// Number of bytes of an envelope.
pub const ENVELOPE_BYTES: usize = 24;
/// Number of bytes of a request to send.
pub const RTS_BYTES: usize = 32;

// A request to send is one cache line.
const _: () = assert!(ring::HEADER_SIZE + ENVELOPE_BYTES + RTS_BYTES == ring::LINE_SIZE);

/// The kind of call that has sent a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `fi_send` and similar calls.
    Plain = 1,
    /// `fi_tsend` and similar calls.
    Tagged = 2,
    /// No message: data of a remote write.
    Written = 3,
    /// No message: data of a remote atomic operation.
    Changed = 4,
}

/// Flag: the message has data for the completion.
const HAS_DATA: u8 = 1;
/// Flag: a request to send follows.
const IS_RTS: u8 = 2;
/// Flag: the sender's buffer has several parts, which the record lists.
const IN_PARTS: u8 = 4;
/// Flag: the sender has claimed the receive.
const IS_CLAIMED: u8 = 8;

/// The properties of a message, before its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// The kind of call.
    pub kind: Kind,
    /// The tag; 0 without tags.
    pub tag: u64,
    /// Data for the completion.
    pub data: Option<u64>,
    /// An [`Rts`] follows.
    pub is_rts: bool,
    /// With an RTS: the record lists the parts of the buffer.
    pub in_parts: bool,
    /// With an RTS: the sender has claimed the receive.
    pub is_claimed: bool,
}

impl Envelope {
    /// Makes the envelope of an eager message.
    #[inline]
    pub fn of(kind: Kind, tag: u64, data: Option<u64>) -> Self {
        Self { kind, tag, data, is_rts: false, in_parts: false, is_claimed: false }
    }

    /// Returns the envelope as it lies in the ring.
    #[inline]
    pub fn bytes(self) -> [u8; ENVELOPE_BYTES] {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = flag(self.data.is_some(), HAS_DATA)
            | flag(self.is_rts, IS_RTS)
            | flag(self.in_parts, IN_PARTS)
            | flag(self.is_claimed, IS_CLAIMED);
        let first = u64::from(self.kind as u8) | u64::from(flags) << 8;
        let words = [first, self.tag, self.data.unwrap_or(0)].map(u64::to_le_bytes);
        std::array::from_fn(|i| words[i / 8][i % 8])
    }

    /// Parses an envelope. Returns `None` for bytes that no sender writes.
    #[inline]
    pub fn parse(bytes: &[u8; ENVELOPE_BYTES]) -> Option<Self> {
        let word = |n: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[n * 8 + i]));
        let kind = match bytes[0] {
            1 => Kind::Plain,
            2 => Kind::Tagged,
            3 => Kind::Written,
            4 => Kind::Changed,
            _ => return None,
        };
        let has = |flag| bytes[1] & flag != 0;
        Some(Self {
            kind,
            tag: word(1),
            data: has(HAS_DATA).then(|| word(2)),
            is_rts: has(IS_RTS),
            in_parts: has(IN_PARTS),
            is_claimed: has(IS_CLAIMED),
        })
    }
}

/// A request to send: the location of a message that does not travel in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rts {
    /// Address of the sender's record. If the sender has claimed the receive: address of its port.
    pub at: u64,
    /// Address of the message, if it is in one part.
    pub address: u64,
    /// Number of bytes.
    pub length: u64,
    /// The generation of the sender's identity.
    pub generation: u32,
    /// The slot of the receive, if the sender has claimed it.
    pub slot: u32,
}

impl Rts {
    /// Returns the request as it lies in the ring.
    #[inline]
    pub fn bytes(self) -> [u8; RTS_BYTES] {
        let last = u64::from(self.slot) << 32 | u64::from(self.generation);
        let words = [self.at, self.address, self.length, last];
        let words = words.map(u64::to_le_bytes);
        std::array::from_fn(|i| words[i / 8][i % 8])
    }

    /// Parses a request.
    #[inline]
    pub fn parse(bytes: &[u8; RTS_BYTES]) -> Self {
        let word = |n: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[n * 8 + i]));
        let (generation, slot) = (word(3) as u32, (word(3) >> 32) as u32);
        Self { at: word(0), address: word(1), length: word(2), generation, slot }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes_come_back() {
        for kind in [Kind::Plain, Kind::Tagged, Kind::Written, Kind::Changed] {
            for data in [None, Some(0), Some(u64::MAX)] {
                for bits in 0..8 {
                    let [is_rts, in_parts, is_claimed] = [1, 2, 4].map(|bit| bits & bit != 0);
                    let tag = 0x1234_5678_9abc_def0;
                    let envelope = Envelope { kind, tag, data, is_rts, in_parts, is_claimed };
                    assert_eq!(Envelope::parse(&envelope.bytes()), Some(envelope));
                }
            }
        }
        assert_eq!(Envelope::parse(&[0; ENVELOPE_BYTES]), None);
        let (generation, slot) = (u32::MAX, 5);
        let rts = Rts { at: 1, address: u64::MAX, length: 3, generation, slot };
        assert_eq!(Rts::parse(&rts.bytes()), rts);
    }
}
