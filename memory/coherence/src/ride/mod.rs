//! Rides: pages that go along with messages that are sent anyway, to nodes that will want them.
//! (Sakaguchi et al., *Ainori communication*, 2006.)
//!
//! Who sends a grant (a page, a barrier, a lock), or word that it has reached a barrier, may let
//! pages go along of which it is the home: what it [foresees](forecast) that the other will ask it
//! for next; or push them, in a message of their own. The other keeps them aside until a task
//! wants them, which then costs a fault and no message; and its next message of that kind to the
//! same node says which of them were of use.
//!
//! The parts know nothing of each other but this:
//!
//! | part | knows |
//! |---|---|
//! | [`forecast`] | what others asked this node for and used, hence what they want next, and how many pages a grant is to carry: pure guesses, any of which may be wrong |
//! | [`differences`], [`granularity`] | the paper's predictor and its control, one each |
//! | [`runs`] | how far a node goes through memory page by page |
//! | [`sweeps`] | how much of its own memory a node is about to use for the first time |
//! | [`history`], [`sequence`], [`trust`] | further predictors, and who of them is heard |
//! | [`auto`] | lets all of them compete |
//! | `scope/rides.rs`, `scope/ahead.rs` | which pages *may* go along and be taken: consistency. It asks the forecast, and believes nothing |
//!
//! A new predictor is a file here, a value of [`By`], and a line in [`auto`].

pub mod auto;
pub mod differences;
pub mod forecast;
pub mod granularity;
pub mod history;
pub mod runs;
pub mod sequence;
pub mod sweeps;
pub mod trust;

use serde::{Deserialize, Serialize};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::message::{Op, Page};

/// Which messages carry rides, and who says which pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Policy {
    /// None do.
    #[default]
    Normal,
    /// Pages' grants, as the paper's predictor says.
    Ainori1,
    /// And barriers' grants.
    Ainori2,
    /// And locks' grants: pages that were written under the lock.
    Ainori3,
    /// Any grant, as the best of several predictors say ([`auto`]).
    Auto,
    /// Pages' grants: what lies behind them, as far as the node is used to go ([`runs`]).
    Runs,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 6] = [
        Policy::Normal,
        Policy::Ainori1,
        Policy::Ainori2,
        Policy::Ainori3,
        Policy::Auto,
        Policy::Runs,
    ];

    /// The paper's name.
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

    /// The policy of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Who says which pages go along with this carrier, or first of all: nobody, if none do.
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

/// What a page can ride on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Carrier {
    /// OP_GETPGRANT: a page ride.
    Page,
    /// OP_BARRGRANT: a barrier ride.
    Barrier,
    /// OP_ACQGRANT: a lock ride.
    Lock,
    /// OP_BARR: from a node that has reached a barrier to its parent.
    Arrival,
    /// OP_PUSH, which carries nothing else: from a node that has reached a barrier to any other.
    Push,
}

impl Carrier {
    /// All of them.
    pub const ALL: [Carrier; 5] =
        [Carrier::Page, Carrier::Barrier, Carrier::Lock, Carrier::Arrival, Carrier::Push];

    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Carrier::Page => "page",
            Carrier::Barrier => "barrier",
            Carrier::Lock => "lock",
            Carrier::Arrival => "arrival",
            Carrier::Push => "push",
        }
    }

    /// The message.
    pub fn op(self) -> Op {
        match self {
            Carrier::Page => Op::GetPageGrant,
            Carrier::Barrier => Op::BarrierGrant,
            Carrier::Lock => Op::AcquireGrant,
            Carrier::Arrival => Op::Barrier,
            Carrier::Push => Op::Push,
        }
    }

    /// That message is a carrier.
    pub fn of(op: Op) -> Option<Self> {
        Self::ALL.into_iter().find(|carrier| carrier.op() == op)
    }

    /// It leaves before its sender passes a barrier, and what it brings is for after that.
    pub fn is_ahead(self) -> bool {
        matches!(self, Carrier::Arrival | Carrier::Push)
    }
}

/// Messages that tell what became of rides.
pub fn tells(op: Op) -> bool {
    matches!(op, Op::GetPage | Op::Acquire | Op::Barrier | Op::Push)
}

/// Who foresaw it. Numbers are part of the messages' format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum By {
    /// Who checks the protocol: any page, any time.
    Chance = 0,
    /// The paper's predictor: the last three [differences] of page numbers.
    Differences = 1,
    /// It was written under the lock that is granted.
    Written = 2,
    /// The node needed it again and again, and it was changed since ([`history`]).
    History = 3,
    /// The phase goes on as the one before ([`sequence`]).
    Shape = 4,
    /// The last difference goes on ([`sequence`]).
    Stride = 5,
    /// The page after the last ([`sequence`], [`runs`]).
    Next = 6,
}

impl By {
    /// All of them, in the order of their numbers.
    pub const ALL: [By; 7] =
        [By::Chance, By::Differences, By::Written, By::History, By::Shape, By::Stride, By::Next];

    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            By::Chance => "chance",
            By::Differences => "differences",
            By::Written => "written",
            By::History => "history",
            By::Shape => "shape",
            By::Stride => "stride",
            By::Next => "next",
        }
    }
}

/// What is said of a ride. Numbers are part of the messages' format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum Fate {
    /// It goes along with this message.
    Aboard = 0,
    /// A task has used it.
    Used = 1,
    /// No task has used it, and none will: another wrote it, or it was there already.
    Wasted = 2,
    /// It came when the page had been asked for already.
    Late = 3,
    /// No task used it between the barrier that it came for and the next; it is there still.
    Idle = 4,
}

impl Fate {
    /// All of them, in the order of their numbers.
    pub const ALL: [Fate; 5] = [Fate::Aboard, Fate::Used, Fate::Wasted, Fate::Late, Fate::Idle];

    /// As traces call it.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Aboard => "aboard",
            Fate::Used => "used",
            Fate::Wasted => "wasted",
            Fate::Late => "late",
            Fate::Idle => "idle",
        }
    }
}

/// A page that goes along with a message, or what became of one that did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ride {
    /// The page.
    pub page: Page,
    /// Who foresaw it.
    pub by: By,
    /// What is said of it.
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

/// Bytes of pages that a message carries: the one that was asked for, and rides.
const MESSAGE_BYTES: usize = 64 << 10;

/// How many pages of so many bytes a message carries, at most: at least one.
pub fn pages_max(page_bytes: usize) -> u32 {
    u32::try_from((MESSAGE_BYTES / page_bytes).max(1)).expect("a page has bytes")
}

/// Rides, and what is said of them, in one message: the header counts them in a byte.
pub const MOST: usize = u8::MAX as usize;

impl Ride {
    /// Bytes at the message's end.
    pub const BYTES: usize = size_of::<Raw>();

    /// It goes along with this message.
    pub fn is_aboard(&self) -> bool {
        self.fate == Fate::Aboard
    }
}

/// How many pages' bytes rides bring along.
pub fn aboard(rides: &[Ride]) -> usize {
    rides.iter().filter(|ride| ride.is_aboard()).count()
}

/// Appends what is said of rides to a message's body; the bytes of those aboard stand at its
/// beginning.
pub fn append(body: &mut Vec<u8>, rides: &[Ride]) {
    for ride in rides {
        let raw =
            Raw { page: ride.page.into(), by: ride.by as u8, fate: ride.fate as u8, zero: [0; 2] };
        body.extend_from_slice(raw.as_bytes());
    }
}

/// The last `count` rides of a body and what stands before them: nothing if there are none.
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
    fn what_is_in_the_format_has_its_place_as_number() {
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
