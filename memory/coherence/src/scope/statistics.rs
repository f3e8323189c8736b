//! What a node counts and times: for itself, for each page and for each lock.
//!
//! Times are in the unit of the driver's clock (nanoseconds, in ours).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::page::{EVENTS, STATES};
use crate::message::{Lock, Op};
use crate::ride::{By, Carrier};

/// Of a node, since it began or since they were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Statistics {
    /// Tasks could not read a page.
    pub read_faults: u64,
    /// Tasks could not write a page.
    pub write_faults: u64,
    /// Messages sent to other nodes, by [`Op`] in the order of [`Op::ALL`].
    pub messages: [u64; Op::ALL.len()],
    /// Pages whose changes were sent.
    pub diffs: u64,
    /// Copies dropped since another wrote the page.
    pub dropped: u64,
    /// Pages that became ours.
    pub gained: u64,
    /// How long pages were on their way here.
    pub fetching: Wait,
    /// From the last task's arrival at a barrier to its grant.
    pub barriers: Wait,
    /// How often each rule of [`RULES`](super::page::RULES) was followed, by state and event.
    pub rules: [[u64; EVENTS]; STATES],
    /// Of rides, by [`Carrier`] and by who foresaw them ([`By`]).
    pub rides: Rides,
    /// Of each lock and condition variable that was used.
    pub locks: BTreeMap<Lock, LockStatistics>,
}

/// How often something was waited for, and how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Wait {
    /// How often.
    pub times: u64,
    /// How long in all.
    pub total: u64,
    /// The longest.
    pub longest: u64,
}

impl Wait {
    pub(crate) fn add(&mut self, took: u64) {
        self.times += 1;
        self.total += took;
        self.longest = self.longest.max(took);
    }
}

/// Of rides, by [`Carrier`] and by who foresaw them ([`By`]).
pub type Rides = [[RideStatistics; By::ALL.len()]; Carrier::ALL.len()];

/// Those of which there were any.
pub fn each(rides: &Rides) -> impl Iterator<Item = (Carrier, By, &RideStatistics)> {
    Carrier::ALL.into_iter().zip(rides).flat_map(|(carrier, of)| {
        let of = By::ALL.into_iter().zip(of);
        let any = of.filter(|(_, it)| **it != RideStatistics::default());
        any.map(move |(by, it)| (carrier, by, it))
    })
}

/// Of rides: what was foreseen and sent counts where the pages live, what became of it where
/// they went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RideStatistics {
    /// Pages that another would need next.
    pub predicted: u64,
    /// That went along with a message.
    pub sent: u64,
    /// That a task used here: each a message that was saved.
    pub used: u64,
    /// That came, and were of no use: another wrote the page first, or it was here already.
    pub wasted: u64,
    /// That came when the page had been asked for.
    pub late: u64,
}

impl RideStatistics {
    /// Another node's with these.
    pub fn add(&mut self, other: &Self) {
        self.predicted += other.predicted;
        self.sent += other.sent;
        self.used += other.used;
        self.wasted += other.wasted;
        self.late += other.late;
    }
}

/// Of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockStatistics {
    /// From asking the manager to its grant.
    pub asked: Wait,
    /// Grants from one task of the node to another.
    pub handed: u64,
}

/// Of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PageStatistics {
    /// It was asked for.
    pub fetched: u32,
    /// A task could not write it.
    pub written: u32,
    /// Its copy was dropped, since another wrote it.
    pub dropped: u32,
    /// It went along with a message to another node.
    pub rides_sent: u32,
    /// It came so, and a task used it here.
    pub rides_used: u32,
    /// It came so, and was of no use.
    pub rides_wasted: u32,
    /// It came so when it had been asked for.
    pub rides_late: u32,
}
