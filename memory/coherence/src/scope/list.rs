//! Lists of runs that are too long for one message. The first parts precede the message that the
//! list belongs to. The sender puts no other message between them.

use super::event::{Action, Body, refusal};
use super::node::Node;
use super::state::list::Partial;
use crate::message::{Header, NodeId, Op};
use crate::refusal::Refused;
use crate::ride::Ride;
use crate::run::Run;

/// Maximum number of runs in a message.
const RUNS_MAX: usize = 4096;
/// Maximum number of runs in a list, in addition to one for each known page. The sender may know
/// allocations that this node does not know yet.
const UNKNOWN_RUNS_MAX: u64 = 1 << 24;

impl Node {
    /// Sends a list in as many messages as it needs. The rides are on the last one.
    pub(super) fn send_runs(
        &mut self,
        header: Header,
        precede: Op,
        mut runs: Vec<Run>,
        rides: Vec<Ride>,
        actions: &mut Vec<Action>,
    ) {
        while runs.len() > RUNS_MAX {
            let rest = runs.split_off(RUNS_MAX);
            self.post(Header { op: precede, ..header }, Body::Runs(runs), Vec::new(), actions);
            runs = rest;
        }
        self.post(header, Body::Runs(runs), rides, actions);
    }

    /// Handles a part of a list that is not the last.
    pub(super) fn list_part_arrives(
        &mut self,
        header: &Header,
        runs: Vec<Run>,
    ) -> Result<(), Refused> {
        let &Header { op, from, lock, .. } = header;
        let begun = self.partial.get(&from).map_or(&[][..], |begun| &begun.runs);
        let count = begun.len() + runs.len();
        let end = begun.last().map_or(0, |last| last.range().end);
        if runs.first().is_none_or(|first| first.first < end) {
            let first = runs.first().map_or(0, |run| run.first);
            let refused = refusal(header, "continues a list with an empty or unordered part");
            return Err(refused.with("page", first).with("end", end));
        }
        if count as u64 > self.pages() + UNKNOWN_RUNS_MAX {
            let refused = refusal(header, "names more pages than can exist");
            return Err(refused.with("runs", count as u64).with("pages", self.pages()));
        }
        let new = || Partial { op, lock, runs: Vec::new() };
        self.partial.entry(from).or_insert_with(new).runs.extend(runs);
        Ok(())
    }

    /// Returns false if the sender's list is incomplete and this message does not continue it.
    pub(super) fn continues_list(&self, header: &Header) -> bool {
        let precedes = match header.op {
            Op::AcquireGrant | Op::BarrierGrant | Op::WaitGrant => Some(Op::Invalidate),
            Op::Release | Op::Barrier | Op::Set => Some(Op::WriteNotice),
            Op::Invalidate | Op::WriteNotice => Some(header.op),
            _ => None,
        };
        let begun = self.partial.get(&header.from);
        begun.is_none_or(|begun| Some(begun.op) == precedes && begun.lock == header.lock)
    }

    /// Returns the runs of all parts of a list, of which `last` is the last. The parts stay stored
    /// until [`take_list`](Self::take_list) takes them.
    pub(super) fn list_parts<'a>(
        &'a self,
        from: NodeId,
        last: &'a [Run],
    ) -> impl Iterator<Item = &'a Run> {
        self.partial.get(&from).into_iter().flat_map(|begun| &begun.runs).chain(last)
    }

    /// Takes all parts of a list, of which `last` is the last.
    pub(super) fn take_list(&mut self, from: NodeId, last: Vec<Run>) -> Vec<Run> {
        match self.partial.remove(&from) {
            Some(Partial { mut runs, .. }) => {
                runs.extend(last);
                runs
            }
            None => last,
        }
    }
}
