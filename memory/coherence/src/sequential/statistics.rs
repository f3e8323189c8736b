//! What a node counts and times.
//!
//! Times are in the unit of the driver's clock (nanoseconds, in ours).

use serde::{Deserialize, Serialize};

use super::message::Op;
use super::page::{EVENTS, STATES};
use crate::ride::By;
use crate::scope::statistics::{RideStatistics, Wait};

/// Of a node, since it began or since they were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Statistics {
    /// Tasks could not read a page.
    pub read_faults: u64,
    /// Tasks could not write a page.
    pub write_faults: u64,
    /// Messages sent, by [`Op`] in the order of [`Op::ALL`].
    pub messages: [u64; Op::ALL.len()],
    /// Pages sent.
    pub pages: u64,
    /// Copies dropped since another wrote the page.
    pub invalidated: u64,
    /// Copies dropped to keep their number down.
    pub dropped: u64,
    /// Pages given away, to who writes them.
    pub moved: u64,
    /// How often requests that were granted here had been passed on.
    pub hops: u64,
    /// Requests that had to wait until tasks here had used the page.
    pub held: u64,
    /// How long copies were on their way here.
    pub reading: Wait,
    /// How long pages were on their way here, and others' copies until they were gone.
    pub writing: Wait,
    /// How often each rule of [`RULES`](super::page::RULES) was followed, by state and event.
    pub rules: [[u64; EVENTS]; STATES],
    /// Of pages that came along, by who foresaw them ([`By`]).
    pub rides: [RideStatistics; By::ALL.len()],
}
