//! The counts of a node: as numbers for programs, as text for users, and as JSON for other
//! programs.

use coherence::message::{Lock, NodeId, Op, Page};
use coherence::ride::{By, Carrier};
use coherence::scope::Node;
use coherence::scope::statistics::{RideStatistics, Wait, each};
use serde::Serialize;

use crate::agent::observe::Observed;

/// Counts of a node. The order is that of `struct nagaya_dsm_statistics`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[repr(C)]
pub struct Totals {
    /// Read faults.
    pub read_faults: u64,
    /// Write faults.
    pub write_faults: u64,
    /// Pages fetched from other nodes.
    pub page_messages: u64,
    /// Messages to other nodes, of all kinds.
    pub messages: u64,
    /// Bytes of these messages, headers included.
    pub bytes: u64,
    /// Diffs sent.
    pub diffs: u64,
    /// Bytes of these diffs.
    pub diff_bytes: u64,
    /// Copies dropped because another node wrote the page.
    pub dropped: u64,
    /// Total time of page fetches.
    pub fetch_ns: u64,
    /// Requests for locks at their managers.
    pub lock_waits: u64,
    /// Total time of these requests.
    pub lock_ns: u64,
    /// Barriers passed.
    pub barriers: u64,
    /// Total time from the node's last arrival at a barrier to the grant.
    pub barrier_ns: u64,
    /// Rides of all kinds.
    #[serde(skip)]
    pub rides: RideCounts,
}

/// Counts of pages that rode along. Predicted and sent pages count at their home, the others at
/// their destination. The order is that of `struct nagaya_dsm_ride_statistics`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[repr(C)]
pub struct RideCounts {
    /// Pages that were predicted.
    #[serde(rename = "rides_predicted")]
    pub predicted: u64,
    /// Pages that were sent along with a message.
    #[serde(rename = "rides_sent")]
    pub sent: u64,
    /// Of these, pages that a task used.
    #[serde(rename = "rides_used")]
    pub used: u64,
    /// Of these, pages that arrived and were not used.
    #[serde(rename = "rides_wasted")]
    pub wasted: u64,
    /// Of these, pages that arrived after they had been requested.
    #[serde(rename = "rides_late")]
    pub late: u64,
}

/// Counts of a page. The order is that of `struct nagaya_dsm_page_statistics`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[repr(C)]
pub struct OfPage {
    /// The home of the page.
    pub home: NodeId,
    /// Number of fetches.
    pub fetched: u32,
    /// Number of write faults.
    pub written: u32,
    /// Number of dropped copies.
    pub dropped: u32,
    /// Number of rides to other nodes.
    #[serde(skip_serializing_if = "is_zero")]
    pub rides_sent: u32,
    /// Rides to here that were used.
    #[serde(skip_serializing_if = "is_zero")]
    pub rides_used: u32,
    /// Rides to here that were not used.
    #[serde(skip_serializing_if = "is_zero")]
    pub rides_wasted: u32,
    /// Rides to here that arrived after a request.
    #[serde(skip_serializing_if = "is_zero")]
    pub rides_late: u32,
}

impl OfPage {
    /// Returns true if a count is not zero.
    fn is_used(&self) -> bool {
        *self != Self { home: self.home, ..Self::default() }
    }
}

/// Most pages never ride.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Counts of a lock. The order is that of `struct nagaya_dsm_lock_statistics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[repr(C)]
pub struct OfLock {
    /// Requests at the lock's manager.
    pub asked: u64,
    /// Total time of these requests.
    pub asked_ns: u64,
    /// Maximum time of a request.
    pub longest_ns: u64,
    /// Number of hand-overs between tasks of this node.
    pub handed: u64,
}

/// Rides by carrier and predictor.
#[derive(Debug, Clone, Copy, Serialize)]
struct OfRides {
    carrier: &'static str,
    by: &'static str,
    #[serde(flatten)]
    counts: RideCounts,
}

fn of_rides((carrier, by, it): (Carrier, By, &RideStatistics)) -> OfRides {
    OfRides { carrier: carrier.name(), by: by.name(), counts: it.into() }
}

impl From<&RideStatistics> for RideCounts {
    fn from(it: &RideStatistics) -> Self {
        let RideStatistics { predicted, sent, used, wasted, late } = *it;
        Self { predicted, sent, used, wasted, late }
    }
}

/// Returns the rides on this carrier, or on all, of all predictors.
pub fn of_carrier(node: &Node, carrier: Option<Carrier>) -> RideCounts {
    let mut sum = RideStatistics::default();
    let of_it = each(&node.statistics().rides).filter(|it| carrier.is_none_or(|one| one == it.0));
    of_it.for_each(|(_, _, it)| sum.add(it));
    (&sum).into()
}

/// Counts of the driver, which the protocol does not see.
#[derive(Debug, Clone, Copy, Default)]
pub struct Traffic {
    /// Bytes sent to other nodes, headers included.
    pub bytes: u64,
    /// Bytes of diffs.
    pub diff_bytes: u64,
}

/// Observations for a report.
#[derive(Debug, Serialize)]
pub(crate) struct Seen {
    /// Allocations: first page, bytes, and the number of the place that made it.
    pub allocations: Vec<(Page, u64, Option<usize>)>,
    pub observed: Observed,
}

