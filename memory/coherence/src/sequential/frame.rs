//! The framing of messages between drivers: one message of the protocol, a batch of them, or a
//! control message of the drivers.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::message::Header;

/// A message between drivers. The body of `Page` is the body of the protocol's message. The body of
/// `Batch` is a batch of messages. Drivers define the bodies of `Word`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<W> {
    /// A message of the protocol.
    Page(Header),
    /// A batch of messages without pages: see [`parse_batch`](super::message::parse_batch).
    Batch,
    /// A control message of the drivers.
    Word(W),
}

const PAGE: u8 = 1;
const WORD: u8 = 2;
const BATCH: u8 = 3;

impl<W: Serialize + DeserializeOwned> Frame<W> {
    /// Encodes the header of the message.
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + Header::BYTES);
        match self {
            Frame::Page(header) => {
                bytes.push(PAGE);
                bytes.extend(header.bytes());
            }
            Frame::Batch => bytes.push(BATCH),
            Frame::Word(word) => {
                bytes.push(WORD);
                bytes = postcard::to_extend(&word, bytes).expect("a vector has room");
            }
        }
        bytes
    }

    /// Decodes a header. Returns `None` if it is malformed.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match *kind {
            PAGE => Header::parse(rest).map(Frame::Page),
            BATCH => rest.is_empty().then_some(Frame::Batch),
            WORD => match postcard::take_from_bytes(rest) {
                Ok((word, [])) => Some(Frame::Word(word)),
                _ => None,
            },
            _ => None,
        }
    }
}
