//! What agents say to each other: the protocol's messages, tasks' letters, and word of life
//! and death. The header of a fabric's message says which; the payload is the rest.

use coherence::message::Header;
use zerocopy::little_endian::{I32, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// The protocol's; the payload is its body.
    Page(Header),
    /// A letter, which the payload is.
    Letter(Address),
    /// The job ends with this status; the payload is the line that says why.
    End(u8),
    /// Still here.
    Alive,
}

/// On a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The task that sends it.
    pub from: u32,
    /// The task that it is for.
    pub to: u32,
    /// What it is about.
    pub tag: i32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Letter {
    kind: u8,
    zero: [u8; 3],
    from: U32,
    to: U32,
    tag: I32,
}

/// The kinds that are not the protocol's. Its headers have their own version.
const LETTER: u8 = 1;
const END: u8 = 2;
const ALIVE: u8 = 3;

impl Frame {
    /// As it is sent.
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Frame::Page(header) => header.bytes().to_vec(),
            Frame::Letter(Address { from, to, tag }) => Letter {
                kind: LETTER,
                zero: [0; 3],
                from: from.into(),
                to: to.into(),
                tag: tag.into(),
            }
            .as_bytes()
            .to_vec(),
            Frame::End(status) => vec![END, status],
            Frame::Alive => vec![ALIVE],
        }
    }

    /// Of what came: nothing if it is none of ours.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() == Header::BYTES {
            return Header::parse(bytes).map(Frame::Page);
        }
        match *bytes {
            [END, status] => Some(Frame::End(status)),
            [ALIVE] => Some(Frame::Alive),
            _ => {
                let letter = Letter::ref_from_bytes(bytes).ok()?;
                let is_ours = letter.kind == LETTER && letter.zero == [0; 3];
                is_ours.then_some(Frame::Letter(Address {
                    from: letter.from.get(),
                    to: letter.to.get(),
                    tag: letter.tag.get(),
                }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coherence::message::Op;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_and_what_parses_is_what_was_sent(bytes: Vec<u8>) {
            if let Some(frame) = Frame::parse(&bytes) {
                prop_assert_eq!(frame.bytes(), bytes);
            }
        }

        #[test]
        fn letters_with_other_bytes_parse_or_do_not(mut bytes: [u8; 16], kind in 0..5u8) {
            bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
            let frame = Frame::parse(&bytes);
            prop_assert_eq!(matches!(frame, Some(Frame::Letter(_))), kind == LETTER);
        }
    }

    #[test]
    fn frames_come_as_they_were_sent() {
        let header =
            Header { op: Op::Diff, from: 1, to: 2, lock: 3, scope: 1 << 40, epoch: u64::MAX };
        let address = Address { from: 70000, to: 1, tag: -2 };
        for frame in [Frame::Page(header), Frame::Letter(address), Frame::End(9), Frame::Alive] {
            assert_eq!(Frame::parse(&frame.bytes()), Some(frame));
            let mut longer = frame.bytes();
            longer.push(0);
            assert_eq!(Frame::parse(&longer), None);
        }
        assert_eq!(Frame::parse(&[]), None);
    }
}
