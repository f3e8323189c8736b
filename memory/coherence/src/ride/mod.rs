//! Rides: pages that are piggybacked on messages to nodes that are predicted to use them (Sakaguchi
//! et al., *Ainori communication*, 2006).
//!
//! A node sends grants of pages, barriers and locks, and notifies its parent when it reaches a
//! barrier. On these messages it can piggyback pages whose home it is, if it [predicts](forecast)
//! that the receiver will request them next. It can also push pages in a message of their own.
//!
//! The receiver stores the pages without mapping them. Their first use costs a fault, but no
//! message. The receiver's next message of that kind to the same node reports which of the pages it
//! used.
//!
//! The parts have separate responsibilities:
//!
//! | part | responsibility |
//! |---|---|
//! | [`forecast`] | predicts the pages that other nodes will request; may be wrong |
//! | [`differences`], [`granularity`] | the paper's predictor, and its control of the page count |
//! | [`choices`] | open questions of the paper about these two |
//! | [`runs`] | sequential access, page by page |
//! | [`sweeps`] | first use of a node's own memory |
//! | [`history`], [`sequence`], [`trust`] | further predictors, and their accuracy |
//! | [`auto`] | competition of all predictors |
//! | [`tracks`] | pages that a node requests together, or before it needs them |
//! | `scope/rides.rs`, `scope/ahead.rs` | consistency: which pages *may* be sent and accepted |
//!
//! A new predictor is a file here, a value of [`By`], and a line in [`auto`].

pub mod auto;
pub mod choices;
pub mod differences;
pub mod forecast;
pub mod granularity;
pub mod history;
pub mod runs;
pub mod sequence;
pub mod sweeps;
pub mod tracks;
pub mod trust;

use serde::{Deserialize, Serialize};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::message::{Op, Page};

/// The messages that carry rides, and the predictors of these pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Policy {
    /// No rides.
    #[default]
    Normal,
    /// Page grants carry the pages of the paper's predictor.
    Ainori1,
    /// As `Ainori1`, and barrier grants carry pages too.
    Ainori2,
    /// As `Ainori2`, and lock grants carry pages that were written under the lock.
    Ainori3,
    /// All grants carry pages, chosen by the best of several predictors ([`auto`]).
    Auto,
    /// Page grants carry the following pages, as far as the node's earlier runs went ([`runs`]).
    Runs,
}

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 6] = [
        Policy::Normal,
        Policy::Ainori1,
        Policy::Ainori2,
        Policy::Ainori3,
        Policy::Auto,
        Policy::Runs,
    ];

    /// Returns the paper's name of the policy.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Normal => "normal",
            Policy::Ainori1 => "ainori1",
            Policy::Ainori2 => "ainori2",
            Policy::Ainori3 => "ainori3",
            Policy::Auto => "auto",
            Policy::Runs => "runs",
        }
    }

    /// Returns the policy with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Returns the first predictor for this carrier, or `None` if the carrier has no rides.
    pub fn predictor(self, carrier: Carrier) -> Option<By> {
        match (self, carrier) {
            (Policy::Normal, _) => None,
            (Policy::Auto, _) => Some(By::History),
            (Policy::Runs, Carrier::Page) => Some(By::Next),
            (Policy::Runs, _) => None,
            (_, Carrier::Page) => Some(By::Differences),
            (Policy::Ainori2 | Policy::Ainori3, Carrier::Barrier) => Some(By::Differences),
            (Policy::Ainori3, Carrier::Lock) => Some(By::Written),
            _ => None,
        }
    }
}

/// A message that can carry rides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Carrier {
    /// OP_GETPGRANT: the grant of a page.
    Page,
    /// OP_BARRGRANT: the grant of a barrier.
    Barrier,
    /// OP_ACQGRANT: the grant of a lock.
    Lock,
    /// OP_BARR: a barrier arrival, from a node to its parent.
    Arrival,
    /// OP_PUSH: only rides, from a node that has reached a barrier to any other node.
    Push,
}

impl Carrier {
    /// All carriers.
    pub const ALL: [Carrier; 5] =
        [Carrier::Page, Carrier::Barrier, Carrier::Lock, Carrier::Arrival, Carrier::Push];

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Carrier::Page => "page",
            Carrier::Barrier => "barrier",
            Carrier::Lock => "lock",
            Carrier::Arrival => "arrival",
            Carrier::Push => "push",
        }
    }

    /// Returns the operation of the message.
    pub fn op(self) -> Op {
        match self {
            Carrier::Page => Op::GetPageGrant,
            Carrier::Barrier => Op::BarrierGrant,
            Carrier::Lock => Op::AcquireGrant,
            Carrier::Arrival => Op::Barrier,
            Carrier::Push => Op::Push,
        }
    }

    /// Returns the carrier that is this operation, if any.
    pub fn of(op: Op) -> Option<Self> {
        Self::ALL.into_iter().find(|carrier| carrier.op() == op)
    }

    /// Returns true if the carrier leaves before its sender passes a barrier. Its pages are used
    /// after the barrier.
    pub fn is_ahead(self) -> bool {
        matches!(self, Carrier::Arrival | Carrier::Push)
    }
}

/// Returns true if messages of this operation report the fates of earlier rides.
pub fn reports_fates(op: Op) -> bool {
    matches!(op, Op::GetPage | Op::Acquire | Op::Barrier | Op::Push)
}