/// A report.
#[derive(Debug, Serialize)]
struct Report {
    node: NodeId,
    seconds: f64,
    page_bytes: usize,
    totals: Totals,
    /// Sent messages by the names of the protocol.
    sent: Vec<(&'static str, u64)>,
    rides: Vec<OfRides>,
    locks: Vec<(Lock, OfLock)>,
    /// Pages with a count that is not zero.
    pages: Vec<(Page, OfPage)>,
    #[serde(flatten)]
    seen: Option<Seen>,
}

/// Returns the counts of a node.
pub fn totals(node: &Node, traffic: Traffic) -> Totals {
    let counts = node.statistics();
    let waits = |of: fn(&Wait) -> u64| counts.locks.values().map(|lock| of(&lock.asked)).sum();
    Totals {
        read_faults: counts.read_faults,
        write_faults: counts.write_faults,
        page_messages: counts.messages[Op::GetPage as usize - 1],
        messages: counts.messages.iter().sum(),
        bytes: traffic.bytes,
        diffs: counts.diffs,
        diff_bytes: traffic.diff_bytes,
        dropped: counts.dropped,
        fetch_ns: counts.fetching.total,
        lock_waits: waits(|wait| wait.times),
        lock_ns: waits(|wait| wait.total),
        barriers: counts.barriers.times,
        barrier_ns: counts.barriers.total,
        rides: of_carrier(node, None),
    }
}

/// Returns the counts of a page.
pub fn of_page(node: &Node, page: Page) -> Option<OfPage> {
    let counts = node.page_statistics(page)?;
    let home = node.home(page)?;
    Some(OfPage {
        home,
        fetched: counts.fetched,
        written: counts.written,
        dropped: counts.dropped,
        rides_sent: counts.rides_sent,
        rides_used: counts.rides_used,
        rides_wasted: counts.rides_wasted,
        rides_late: counts.rides_late,
    })
}

/// Returns the counts of a lock or condition variable that was used.
pub fn of_lock(node: &Node, lock: Lock) -> Option<OfLock> {
    let counts = node.statistics().locks.get(&lock)?;
    Some(OfLock {
        asked: counts.asked.times,
        asked_ns: counts.asked.total,
        longest_ns: counts.asked.longest,
        handed: counts.handed,
    })
}

fn report(node: &Node, me: NodeId, traffic: Traffic, page_bytes: usize, now: u64) -> Report {
    let sent = Op::ALL.into_iter().zip(node.statistics().messages);
    let locks = node.statistics().locks.keys();
    let pages = (0..node.pages()).filter_map(|page| Some((page, of_page(node, page)?)));
    Report {
        node: me,
        seconds: now as f64 / 1e9,
        page_bytes,
        totals: totals(node, traffic),
        sent: sent.filter(|op| op.1 > 0).map(|(op, times)| (op.name(), times)).collect(),
        rides: each(&node.statistics().rides).map(of_rides).collect(),
        locks: locks.filter_map(|&lock| Some((lock, of_lock(node, lock)?))).collect(),
        pages: pages.filter(|(_, it)| it.is_used()).collect(),
        seen: None,
    }
}

/// Writes the report as one line of JSON.
pub(crate) fn write_json(
    to: &mut impl std::io::Write,
    node: &Node,
    me: NodeId,
    traffic: Traffic,
    page_bytes: usize,
    now: u64,
    seen: Option<Seen>,
) -> std::io::Result<()> {
    let report = Report { seen, ..report(node, me, traffic, page_bytes, now) };
    serde_json::to_writer(&mut *to, &report)?;
    to.write_all(b"\n")
}

/// Returns lines for users: totals, messages, and the most expensive locks and pages.
pub fn text(node: &Node, me: NodeId, traffic: Traffic, page_bytes: usize, now: u64) -> String {
    use std::fmt::Write as _;
    /// Maximum number of locks and pages.
    const MOST: usize = 8;
    let mut report = report(node, me, traffic, page_bytes, now);
    let totals = &report.totals;
    let ms = |ns: u64| ns as f64 / 1e6;
    let mut text = format!(
        "node {me}: {:.3} s, faults {} read {} write, pages fetched {} in {:.3} ms, messages {} of \
         {} B, diffs {} of {} B, copies dropped {}, locks asked for {} in {:.3} ms, barriers {} in \
         {:.3} ms\n",
        report.seconds,
        totals.read_faults,
        totals.write_faults,
        totals.page_messages,
        ms(totals.fetch_ns),
        totals.messages,
        totals.bytes,
        totals.diffs,
        totals.diff_bytes,
        totals.dropped,
        totals.lock_waits,
        ms(totals.lock_ns),
        totals.barriers,
        ms(totals.barrier_ns),
    );
    let mut line = |what: std::fmt::Arguments| writeln!(text, "node {me}: {what}").expect("text");
    if !report.sent.is_empty() {
        let sent: Vec<_> = report.sent.iter().map(|(op, times)| format!("{op} {times}")).collect();
        line(format_args!("sent {}", sent.join(" ")));
    }
    for it in &report.rides {
        line(format_args!(
            "{} rides by {}: predicted {}, sent {}, used {}, wasted {}, late {}",
            it.carrier,
            it.by,
            it.counts.predicted,
            it.counts.sent,
            it.counts.used,
            it.counts.wasted,
            it.counts.late
        ));
    }
    report.locks.sort_by_key(|(_, it)| std::cmp::Reverse(it.asked_ns));
    for (lock, it) in report.locks.iter().take(MOST) {
        line(format_args!(
            "lock {lock}: asked for {} in {:.3} ms, longest {:.3} ms, handed on {}",
            it.asked,
            ms(it.asked_ns),
            ms(it.longest_ns),
            it.handed
        ));
    }
    report.pages.sort_by_key(|(_, it)| std::cmp::Reverse(it.fetched + it.written));
    for (page, it) in report.pages.iter().take(MOST) {
        line(format_args!(
            "page {page}: home {}, fetched {}, written {}, dropped {}",
            it.home, it.fetched, it.written, it.dropped
        ));
    }
    text
}
