//! What nodes say to each other: a fixed header, and a body that depends on the operation.
//!
//! Names are those of Mocha and JIAJIA (Sakaguchi et al., *Ainori communication*, figure 4).
//! All numbers are little endian. What comes is not trusted: a header is made only of what
//! parses, and [`scope::Node::step`](crate::scope::Node::step) refuses what does not fit.

use serde::{Deserialize, Serialize};

use crate::diff;
use crate::ride::{self, Ride};
use crate::run::{self, Run};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A node's index.
pub type NodeId = u32;
/// A page's number: its offset in the shared memory by the page's size.
pub type Page = u64;
/// A lock's number, or a condition variable's.
pub type Lock = u32;

/// Both sides must speak the same: rises with every change of headers or bodies.
pub const VERSION: u8 = 3;

/// What a message is. Numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u16)]
pub enum Op {
    /// To a page's home: send me page `scope`.
    GetPage = 1,
    /// The page. Body: its bytes.
    GetPageGrant = 2,
    /// To pages' home: what I changed in them. Body: [`diff`]s.
    Diff = 3,
    /// They are applied: number `scope`.
    DiffGrant = 4,
    /// To a lock's manager: I want `lock`, and have seen its releases up to `scope`.
    Acquire = 5,
    /// You have it; the last release was `scope`. Body: runs of pages written under it.
    AcquireGrant = 6,
    /// Precedes a grant whose list is long: these too.
    Invalidate = 7,
    /// Precedes a release, a barrier or a set whose list is long: these too.
    WriteNotice = 8,
    /// To a lock's manager: I give `lock` back. Body: runs of pages written under it.
    Release = 9,
    /// To the barrier's manager: all my tasks are there. Body: runs of pages written since
    /// the last.
    Barrier = 10,
    /// All are there. Body: runs of pages written by anyone, and by whom.
    BarrierGrant = 11,
    /// To a condition variable's manager: it is set. Body: runs of pages written before.
    Set = 12,
    /// It is not.
    Reset = 13,
    /// Tell me when it is set, for the task `scope`.
    Wait = 14,
    /// It is, for the task `scope`. Body: runs of pages written before.
    WaitGrant = 15,
    /// To the barrier's manager: all my tasks are there, and want no consistency.
    Meet = 16,
    /// All are there.
    MeetGrant = 17,
    /// From pages' home, which is at a barrier, to who will want them after it: these. (Ours, not
    /// Mocha's.) Body: their bytes.
    Push = 18,
}

impl Op {
    /// All of them, in the order of their numbers.
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

    /// The paper's name.
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

/// What a message's page list or number is about. Fields that an operation does not need are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Header {
    /// What it is.
    pub op: Op,
    /// Who says it.
    pub from: NodeId,
    /// To whom.
    pub to: NodeId,
    /// The lock or condition variable.
    pub lock: Lock,
    /// A page, a diff's number or a lock's release, as the operation says.
    pub scope: u64,
    /// How many barriers the sender has passed.
    pub epoch: u64,
    /// Of how many rides its body says something, at its end.
    pub rides: u8,
}

/// A header's bytes.
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
    /// Bytes of a header.
    pub const BYTES: usize = size_of::<Raw>();

    /// As it is sent.
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

    /// Of what came: nothing if it is no header of ours.
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

/// What a message's body says, as far as the protocol is concerned.
///
/// A body begins with the bytes of pages: the one that was asked for, then those that ride
/// along. Then comes what the operation says, then what is said of [rides](crate::ride).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Content {
    /// There is none.
    Empty,
    /// A page's bytes.
    Page,
    /// Changes of these pages.
    Diffs(Vec<Page>),
    /// Runs of pages.
    Runs(Vec<Run>),
}

impl Content {
    /// Of a body that came with `header`, where pages have `page_bytes`, and what it says of
    /// rides: nothing if it is none.
    pub fn parse(header: &Header, body: &[u8], page_bytes: usize) -> Option<(Self, Vec<Ride>)> {
        let (body, rides) = ride::split(body, header.rides)?;
        let body = body.get(ride::aboard(&rides) * page_bytes..)?;
        Some((Self::parse_rest(header.op, body, page_bytes)?, rides))
    }

    fn parse_rest(op: Op, body: &[u8], page_bytes: usize) -> Option<Self> {
        match op {
            Op::GetPageGrant => (body.len() == page_bytes).then_some(Content::Page),
            Op::Diff => {
                let pages = diff::pages(body, page_bytes).ok()?;
                Some(Content::Diffs(pages.into_iter().map(|(page, _)| page).collect()))
            }
            Op::AcquireGrant
            | Op::Invalidate
            | Op::WriteNotice
            | Op::Release
            | Op::Barrier
            | Op::BarrierGrant
            | Op::Set
            | Op::WaitGrant => run::decode(body, u64::MAX).map(Content::Runs),
            _ => body.is_empty().then_some(Content::Empty),
        }
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