/// The predictor of a page. The numbers are part of the message format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum By {
    /// Pages that a test of the protocol selects, at any time.
    Chance = 0,
    /// The paper's predictor: the last three [differences] of page numbers.
    Differences = 1,
    /// The page was written under the lock that is granted.
    Written = 2,
    /// The node needed the page repeatedly, and it has changed since ([`history`]).
    History = 3,
    /// The phase continues like an earlier one ([`sequence`]).
    Shape = 4,
    /// The last difference repeats ([`sequence`]).
    Stride = 5,
    /// The page after the last one ([`sequence`], [`runs`]).
    Next = 6,
    /// The node requested the page along with another one ([`tracks`]).
    Wanted = 7,
    /// The node requested the page before a task needed it ([`tracks`]).
    Prefetch = 8,
}

impl By {
    /// All predictors, in the order of their numbers.
    pub const ALL: [By; 9] = [
        By::Chance,
        By::Differences,
        By::Written,
        By::History,
        By::Shape,
        By::Stride,
        By::Next,
        By::Wanted,
        By::Prefetch,
    ];

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            By::Chance => "chance",
            By::Differences => "differences",
            By::Written => "written",
            By::History => "history",
            By::Shape => "shape",
            By::Stride => "stride",
            By::Next => "next",
            By::Wanted => "wanted",
            By::Prefetch => "prefetch",
        }
    }
}

/// The fate of a ride. The numbers are part of the message format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum Fate {
    /// The page is in this message.
    Aboard = 0,
    /// A task has used the page.
    Used = 1,
    /// No task has used the page, and none will: another node wrote it, or a copy was present
    /// already.
    Wasted = 2,
    /// The page arrived after it had been requested.
    Late = 3,
    /// No task used the page in the phase for which it was sent. The copy is still present.
    Idle = 4,
    /// The page is not in this message. The request asks for it along with its own page.
    Wanted = 5,
}

impl Fate {
    /// All fates, in the order of their numbers.
    pub const ALL: [Fate; 6] =
        [Fate::Aboard, Fate::Used, Fate::Wasted, Fate::Late, Fate::Idle, Fate::Wanted];

    /// Returns the name in traces.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Aboard => "aboard",
            Fate::Used => "used",
            Fate::Wasted => "wasted",
            Fate::Late => "late",
            Fate::Idle => "idle",
            Fate::Wanted => "wanted",
        }
    }
}

/// A page that is piggybacked on a message, or the fate of one that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ride {
    /// The page.
    pub page: Page,
    /// The predictor of the page.
    pub by: By,
    /// The fate of the ride.
    pub fate: Fate,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    page: U64,
    by: u8,
    fate: u8,
    zero: [u8; 2],
}

/// Bytes of pages that a message carries, the requested page included.
const MESSAGE_BYTES: usize = 64 << 10;

/// Returns the maximum number of pages of `page_bytes` bytes in a message; at least one.
pub fn pages_max(page_bytes: usize) -> u32 {
    u32::try_from((MESSAGE_BYTES / page_bytes).max(1)).expect("a page has bytes")
}

/// Maximum number of ride records in a message. The header counts them in one byte.
pub const MOST: usize = u8::MAX as usize;

impl Ride {
    /// Size of a ride record in bytes.
    pub const BYTES: usize = size_of::<Raw>();

    /// Returns true if the page is in this message.
    pub fn is_aboard(&self) -> bool {
        self.fate == Fate::Aboard
    }
}

/// Returns the number of pages that the message carries for these rides.
pub fn aboard(rides: &[Ride]) -> usize {
    rides.iter().filter(|ride| ride.is_aboard()).count()
}

/// Appends ride records to a message's body. The pages themselves are at the beginning of the body.
pub fn append(body: &mut Vec<u8>, rides: &[Ride]) {
    for ride in rides {
        let raw =
            Raw { page: ride.page.into(), by: ride.by as u8, fate: ride.fate as u8, zero: [0; 2] };
        body.extend_from_slice(raw.as_bytes());
    }
}

/// Splits the last `count` ride records off a body. Returns `None` if they are malformed.
pub fn split(body: &[u8], count: u8) -> Option<(&[u8], Vec<Ride>)> {
    let at = body.len().checked_sub(usize::from(count) * Ride::BYTES)?;
    let (rest, tail) = body.split_at(at);
    let mut rides = Vec::with_capacity(count.into());
    for raw in <[Raw]>::ref_from_bytes(tail).ok()? {
        let by = *By::ALL.get(usize::from(raw.by))?;
        let fate = *Fate::ALL.get(usize::from(raw.fate))?;
        if raw.zero != [0; 2] {
            return None;
        }
        rides.push(Ride { page: raw.page.get(), by, fate });
    }
    Some((rest, rides))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_field_of_the_format_has_its_position_as_number() {
        assert!(By::ALL.into_iter().enumerate().all(|(at, by)| by as usize == at));
        assert!(Fate::ALL.into_iter().enumerate().all(|(at, fate)| fate as usize == at));
        assert!(Policy::ALL.into_iter().all(|it| Policy::named(it.name()) == Some(it)));
    }

    proptest! {
        #[test]
        fn rides_come_as_they_were_sent(rest: Vec<u8>, said in proptest::collection::vec((any::<u64>(), 0..By::ALL.len(), 0..Fate::ALL.len()), 0..9)) {
            let rides: Vec<_> = said.into_iter().map(|(page, by, fate)| Ride { page, by: By::ALL[by], fate: Fate::ALL[fate] }).collect();
            let mut body = rest.clone();
            append(&mut body, &rides);
            prop_assert_eq!(split(&body, rides.len() as u8), Some((&rest[..], rides)));
        }

        #[test]
        fn no_bytes_make_it_panic(body: Vec<u8>, count: u8) {
            let _ = split(&body, count);
        }
    }
}
