//! At the origin, while memory is [local](super::local): publishes memory whose protection threads
//! change themselves ([`protections`]), and records their changes.

use std::ops::Range;

use super::state::Agent;
use crate::addresses::PAGE;
use crate::frame::{Message, UNACKNOWLEDGED};
use crate::protections::{self, Record};
use crate::ranges::Ranges;
use crate::request::Request;

/// Memory before and behind a call's is published, up to this distance: an allocator goes on there.
const NEAR_BYTES: u64 = 64 << 20;
/// Room behind the heap that is published.
const HEAP_BYTES: u64 = 16 << 20;
/// Ranges that are published, at most.
const PUBLISHED_MAX: usize = 256;
/// The first protection with which memory is executable.
const EXECUTABLE: usize = libc::PROT_EXEC as usize;

impl Agent {
    /// Before a request is served: threads change no memory that the request concerns, and their
    /// changes until now are recorded.
    pub(super) fn settle_protections(&mut self, request: &Request) {
        let range = match *request {
            Request::Unmap { start, bytes }
            | Request::MapAt { start, bytes, .. }
            | Request::Protect { start, bytes, .. }
            | Request::Overlay { start, bytes, .. } => start..start.saturating_add(bytes),
            Request::Break(_) => self.origin().heap(),
            Request::Inspect(_) | Request::HeapEnd if protections::are_pending() => {
                return self.publish();
            }
            _ => return,
        };
        let whole = range.start..range.end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        let origin = self.origin();
        let room = origin.heap().start..origin.heap_limit;
        let is_heaps = !room.is_empty()
            && (matches!(request, Request::Break(_))
                || whole.start < room.end && room.start < whole.end);
        if is_heaps {
            origin.heap_limit = 0;
        }
        let is_published = origin.published.met(&whole).next().is_some();
        if is_published {
            origin.published.remove(whole);
        }
        if is_heaps || is_published {
            self.publish();
        }
    }

    /// From now on threads change no protections themselves.
    pub(super) fn withdraw_memory(&mut self) {
        let origin = self.origin();
        if origin.published.count() > 0 || origin.heap_limit > 0 {
            (origin.published, origin.heap_limit) = (Ranges::default(), 0);
            self.publish();
        }
    }

    /// Returns true if threads can change the map of memory themselves.
    fn may_publish(&mut self) -> bool {
        let is_watched = self.engine.memory.is_watched();
        let origin = self.origin();
        !is_watched && origin.changes.is_empty() && !origin.forks.is_under_way()
    }

    /// After a change of the heap's end: threads make the next ones themselves, if they can.
    pub(super) fn publish_heap(&mut self) {
        let room = self.origin().addresses.behind_heap();
        let room = room.start..room.end.min(room.start.saturating_add(HEAP_BYTES));
        let pages = self.pages_of(&room);
        // Without access.
        if !room.is_empty() && self.may_publish() && self.engine.memory.open(pages).is_ok() {
            self.origin().heap_limit = room.end;
            self.publish();
        }
    }

    /// After a change of protection: threads make the next ones nearby themselves, if they can.
    pub(super) fn publish_near(&mut self, range: &Range<u64>) {
        if !self.may_publish() {
            return;
        }
        let near = range.start.saturating_sub(NEAR_BYTES)..range.end.saturating_add(NEAR_BYTES);
        let plain = self.plain(&near);
        let Some(around) = plain.met(range).find(|it| it.start <= range.start) else { return };
        if around.end < range.end {
            return;
        }
        let published = &mut self.origin().published;
        if published.count() >= PUBLISHED_MAX {
            *published = Ranges::default();
        }
        published.insert(around);
        self.publish();
    }

    /// Returns the plain memory in a range.
    fn plain(&mut self, near: &Range<u64>) -> Ranges {
        let mut plain = self.origin().addresses.taken_in(near);
        let pages = self.pages_of(near);
        let laid = [&self.shared, &self.beyond, &self.files];
        let laid = laid.into_iter().flat_map(|laid| laid.met(&pages));
        laid.for_each(|it| plain.remove(it.start * PAGE..it.end * PAGE));
        let executable = &self.origin().protections[EXECUTABLE..];
        executable.iter().flat_map(|it| it.met(near)).for_each(|it| plain.remove(it));
        plain
    }

    /// Tells threads what they may change, and records their changes.
    fn publish(&mut self) {
        let origin = self.origin();
        let all: Vec<Range<u64>> = origin.published.iter().collect();
        let heap = origin.addresses.heap_end()..origin.heap_limit;
        for Record { range, protection, heap_end } in protections::publish(&all, heap) {
            let origin = self.origin();
            if heap_end > 0 {
                origin.addresses.set_heap_end(heap_end);
            }
            if range.is_empty() {
                continue;
            }
            origin.protects(&range, protection);
            let pages = self.pages_of(&range);
            self.predict(pages.clone(), protection);
            let (first, pages) = (pages.start, pages.end - pages.start);
            let message = Message::Protect { change: UNACKNOWLEDGED, first, pages, protection };
            (1..self.names.len()).for_each(|node| self.notify(node as u32, message));
        }
    }
}
