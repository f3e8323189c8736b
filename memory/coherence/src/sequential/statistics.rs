//! Statistics of a node: counts and times.
//!
//! Times are in the unit of the driver's clock. Nagaya's drivers use nanoseconds.

use serde::{Deserialize, Serialize};

use super::message::Op;
use super::page::{EVENTS, STATES};
use crate::ride::By;
use crate::scope::statistics::{RideStatistics, Wait};

/// The statistics of a node since it started or since the last reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Statistics {
    /// Read faults.
    pub read_faults: u64,
    /// Write faults.
    pub write_faults: u64,
    /// Messages sent, by [`Op`] in the order of [`Op::ALL`].
    pub messages: [u64; Op::ALL.len()],
    /// Pages sent.
    pub pages: u64,
    /// Copies dropped because another node wrote the page.
    pub invalidated: u64,
    /// Copies evicted to limit their number.
    pub dropped: u64,
    /// Pages whose ownership moved to another node.
    pub moved: u64,
    /// Number of times that requests granted here had been forwarded.
    pub hops: u64,
    /// Requests that waited until tasks here had used the page.
    pub held: u64,
    /// Times from a read request to the arrival of the page.
    pub reading: Wait,
    /// Times from a write request until the page had arrived and all other copies were gone.
    pub writing: Wait,
    /// Number of times each rule of the [table](super::page::TABLE) was applied, by state and
    /// event.
    pub rules: [[u64; EVENTS]; STATES],
    /// Statistics of prefetched pages, by predictor ([`By`]).
    pub rides: [RideStatistics; By::ALL.len()],
}
