//! What agents say to each other: the protocol's messages, tasks' letters, what tasks have
//! allocated, and word of life and death. The header of a fabric's message says which; the
//! payload is the rest.

use coherence::message::Header;
use zerocopy::little_endian::{I32, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ledger::Allocation;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// The protocol's; the payload is its body.
    Page(Header),
    /// A letter, which the payload is.
    Letter(Address),
    /// To the sender's node: this task has received letters of it, of so many bytes in all.
    Received {
        /// The task.
        task: u32,
        /// As [`mailbox::cost`](crate::mailbox::cost) counts them.
        bytes: u64,
    },
    /// To node 0: the sender's tasks have made their next allocation.
    Allocated(Allocation),
    /// This task, one of the sender's node, has ended without having left.
    Ended {
        /// The task.
        task: u32,
        /// How many barriers it has reached.
        barriers: u64,
    },
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

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct OfTask {
    kind: u8,
    zero: [u8; 3],
    task: U32,
    number: U64,
}

impl OfTask {
    fn bytes(kind: u8, task: u32, number: u64) -> Vec<u8> {
        let this = Self { kind, zero: [0; 3], task: task.into(), number: number.into() };
        this.as_bytes().to_vec()
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Allocated {
    kind: u8,
    zero: [u8; 3],
    first: U32,
    bytes: U64,
    block: U64,
}

/// The kinds that are not the protocol's. Its headers have their own version.
const LETTER: u8 = 1;
const END: u8 = 2;
const ALIVE: u8 = 3;
const RECEIVED: u8 = 4;
const ALLOCATED: u8 = 5;
const ENDED: u8 = 6;

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
            Frame::Received { task, bytes } => OfTask::bytes(RECEIVED, task, bytes),
            Frame::Ended { task, barriers } => OfTask::bytes(ENDED, task, barriers),
            Frame::Allocated(Allocation { bytes, block, first }) => Allocated {
                kind: ALLOCATED,
                zero: [0; 3],
                first: first.into(),
                bytes: bytes.into(),
                block: block.into(),
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
            [LETTER, 0, 0, 0, ..] => {
                let letter = Letter::ref_from_bytes(bytes).ok()?;
                Some(Frame::Letter(Address {
                    from: letter.from.get(),
                    to: letter.to.get(),
                    tag: letter.tag.get(),
                }))
            }
            [RECEIVED, 0, 0, 0, ..] => {
                let received = OfTask::ref_from_bytes(bytes).ok()?;
                Some(Frame::Received { task: received.task.get(), bytes: received.number.get() })
            }
            [ENDED, 0, 0, 0, ..] => {
                let ended = OfTask::ref_from_bytes(bytes).ok()?;
                Some(Frame::Ended { task: ended.task.get(), barriers: ended.number.get() })
            }
            [ALLOCATED, 0, 0, 0, ..] => {
                let made = Allocated::ref_from_bytes(bytes).ok()?;
                Some(Frame::Allocated(Allocation {
                    bytes: made.bytes.get(),
                    block: made.block.get(),
                    first: made.first.get(),
                }))
            }
            _ => None,
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
        fn letters_with_other_bytes_parse_or_do_not(mut bytes: [u8; 16], kind in 0..8u8) {
            bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
            let frame = Frame::parse(&bytes);
            prop_assert_eq!(matches!(frame, Some(Frame::Letter(_))), kind == LETTER);
            prop_assert_eq!(matches!(frame, Some(Frame::Received { .. })), kind == RECEIVED);
            prop_assert_eq!(matches!(frame, Some(Frame::Ended { .. })), kind == ENDED);
            prop_assert_eq!(frame.is_some(), [LETTER, RECEIVED, ENDED].contains(&kind));
        }
    }

    #[test]
    fn frames_come_as_they_were_sent() {
        let header = Header {
            op: Op::Diff,
            from: 1,
            to: 2,
            lock: 3,
            scope: 1 << 40,
            epoch: u64::MAX,
            rides: 4,
        };
        let address = Address { from: 70000, to: 1, tag: -2 };
        let made = Allocation { bytes: 1 << 40, block: 4096, first: 7 };
        for frame in [
            Frame::Page(header),
            Frame::Letter(address),
            Frame::Received { task: 70000, bytes: 1 << 40 },
            Frame::Ended { task: 70000, barriers: 1 << 40 },
            Frame::Allocated(made),
            Frame::End(9),
            Frame::Alive,
        ] {
            assert_eq!(Frame::parse(&frame.bytes()), Some(frame));
            let mut longer = frame.bytes();
            longer.push(0);
            assert_eq!(Frame::parse(&longer), None);
        }
        assert_eq!(Frame::parse(&[]), None);
    }
}
