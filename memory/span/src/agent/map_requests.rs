//! Requests of threads at the origin to change the memory map or to inspect it. The change itself
//! goes through all nodes (`mapping`).

use std::ops::Range;

use coherence::message::Page;

use super::change::Effect;
use super::state::Agent;
use crate::addresses::{Hint, PAGE, Refusal};
use crate::request::Request;

const INVALID: i64 = -(libc::EINVAL as i64);
const NO_MEMORY: i64 = -(libc::ENOMEM as i64);
const EXISTS: i64 = -(libc::EEXIST as i64);
const NOT_PERMITTED: i64 = -(libc::EPERM as i64);

/// The reaction to a request.
enum Plan {
    /// Answer at once.
    Answer(i64),
    /// Change these addresses on all nodes, and then answer.
    Change(Effect, Range<u64>, i64),
}

impl Agent {
    /// Serves a request about the memory map. Returns any other request.
    pub(super) fn serve_map_request(&mut self, thread: u32, request: Request) -> Option<Request> {
        if self.must_wait_for_fork(&request) {
            self.origin().forks.delayed.push((thread, request));
            return None;
        }
        self.settle_protections(&request);
        let plan = match request {
            Request::Map { bytes, protection, is_file, hint } => {
                self.plan_map(bytes, protection, is_file, hint)
            }
            Request::MapAt { start, bytes, protection, replaces, is_file } => {
                self.plan_map_at(start, bytes, protection, replaces, is_file)
            }
            Request::Unmap { start, bytes } => self.plan_unmap(start, bytes),
            Request::Discard { start, bytes } => self.plan_discard(start, bytes),
            Request::Protect { start, bytes, protection } => {
                self.plan_protect(start, bytes, protection)
            }
            Request::Overlay { start, bytes, kind } => {
                match self.origin().addresses.range(start, bytes) {
                    Some(range) if self.has_overlay_room(kind) => {
                        Plan::Change(Effect::Overlay(kind), range, 0)
                    }
                    _ => Plan::Answer(NO_MEMORY),
                }
            }
            Request::Inherit { start, bytes, advice } => {
                let addresses = &mut self.origin().addresses;
                let done = match addresses.range(start, bytes) {
                    Some(range) => addresses.is_inherited(range, advice),
                    None => Err(libc::ENOMEM),
                };
                Plan::Answer(done.map_or_else(|errno| -i64::from(errno), |()| 0))
            }
            Request::Inspect(address) => Plan::Answer(self.origin().inspect(address)),
            Request::Stubs { text: [start, end], stubs, bytes } => {
                self.origin().stubs.push((start..end, stubs..stubs + bytes));
                Plan::Answer(0)
            }
            Request::Attach { start, bytes } => {
                self.origin().attached.insert(start, bytes);
                Plan::Answer(0)
            }
            Request::Detach(start) => {
                let bytes = self.origin().attached.remove(&start);
                Plan::Answer(bytes.map_or(INVALID, |bytes| bytes as i64))
            }
            Request::HeapEnd => Plan::Answer(self.origin().addresses.heap_end() as i64),
            Request::Break(end) => self.plan_break(end),
            other => return Some(other),
        };
        match plan {
            Plan::Answer(answer) => self.answer(thread, answer),
            Plan::Change(effect, range, answer) => {
                // A mapping of the origin's is its own when it becomes memory.
                let is_origins = matches!(effect, Effect::Overlay(_));
                let node = match is_origins || self.tries_nodes() {
                    true => 0,
                    false => self.origin().nodes[thread as usize].unwrap_or(0),
                };
                let pages = self.pages_of(&range);
                self.change(effect, pages, node, Some((thread, answer)));
                match request {
                    Request::Protect { .. } => self.publish_near(&range),
                    Request::Break(_) => self.publish_heap(),
                    _ => {}
                }
            }
        }
        None
    }

    fn plan_map(&mut self, bytes: u64, protection: u32, is_file: bool, hint: Hint) -> Plan {
        if !self.origin().may_have(bytes) {
            return Plan::Answer(NO_MEMORY);
        }
        match self.origin().addresses.map(bytes, hint) {
            Some(start) => {
                let range = start..start + bytes.next_multiple_of(PAGE);
                self.plan_open(range, Effect::Protect(protection), is_file)
            }
            None => Plan::Answer(NO_MEMORY),
        }
    }

