//! At the end of a program that is counted, the origin gathers what all nodes have seen.

use std::io::Write as _;
use std::time::{Duration, Instant};

use coherence::message::NodeId;
use net::mesh::Received;
use node::driver::Driver as _;

use super::seen::Seen;
use super::state::{Agent, ReportFile};
use crate::addresses::PAGE;
use crate::frame::{Frame, Message};
use crate::report::{Area, Counts, Report, What};

/// Time limit for the reports of other nodes.
const TELL_MAX: Duration = Duration::from_secs(2);

impl Agent {
    /// From now on this node keeps what it sees.
    pub(super) fn start_counting(&mut self) {
        self.seen = Some(Box::new(Seen::since(self.engine.traffic)));
    }

    /// The mapping at some addresses; a stack if it has no name.
    pub(super) fn named(&mut self, start: u64, bytes: u64, offset: u64, name: &[u8]) {
        let Some(wanted) = &mut self.wanted else { return };
        let what = match name {
            [] => What::Stack,
            name => {
                let path = String::from_utf8_lossy(name).into_owned();
                What::File { path, address: offset }
            }
        };
        let end = start + bytes;
        // A library is mapped whole, and then its parts over that.
        let is_part = wanted.areas.iter().rev().any(|area| {
            area.start <= start && end <= area.end && offset > 0 && is_same(&area.what, &what)
        });
        if !is_part {
            wanted.areas.push(Area { start, end, what });
        }
    }

    /// The observations of this node.
    pub(super) fn all_seen(&mut self) -> Counts {
        let Some(mut seen) = self.seen.take() else { return Counts::default() };
        let origin = self.origin.as_ref();
        let lives = |slot: u32| origin.map(|origin| origin.runs_here(slot));
        let there = seen.there();
        let mut counts = seen.counts(self.table, self.engine.traffic, |slot| {
            lives(slot).unwrap_or_else(|| there.contains(&slot))
        });
        let statistics = self.pages.node.statistics();
        counts.name.clone_from(&self.names[self.me as usize]);
        counts.processors = self.processors;
        counts.memory_most = self.pages.residency.peak_bytes;
        counts.read_faults = statistics.read_faults;
        counts.write_faults = statistics.write_faults;
        counts.pages_out = statistics.pages;
        counts.invalidated = statistics.invalidated;
        counts.fetches = statistics.reading.times + statistics.writing.times;
        counts.fetch_ns = statistics.reading.total + statistics.writing.total;
        counts
    }

    /// At the origin: the state of its own threads and those of other nodes.
    pub(super) fn send_counts(&mut self) {
        let counts = self.all_seen();
        let body = postcard::to_allocvec(&counts).unwrap_or_default();
        self.send(0, Frame::Word(Message::Counts), body);
    }

    /// Collects and writes the report, if it is requested. Nodes that do not answer are omitted.
    pub(super) fn write_report(&mut self) {
        let Some(ReportFile { mut file, mut areas }) = self.wanted.take() else { return };
        let seconds = Duration::from_nanos(self.now()).as_secs_f64();
        let nodes = self.names.len();
        let mut all: Vec<Option<Counts>> = vec![None; nodes];
        all[0] = Some(self.all_seen());
        (1..nodes as NodeId).for_each(|node| self.notify(node, Message::QueryCounts));
        let until = Instant::now() + TELL_MAX;
        while all.contains(&None) && Instant::now() < until {
            match self.engine.mesh.as_mut().and_then(|mesh| mesh.wait(until)) {
                Some(Ok(Received { from, header, body })) => {
                    if Frame::parse(&header) == Some(Frame::Word(Message::Counts)) {
                        all[from as usize] = postcard::from_bytes(&body).ok();
                    }
                }
                Some(Err(_)) | None => break,
            }
        }
        let heap = self.origin().heap();
        areas.push(Area { start: heap.start, end: heap.end, what: What::Heap });
        let nodes = all.into_iter().flatten().collect();
        let placed = self.packing.take().map_or(Vec::new(), |packer| packer.placed);
        let report = Report { seconds, nodes, areas, placed };
        if let Err(why) = file.write_all(&report.bytes()) {
            proc::error_line!("nagaya: span: the report cannot be written: {why}");
        }
    }

    /// Looks at a fault, if it is to be counted.
    pub(super) fn count_fault(&mut self, fault: &pager::Fault) {
        let now = self.now();
        if let Some(seen) = &mut self.seen {
            seen.fault(self.table, fault, 0, PAGE, now);
        }
    }

    /// And does this, if so.
    pub(super) fn with_counts(&mut self, sees: impl FnOnce(&mut Seen, u64)) {
        if let Some(seen) = &mut self.seen {
            sees(seen, self.engine.now());
        }
    }
}

fn is_same(one: &What, other: &What) -> bool {
    match (one, other) {
        (What::File { path: one, .. }, What::File { path: other, .. }) => one == other,
        _ => false,
    }
}
