//! Messages of scope consistency: operations and headers. [`content`](crate::content) has the
//! bodies, which depend on the operation.
//!
//! The names of operations are those of Mocha and JIAJIA (Sakaguchi et al., *Ainori communication*,
//! figure 4). All numbers are little endian. Received messages are not trusted: parsing checks
//! their form, and [`scope::Node::step`](crate::scope::Node::step) refuses those that violate the
//! protocol.

use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The index of a node.
pub type NodeId = u32;
/// The number of a page: its offset in the shared memory, divided by the page size.
pub type Page = u64;
/// The number of a lock or condition variable.
pub type Lock = u32;

/// Version of the message format. Both sides must use the same; every change of headers or bodies
/// increments it.
pub const VERSION: u8 = 4;

/// The operation of a message. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u16)]
pub enum Op {
    /// To a page's home: requests page `scope`.
    GetPage = 1,
    /// Answers `GetPage`. Body: the bytes of the page.
    GetPageGrant = 2,
    /// To the home of pages: changes that the sender made to them. Body:
    /// [`diff`](crate::diff)s.
    Diff = 3,
    /// Answers `Diff`: the changes with number `scope` are applied.
    DiffGrant = 4,
    /// To a lock's manager: requests `lock`. The sender knows the writes of its releases up to
    /// `scope`.
    Acquire = 5,
    /// Grants a lock. `scope` is the number of its last release. Body: runs of pages that were
    /// written under the lock.
    AcquireGrant = 6,
    /// Precedes a grant whose list is too long for one message. Body: the first parts of the list.
    Invalidate = 7,
    /// Precedes a release, a barrier arrival or a set whose list is too long for one message. Body:
    /// the first parts of the list.
    WriteNotice = 8,
    /// To a lock's manager: releases `lock`. Body: runs of pages that were written under the lock.
    Release = 9,
    /// To the parent in the barrier tree: all tasks of the sender and its descendants have arrived.
    /// Body: runs of pages that they have written since the last barrier.
    Barrier = 10,
    /// Grants a barrier to a child in the tree. Body: runs of pages that any node wrote, with their
    /// writers.
    BarrierGrant = 11,
    /// To a condition variable's manager: sets it. Body: runs of pages that were written before.
    Set = 12,
    /// To a condition variable's manager: resets it.
    Reset = 13,
    /// To a condition variable's manager: requests a notification for task `scope` when the
    /// variable is set.
    Wait = 14,
    /// Notifies task `scope` that the variable is set. Body: runs of pages that were written
    /// before.
    WaitGrant = 15,
    /// To the barrier manager: all tasks of the sender have reached a barrier without consistency.
    Meet = 16,
    /// Grants a barrier without consistency.
    MeetGrant = 17,
    /// From the home of pages to a node that is predicted to use them after the next barrier. Not
    /// part of Mocha. Body: the bytes of the pages.
    Push = 18,
}

impl Op {
    /// All operations, in the order of their numbers.
    pub const ALL: [Op; 18] = [
        Op::GetPage,
        Op::GetPageGrant,
        Op::Diff,
        Op::DiffGrant,
        Op::Acquire,
        Op::AcquireGrant,
        Op::Invalidate,
        Op::WriteNotice,
        Op::Release,
        Op::Barrier,
        Op::BarrierGrant,
        Op::Set,
        Op::Reset,
        Op::Wait,
        Op::WaitGrant,
        Op::Meet,
        Op::MeetGrant,
        Op::Push,
    ];

    /// Returns the paper's name of the operation.
    pub fn name(self) -> &'static str {
        match self {
            Op::GetPage => "OP_GETP",
            Op::GetPageGrant => "OP_GETPGRANT",
            Op::Diff => "OP_DIFF",
            Op::DiffGrant => "OP_DIFFGRANT",
            Op::Acquire => "OP_ACQ",
            Op::AcquireGrant => "OP_ACQGRANT",
            Op::Invalidate => "OP_INVLD",
            Op::WriteNotice => "OP_WTNT",
            Op::Release => "OP_REL",
            Op::Barrier => "OP_BARR",
            Op::BarrierGrant => "OP_BARRGRANT",
            Op::Set => "OP_SETCV",
            Op::Reset => "OP_RESETCV",
            Op::Wait => "OP_WAITCV",
            Op::WaitGrant => "OP_CVGRANT",
            Op::Meet => "OP_WAIT",
            Op::MeetGrant => "OP_WAITGRANT",
            Op::Push => "OP_PUSH",
        }
    }
}

/// The header of a message. Fields that an operation does not need are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Header {
    /// The operation.
    pub op: Op,
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// The lock or condition variable.
    pub lock: Lock,
    /// A page, the number of a diff, a lock's release, or a task, depending on the operation.
    pub scope: u64,
    /// Number of barriers that the sender has passed.
    pub epoch: u64,
    /// Number of [`Ride`](crate::ride::Ride) records at the end of the body.
    pub rides: u8,
}

/// The wire format of a header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Raw {
    op: U16,
    version: u8,
    rides: u8,
    from: U32,
    to: U32,
    lock: U32,
    scope: U64,
    epoch: U64,
}

impl Header {
    /// Size of a header in bytes.
    pub const BYTES: usize = size_of::<Raw>();

    /// Encodes the header.
    pub fn bytes(&self) -> [u8; Self::BYTES] {
        let raw = Raw {
            op: (self.op as u16).into(),
            version: VERSION,
            rides: self.rides,
            from: self.from.into(),
            to: self.to.into(),
            lock: self.lock.into(),
            scope: self.scope.into(),
            epoch: self.epoch.into(),
        };
        zerocopy::transmute!(raw)
    }

    /// Decodes a header. Returns `None` if `bytes` is not a valid header of this version.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let raw = Raw::ref_from_bytes(bytes).ok()?;
        if raw.version != VERSION {
            return None;
        }
        let op = *Op::ALL.get(usize::from(raw.op.get()).checked_sub(1)?)?;
        Some(Self {
            op,
            from: raw.from.get(),
            to: raw.to.get(),
            lock: raw.lock.get(),
            scope: raw.scope.get(),
            epoch: raw.epoch.get(),
            rides: raw.rides,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_operation_s_number_is_its_place() {
        for (at, op) in Op::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, at + 1, "{}", op.name());
        }
    }

    proptest! {
        #[test]
        fn headers_come_as_they_were_sent(op in 0..Op::ALL.len(), from: u32, to: u32, lock: u32, scope: u64, epoch: u64, rides: u8) {
            let header = Header { op: Op::ALL[op], from, to, lock, scope, epoch, rides };
            prop_assert_eq!(Header::parse(&header.bytes()), Some(header));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = Header::parse(&bytes);
        }
    }
}
