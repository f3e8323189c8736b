//! Statistics of a node: counts and times for the node, each page and each lock.
//!
//! Times are in the unit of the driver's clock. Nagaya's drivers use nanoseconds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::page::{EVENTS, STATES};
use crate::message::{Lock, Op};
use crate::ride::{By, Carrier};

/// The statistics of a node since it started or since the last reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Statistics {
    /// Read faults.
    pub read_faults: u64,
    /// Write faults.
    pub write_faults: u64,
    /// Messages sent to other nodes, by [`Op`] in the order of [`Op::ALL`].
    pub messages: [u64; Op::ALL.len()],
    /// Pages whose diffs were sent.
    pub diffs: u64,
    /// Copies dropped because another node wrote the page.
    pub dropped: u64,
    /// Pages whose home moved here.
    pub gained: u64,
    /// Times from a page's request to its arrival.
    pub fetching: Wait,
    /// Times from the last task's arrival at a barrier to the grant.
    pub barriers: Wait,
    /// Number of times each rule of the [table](super::page::TABLE) was applied, by state and
    /// event.
    pub rules: [[u64; EVENTS]; STATES],
    /// Statistics of rides, by [`Carrier`] and predictor ([`By`]).
    pub rides: Rides,
    /// Statistics of each lock and condition variable that was used.
    pub locks: BTreeMap<Lock, LockStatistics>,
}

/// Number and duration of waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Wait {
    /// Number of waits.
    pub times: u64,
    /// Total duration.
    pub total: u64,
    /// Longest duration.
    pub longest: u64,
}

impl Wait {
    pub(crate) fn add(&mut self, took: u64) {
        self.times += 1;
        self.total += took;
        self.longest = self.longest.max(took);
    }
}

/// Statistics of rides, by [`Carrier`] and predictor ([`By`]).
pub type Rides = [[RideStatistics; By::ALL.len()]; Carrier::ALL.len()];

/// Returns the nonzero statistics.
pub fn each(rides: &Rides) -> impl Iterator<Item = (Carrier, By, &RideStatistics)> {
    Carrier::ALL.into_iter().zip(rides).flat_map(|(carrier, of)| {
        let of = By::ALL.into_iter().zip(of);
        let any = of.filter(|(_, it)| **it != RideStatistics::default());
        any.map(move |(by, it)| (carrier, by, it))
    })
}

/// Statistics of rides. Predicted and sent pages are counted at the sender, their fates at the
/// receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RideStatistics {
    /// Pages that another node was predicted to request next.
    pub predicted: u64,
    /// Pages that were sent.
    pub sent: u64,
    /// Pages that a task of this node used. Each of them saved a message.
    pub used: u64,
    /// Pages that arrived in vain: another node wrote the page first, or a copy was present.
    pub wasted: u64,
    /// Pages that arrived after they had been requested.
    pub late: u64,
}

impl RideStatistics {
    /// Adds another node's statistics.
    pub fn add(&mut self, other: &Self) {
        self.predicted += other.predicted;
        self.sent += other.sent;
        self.used += other.used;
        self.wasted += other.wasted;
        self.late += other.late;
    }
}

/// Statistics of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockStatistics {
    /// Times from a request to its grant by the manager.
    pub asked: Wait,
    /// Hand-overs from one task of the node to another.
    pub handed: u64,
}

/// Statistics of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PageStatistics {
    /// Requests of the page.
    pub fetched: u32,
    /// Write faults.
    pub written: u32,
    /// Number of times the copy was dropped because another node wrote the page.
    pub dropped: u32,
    /// Number of times the page was sent as a ride.
    pub rides_sent: u32,
    /// Number of times the page arrived as a ride and a task used it.
    pub rides_used: u32,
    /// Number of times the page arrived as a ride in vain.
    pub rides_wasted: u32,
    /// Number of times the page arrived as a ride after it had been requested.
    pub rides_late: u32,
}
