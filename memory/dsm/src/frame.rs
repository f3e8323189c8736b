//! Messages between agents: those of the protocol, messages between tasks, allocations, and signs
//! of life and of the end. The header of a fabric's message has the kind; the payload has the rest.

use coherence::message::Header;
use zerocopy::little_endian::{I32, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ledger::Allocation;

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// A message of the protocol. The payload is its body.
    Page(Header),
    /// A message between tasks. The payload is its text.
    Message(Address),
    /// To the sender's node: this task has received messages of that node with this sum of bytes.
    Received {
        /// The task.
        task: u32,
        /// The sum, as [`mailbox::cost`](crate::mailbox::cost) counts.
        bytes: u64,
    },
    /// To the parent in the barriers' tree: the sender's tasks have made their next allocation.
    Allocated(Allocation),
    /// This task of the sender's node has ended without having left.
    Ended {
        /// The task.
        task: u32,
        /// The number of barriers that it had reached.
        barriers: u64,
    },
    /// The job ends with this status. The payload is the line with the cause.
    End(u8),
    /// A sign of life.
    Alive,
}

/// The address of a message between tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The sender.
    pub from: u32,
    /// The receiver.
    pub to: u32,
    /// The tag.
    pub tag: i32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Message {
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

/// The kinds besides the protocol's, whose headers have a version of their own.
const MESSAGE: u8 = 1;
const END: u8 = 2;
const ALIVE: u8 = 3;
const RECEIVED: u8 = 4;
const ALLOCATED: u8 = 5;
const ENDED: u8 = 6;

impl Frame {
    /// Returns the header's bytes.
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Frame::Page(header) => header.bytes().to_vec(),
            Frame::Message(Address { from, to, tag }) => Message {
                kind: MESSAGE,
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

    /// Parses a header. Returns `None` if it is invalid.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() == Header::BYTES {
            return Header::parse(bytes).map(Frame::Page);
        }
        match *bytes {
            [END, status] => Some(Frame::End(status)),
            [ALIVE] => Some(Frame::Alive),
            [MESSAGE, 0, 0, 0, ..] => {
                let message = Message::ref_from_bytes(bytes).ok()?;
                Some(Frame::Message(Address {
                    from: message.from.get(),
                    to: message.to.get(),
                    tag: message.tag.get(),
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
            prop_assert_eq!(matches!(frame, Some(Frame::Message(_))), kind == MESSAGE);
            prop_assert_eq!(matches!(frame, Some(Frame::Received { .. })), kind == RECEIVED);
            prop_assert_eq!(matches!(frame, Some(Frame::Ended { .. })), kind == ENDED);
            prop_assert_eq!(frame.is_some(), [MESSAGE, RECEIVED, ENDED].contains(&kind));
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
            Frame::Message(address),
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
