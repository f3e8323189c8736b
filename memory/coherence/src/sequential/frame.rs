//! A message between drivers of the protocol: one of the protocol's, several of them, or a word of
//! the drivers' own.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::message::Header;

/// A message between drivers. The body of `Page` is the protocol's; `Letters` has several messages
/// of the protocol as its body; drivers agree on the bodies of `Word`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<W> {
    /// The protocol's.
    Page(Header),
    /// Several of the protocol's that bring no pages: see [`letters`](super::message::letters).
    Letters,
    /// Anything else.
    Word(W),
}

const PAGE: u8 = 1;
const WORD: u8 = 2;
const LETTERS: u8 = 3;

impl<W: Serialize + DeserializeOwned> Frame<W> {
    /// As it is sent.
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + Header::BYTES);
        match self {
            Frame::Page(header) => {
                bytes.push(PAGE);
                bytes.extend(header.bytes());
            }
            Frame::Letters => bytes.push(LETTERS),
            Frame::Word(word) => {
                bytes.push(WORD);
                bytes = postcard::to_extend(&word, bytes).expect("a vector has room");
            }
        }
        bytes
    }

    /// Of what came: nothing if it is none of ours.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match *kind {
            PAGE => Header::parse(rest).map(Frame::Page),
            LETTERS => rest.is_empty().then_some(Frame::Letters),
            WORD => match postcard::take_from_bytes(rest) {
                Ok((word, [])) => Some(Frame::Word(word)),
                _ => None,
            },
            _ => None,
        }
    }
}
