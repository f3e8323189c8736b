//! What stands in a ring behind the ring's own header: an envelope, then the message, or word
//! of where it lies.

/// Longest message that travels in the ring, and longest that can be injected. Between two cores
/// a longer one is copied once in less time than it is brought there and taken out.
pub const EAGER_MAX: usize = 3072;

/// Bytes of an envelope.
pub const ENVELOPE: usize = 24;
/// Bytes of an offer.
pub const OFFER: usize = 32;

/// By which calls a message was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `fi_send` and its like.
    Plain = 1,
    /// `fi_tsend` and its like.
    Tagged = 2,
    /// No message: data of who has written to remote memory.
    Written = 3,
    /// The same of who has changed numbers there.
    Changed = 4,
}

/// Data for the completion come along.
const HAS_DATA: u8 = 1;
/// What follows is an offer.
const IS_OFFER: u8 = 2;
/// The sender's buffer has several parts: its record tells.
const IN_PARTS: u8 = 4;
/// The sender has found the receive.
const IS_PLACED: u8 = 8;

/// What is known of a message before its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// By which call it was sent.
    pub kind: Kind,
    /// Its tag; 0 where there are none.
    pub tag: u64,
    /// Data for the completion.
    pub data: Option<u64>,
    /// What follows is an [`Offer`].
    pub is_offer: bool,
    /// Of an offer: look into the record.
    pub in_parts: bool,
    /// Of an offer: the sender has claimed its receive.
    pub is_placed: bool,
}

impl Envelope {
    /// That of a message that travels in the ring.
    #[inline]
    pub fn of(kind: Kind, tag: u64, data: Option<u64>) -> Self {
        Self { kind, tag, data, is_offer: false, in_parts: false, is_placed: false }
    }

    /// As it lies in the ring.
    #[inline]
    pub fn bytes(self) -> [u8; ENVELOPE] {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = flag(self.data.is_some(), HAS_DATA)
            | flag(self.is_offer, IS_OFFER)
            | flag(self.in_parts, IN_PARTS)
            | flag(self.is_placed, IS_PLACED);
        let first = u64::from(self.kind as u8) | u64::from(flags) << 8;
        let words = [first, self.tag, self.data.unwrap_or(0)].map(u64::to_le_bytes);
        std::array::from_fn(|i| words[i / 8][i % 8])
    }

    /// From there; `None` if no sender writes that.
    #[inline]
    pub fn parse(bytes: &[u8; ENVELOPE]) -> Option<Self> {
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
            is_offer: has(IS_OFFER),
            in_parts: has(IN_PARTS),
            is_placed: has(IS_PLACED),
        })
    }
}

/// Where a message lies that does not travel in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Address of the sender's record; where the sender has claimed the receive, of his port.
    pub at: u64,
    /// Address of the message, if it is in one part.
    pub address: u64,
    /// Its bytes.
    pub length: u64,
    /// Which of the tasks that had the sender's ID.
    pub generation: u32,
    /// The slot of the receive, if the sender has claimed it.
    pub slot: u32,
}

impl Offer {
    /// As it lies in the ring.
    #[inline]
    pub fn bytes(self) -> [u8; OFFER] {
        let last = u64::from(self.slot) << 32 | u64::from(self.generation);
        let words = [self.at, self.address, self.length, last];
        let words = words.map(u64::to_le_bytes);
        std::array::from_fn(|i| words[i / 8][i % 8])
    }

    /// From there.
    #[inline]
    pub fn parse(bytes: &[u8; OFFER]) -> Self {
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
                    let [is_offer, in_parts, is_placed] = [1, 2, 4].map(|bit| bits & bit != 0);
                    let tag = 0x1234_5678_9abc_def0;
                    let envelope = Envelope { kind, tag, data, is_offer, in_parts, is_placed };
                    assert_eq!(Envelope::parse(&envelope.bytes()), Some(envelope));
                }
            }
        }
        assert_eq!(Envelope::parse(&[0; ENVELOPE]), None);
        let (generation, slot) = (u32::MAX, 5);
        let offer = Offer { at: 1, address: u64::MAX, length: 3, generation, slot };
        assert_eq!(Offer::parse(&offer.bytes()), offer);
        // Word of a large message is one cache line.
        assert_eq!(sync::ring::HEADER_SIZE + ENVELOPE + OFFER, sync::ring::LINE_SIZE);
    }
}