    fn plan_map_at(
        &mut self,
        start: u64,
        bytes: u64,
        protection: u32,
        replaces: bool,
        is_file: bool,
    ) -> Plan {
        let range = match self.origin().addresses.fixed(start, bytes) {
            Ok(range) => range,
            Err(Refusal::Invalid) => return Plan::Answer(INVALID),
            Err(Refusal::None) if !replaces => return Plan::Answer(EXISTS),
            Err(Refusal::None) => return Plan::Answer(NO_MEMORY),
            Err(Refusal::Forbidden) => return Plan::Answer(NOT_PERMITTED),
        };
        let pages = self.pages_of(&range);
        let new_bytes = self.origin().addresses.free_bytes(&range);
        if !self.may_end(&pages) || !self.origin().may_have(new_bytes) {
            return Plan::Answer(NO_MEMORY);
        }
        let effect = match (self.origin().addresses.is_free(&range), replaces) {
            (true, _) => Effect::Protect(protection),
            (false, true) => Effect::Reset(Some(protection)),
            (false, false) => return Plan::Answer(EXISTS),
        };
        // A mapping of Nagaya's own may have come to these addresses.
        if self.engine.memory.open(pages).is_err() {
            return Plan::Answer(NO_MEMORY);
        }
        let origin = self.origin();
        origin.addresses.map_at(range.clone());
        origin.attached.retain(|start, _| !range.contains(start));
        self.unmap_stubs(&range);
        self.plan_open(range, effect, is_file)
    }

    /// A mapping begins to exist; the answer is its address.
    fn plan_open(&mut self, range: Range<u64>, effect: Effect, is_file: bool) -> Plan {
        if is_file {
            self.origin().addresses.is_of_file(range.clone());
        }
        let start = range.start as i64;
        Plan::Change(effect, range, start)
    }

    fn plan_unmap(&mut self, start: u64, bytes: u64) -> Plan {
        let Some(range) = self.origin().addresses.range(start, bytes) else {
            return Plan::Answer(INVALID);
        };
        let pages = self.pages_of(&range);
        if !self.may_end(&pages) {
            return Plan::Answer(NO_MEMORY);
        }
        let origin = self.origin();
        origin.addresses.unmap(range.clone());
        origin.attached.retain(|start, _| !range.contains(start));
        self.unmap_stubs(&range);
        Plan::Change(Effect::Unmap, range, 0)
    }

    /// Unmaps the stubs of code that is unmapped.
    fn unmap_stubs(&mut self, text: &Range<u64>) {
        let is_ended = |(of, _): &mut (Range<u64>, _)| text.start <= of.start && of.end <= text.end;
        let ended: Vec<_> = self.origin().stubs.extract_if(.., is_ended).collect();
        for (_, stubs) in ended {
            let pages = self.pages_of(&stubs);
            self.origin().addresses.unmap(stubs);
            self.change(Effect::Unmap, pages, 0, None);
        }
    }

    fn plan_discard(&mut self, start: u64, bytes: u64) -> Plan {
        let addresses = &self.origin().addresses;
        let Some(range) = addresses.range(start, bytes) else { return Plan::Answer(INVALID) };
        // A file's pages would show the file again, not zeros: they stay.
        let range = addresses.not_of_file(range);
        let answer = (range.end - start) as i64;
        Plan::Change(Effect::Reset(None), range, answer)
    }

    /// Returns true if pages that show a file would become memory while a child is made: it would
    /// have neither.
    fn must_wait_for_fork(&mut self, request: &Request) -> bool {
        let &Request::Protect { start, bytes, protection } = request else { return false };
        let writes = protection & libc::PROT_WRITE as u32 != 0;
        let origin = self.origin();
        let range = match origin.addresses.range(start, bytes) {
            Some(range) if writes && origin.forks.is_under_way() => range,
            _ => return false,
        };
        let pages = self.pages_of(&range);
        self.files.met(&pages).next().is_some()
    }

    fn plan_protect(&mut self, start: u64, bytes: u64, protection: u32) -> Plan {
        let addresses = &self.origin().addresses;
        match addresses.range(start, bytes).filter(|range| addresses.is_taken(range)) {
            Some(range) => Plan::Change(Effect::Protect(protection), range, 0),
            None if bytes == 0 => Plan::Answer(0),
            None => Plan::Answer(NO_MEMORY),
        }
    }

    fn plan_break(&mut self, end: u64) -> Plan {
        if !self.origin().may_have_heap(end) {
            return Plan::Answer(0);
        }
        match self.origin().addresses.set_heap_end(end) {
            Some((opened, closed)) if closed.is_empty() => {
                let protection = (libc::PROT_READ | libc::PROT_WRITE) as u32;
                Plan::Change(Effect::Protect(protection), opened, 1)
            }
            Some((_, closed)) => Plan::Change(Effect::Unmap, closed, 1),
            None => Plan::Answer(0),
        }
    }

    /// Returns the pages of these addresses.
    pub(super) fn pages_of(&self, range: &Range<u64>) -> Range<Page> {
        range.start / PAGE..range.end / PAGE
    }
}
