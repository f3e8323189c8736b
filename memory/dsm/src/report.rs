//! What a node has counted: for programs, as numbers; for people, as text; for other programs,
//! as JSON.

use coherence::message::{Lock, NodeId, Op, Page};
use coherence::ride::{By, Carrier};
use coherence::scope::Node;
use coherence::scope::statistics::{RideStatistics, Wait, each};
use serde::Serialize;

use crate::agent::observe::Observed;

/// Of a node. The order is that of `struct nagaya_dsm_statistics`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[repr(C)]
pub struct Totals {
    /// Pages that a task could not read.
    pub read_faults: u64,
    /// Pages that a task could not write.
    pub write_faults: u64,
    /// Pages fetched from other nodes.
    pub page_messages: u64,
    /// Messages to other nodes, of all kinds.
    pub messages: u64,
    /// Bytes of these, headers included.
    pub bytes: u64,
    /// Pages whose changes were sent.
    pub diffs: u64,
    /// Bytes of these changes.
    pub diff_bytes: u64,
    /// Copies dropped since another wrote the page.
    pub dropped: u64,
    /// How long pages were on their way, in all.
    pub fetch_ns: u64,
    /// How often a lock was asked for at its manager.
    pub lock_waits: u64,
    /// How long that took, in all.
    pub lock_ns: u64,
    /// Barriers passed.
    pub barriers: u64,
    /// From the node's last arrival to the grant, in all.
    pub barrier_ns: u64,
    /// Rides of all kinds.
    #[serde(skip)]
    pub rides: RideCounts,
}

/// Of pages that rode along: what was foreseen and sent counts where the pages live, the rest
/// where they went. The order is that of `struct nagaya_dsm_ride_statistics`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[repr(C)]
pub struct RideCounts {
    /// Pages that another would need next.
    #[serde(rename = "rides_predicted")]
    pub predicted: u64,
    /// That went along with a message.
    #[serde(rename = "rides_sent")]
    pub sent: u64,
    /// That a task used here.
    #[serde(rename = "rides_used")]
    pub used: u64,
    /// That came, and were of no use.
    #[serde(rename = "rides_wasted")]
    pub wasted: u64,
    /// That came when the page had been asked for.
    #[serde(rename = "rides_late")]
    pub late: u64,
}

/// Of a page. The order is that of `struct nagaya_dsm_page_statistics`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[repr(C)]
pub struct OfPage {
    /// Where it lives.
    pub home: NodeId,
    /// How often it was fetched.
    pub fetched: u32,
    /// How often a task could not write it.
    pub written: u32,
    /// How often its copy was dropped.
    pub dropped: u32,
    /// How often it rode along to another node.
    #[serde(skip_serializing_if = "is_zero")]
    pub rides_sent: u32,
    /// Came so, and was used here.
    #[serde(skip_serializing_if = "is_zero")]
    pub rides_used: u32,
    /// Came so, and was of no use.
    #[serde(skip_serializing_if = "is_zero")]
    pub rides_wasted: u32,
    /// Came so when it had been asked for.
    #[serde(skip_serializing_if = "is_zero")]
    pub rides_late: u32,
}

impl OfPage {
    /// Something was counted.
    fn is_used(&self) -> bool {
        *self != Self { home: self.home, ..Self::default() }
    }
}

/// Most pages never ride.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Of a lock. The order is that of `struct nagaya_dsm_lock_statistics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[repr(C)]
pub struct OfLock {
    /// How often it was asked for at its manager.
    pub asked: u64,
    /// How long that took, in all.
    pub asked_ns: u64,
    /// And at most.
    pub longest_ns: u64,
    /// How often it went from task to task of this node.
    pub handed: u64,
}

/// By what carried them, and who foresaw them.
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

/// Of rides, by whomever foreseen, on this carrier or on all.
pub fn of_carrier(node: &Node, carrier: Option<Carrier>) -> RideCounts {
    let mut sum = RideStatistics::default();
    let of_it = each(&node.statistics().rides).filter(|it| carrier.is_none_or(|one| one == it.0));
    of_it.for_each(|(_, _, it)| sum.add(it));
    (&sum).into()
}

/// What the driver counts, and the protocol does not see.
#[derive(Debug, Clone, Copy, Default)]
pub struct Traffic {
    /// Bytes sent to other nodes, headers included.
    pub bytes: u64,
    /// Bytes of changes.
    pub diff_bytes: u64,
}

/// What is not counted, but was seen, where that was asked for.
#[derive(Debug, Serialize)]
pub(crate) struct Seen {
    /// First pages, bytes, and the numbers of the places that asked for them.
    pub allocations: Vec<(Page, u64, Option<usize>)>,
    pub observed: Observed,
}

/// All of it.
#[derive(Debug, Serialize)]
struct Report {
    node: NodeId,
    seconds: f64,
    page_bytes: usize,
    totals: Totals,
    /// By the names of the protocol's messages; those that were sent.
    sent: Vec<(&'static str, u64)>,
    rides: Vec<OfRides>,
    locks: Vec<(Lock, OfLock)>,
    /// Those of which something was counted.
    pages: Vec<(Page, OfPage)>,
    #[serde(flatten)]
    seen: Option<Seen>,
}

/// Of a node, in numbers.
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

/// Of a page.
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

/// Of a lock or condition variable that was used.
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

/// Some lines for people: totals, messages, and the locks and pages that cost most.
pub fn text(node: &Node, me: NodeId, traffic: Traffic, page_bytes: usize, now: u64) -> String {
    use std::fmt::Write as _;
    /// How many locks and pages.
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
