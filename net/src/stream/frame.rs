//! The frames of messages in a stream of records.
//!
//! A record begins a frame, or continues it. The first one has a head, the message's header, and
//! the payload if that is short. A longer payload fills the following records, so that it leaves
//! from its place and arrives in its place.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Maximum length of a payload in the first record.
pub const SHORT_BYTES_MAX: usize = 8 << 10;
/// Maximum length of a message's header.
pub const HEADER_BYTES_MAX: usize = 1 << 10;

/// Maximum length of a frame's first record.
pub const FIRST_BYTES_MAX: usize = size_of::<Head>() + HEADER_BYTES_MAX + SHORT_BYTES_MAX;

/// Begins a frame.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct Head {
    header_bytes: U16,
    payload_bytes: U64,
}

/// The bytes are no frame.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed;

/// A frame's first record.
#[derive(Debug, PartialEq, Eq)]
pub struct First<'a> {
    /// The message's header.
    pub header: &'a [u8],
    /// All of a short payload; nothing of a longer one.
    pub payload: &'a [u8],
    /// Bytes of payload in the following records.
    pub follows: usize,
}

impl Head {
    /// The head of a message with that header and payload.
    pub fn new(header: &[u8], payload: &[u8]) -> Self {
        assert!(header.len() <= HEADER_BYTES_MAX, "the fabric's headers are short");
        Self {
            header_bytes: (header.len() as u16).into(),
            payload_bytes: (payload.len() as u64).into(),
        }
    }
}

impl<'a> First<'a> {
    /// Reads a frame's first record.
    pub fn parse(record: &'a [u8]) -> Result<Self, Malformed> {
        let (head, rest) = Head::ref_from_prefix(record).map_err(|_| Malformed)?;
        let header_bytes = usize::from(head.header_bytes.get());
        let payload_bytes = usize::try_from(head.payload_bytes.get()).map_err(|_| Malformed)?;
        if header_bytes > HEADER_BYTES_MAX || payload_bytes > isize::MAX as usize {
            return Err(Malformed);
        }
        let (header, payload) = rest.split_at_checked(header_bytes).ok_or(Malformed)?;
        let follows = if payload_bytes <= SHORT_BYTES_MAX { 0 } else { payload_bytes };
        let is_right = payload.len() == payload_bytes - follows;
        is_right.then_some(Self { header, payload, follows }).ok_or(Malformed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stream::outgoing::Outgoing;

    proptest! {
        #[test]
        fn a_first_record_comes_back(
            header in prop::collection::vec(any::<u8>(), 0..300),
            payload in prop::collection::vec(any::<u8>(), 0..20_000),
        ) {
            let mut message = Outgoing::new(header.clone(), payload.clone().into(), 0);
            let mut record = Vec::new();
            let put = |parts: &[&[u8]]| -> Result<(), ()> {
                record = parts.concat();
                Ok(())
            };
            let is_all = message.put_next(1000, put).unwrap();
            let first = First::parse(&record).unwrap();
            prop_assert_eq!(first.header, &header[..]);
            prop_assert_eq!(is_all, first.follows == 0);
            if is_all {
                prop_assert_eq!(first.payload, &payload[..]);
            } else {
                prop_assert_eq!((first.payload.len(), first.follows), (0, payload.len()));
            }
        }

        /// No input causes a panic, and lengths fit the bytes that are there.
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
            if let Ok(first) = First::parse(&bytes) {
                let parts = size_of::<Head>() + first.header.len() + first.payload.len();
                prop_assert_eq!(parts, bytes.len());
            }
        }
    }
}
