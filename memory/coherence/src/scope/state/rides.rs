//! The state of rides: predictions, pages that were sent, and pages that arrived.

use std::collections::{BTreeMap, BTreeSet};

use crate::message::{NodeId, Op, Page};
use crate::ride::forecast::Forecast;
use crate::ride::tracks::Tracks;
use crate::ride::{self, By, Carrier, Ride};
use crate::run::Run;
use crate::scope::event::Kept;

/// A node's state of rides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rides {
    /// Predicts the pages that other nodes will request.
    pub forecast: Forecast,
    /// Predicts the pages that this node will need.
    pub tracks: Tracks,
    /// Further pages that the next request asks for.
    pub along: Vec<Page>,
    /// Pages that a request asks for along with its own page, which is the second of a pair.
    pub coming: BTreeMap<Page, Page>,
    /// Pages of these on which a task has faulted.
    pub stopped: Vec<Page>,
    /// Further pages for which the request that is being handled asks.
    pub wanted: Vec<Page>,
    /// Pages that a test selects for the next step, instead of predicted ones.
    pub suggested: Vec<Page>,
    /// Pages that were sent with the grants of the barrier that this node is about to pass.
    pub sent: Vec<Page>,
    /// Rides that are sent and received ahead of that barrier's grant.
    pub ahead: Ahead,
    /// Pages that arrived as rides and were not used yet.
    pub unused: BTreeMap<Page, Arrival>,
    /// Fates of rides that are to be reported to the senders.
    pub fates: BTreeMap<NodeId, Vec<Ride>>,
    /// Write notices that arrived while requests were in flight.
    pub notices: Vec<Run>,
}

/// Rides that are sent and received ahead of the next barrier's grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ahead {
    /// The pages that were sent, with their receivers.
    pub sent: Vec<(NodeId, Page)>,
    /// Nodes that sent useless pages and have not been notified.
    pub in_vain: BTreeSet<NodeId>,
    /// The kept messages.
    pub kept: BTreeMap<Kept, (Carrier, Vec<Ride>)>,
}

/// The origin of a page that arrived as a ride.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arrival {
    pub from: NodeId,
    pub carrier: Carrier,
    pub by: By,
    /// The sender was notified that the page is idle.
    pub is_idle: bool,
}

/// A kept message, and for each of its pages whether it can be accepted.
pub struct Due {
    pub kept: Kept,
    pub carrier: Carrier,
    pub rides: Vec<(Ride, bool)>,
}

impl Rides {
    /// Creates the state with these predictors.
    pub fn new(tracks: Tracks, forecast: Forecast) -> Self {
        Self { forecast, tracks, ..Self::default() }
    }

    /// Takes the fates that a message of this operation reports to its receiver.
    pub fn take_fates(&mut self, to: NodeId, op: Op) -> Vec<Ride> {
        if !ride::reports_fates(op) {
            return Vec::new();
        }
        self.ahead.in_vain.remove(&to);
        let Some(mut fates) = self.fates.remove(&to) else { return Vec::new() };
        if fates.len() > ride::MOST / 2 {
            self.fates.insert(to, fates.split_off(ride::MOST / 2));
        }
        fates
    }
}
