//! The agent as a user of the [page engine](node): its requests, timers, and reactions to pages.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Instant;

use coherence::message::{NodeId, Page};
use launch::control;
use net::mesh::Received;
use node::driver::{Driver, Engine, Server};
use node::sequential::{Replica, Sequential};
use pager::{Access, Fault, PagerError, Region};

use super::state::Agent;
use crate::request::Request;

/// Threads whose calls are looked at before each sleep.
const FEW: u32 = 16;
/// Bits of [`Server::awake`]: the doorbell, and the socket of orders.
const DOORBELL: u32 = 1;
const ORDERS: u32 = 2;

impl Driver for Agent {
    type Memory = Region;

    fn engine(&self) -> &Engine<Region> {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine<Region> {
        &mut self.engine
    }

    fn received(&mut self, message: Received) {
        if let Some(message) = self.defer(message) {
            self.handle(message);
        }
    }

    fn node_lost(&mut self, node: NodeId, why: &str) {
        self.lost(node, why);
    }

    fn faulted(&mut self, fault: &Fault) {
        if !self.engine.memory.is_watched() {
            // The memory has become local since.
            if let Err(error) = self.engine.memory.wake_all(fault.page..fault.page + 1) {
                self.failed(&error);
            }
            return;
        }
        self.waits.stops_at(fault.page, self.now());
        self.count_fault(fault);
        if self.pages.closed.contains(fault.page) || self.send_to_origin(fault) {
            return;
        }
        let reads = node::memory::Memory::wanted(&self.engine.memory, fault.wants) == Access::Read;
        if !(reads && self.read_text(fault.page)) {
            self.resolve(fault.page, fault.wants);
        }
    }

    fn take_requests(&mut self) -> bool {
        let mut found = false;
        while let Some((thread, request)) = self.table.take() {
            found = true;
            self.waits.asks(thread, self.now());
            match request {
                Request::Enqueue { .. } => drop(self.waits.queued.insert(thread)),
                Request::Cancel => drop(self.waits.queued.remove(&thread)),
                _ => {}
            }
            self.with_counts(|seen, _| seen.requested(thread, &request));
            self.serve_request(thread, request);
        }
        found
    }

    fn tend(&mut self) -> bool {
        let now = self.now();
        let mut found = self.expire_holds();
        found |= self.tend_copy();
        found |= self.look_at_leases(now);
        found |= self.tend_counts(now);
        found |= self.tend_packing(now);
        found |= self.tend_return(now);
        self.acknowledge_quiet();
        if control::is_closed() {
            let line = format!(
                "{} is lost: the process that started it has ended",
                self.names[self.me as usize]
            );
            self.end(1, &line);
        }
        found
    }

    fn handled(&mut self) {
        // Otherwise nothing depends on it.
        if self.pages.residency.limit_bytes.is_none() && self.seen.is_none() {
            return;
        }
        let limit = self.pages.residency.limit_bytes;
        let is_over = limit.is_some_and(|limit| self.engine.memory.memory() > limit);
        let dropped = if is_over { self.discard_copies() } else { Ok(()) };
        if let Err(error) = dropped.and_then(|()| self.limit_memory(Region::memory)) {
            self.failed(&error);
        }
    }

    /// Returns true if a shadow has got a call and may run: it needs this processor at once. Or if
    /// the thread that drives has to stop.
    fn is_answered(&self) -> bool {
        self.has_posted && self.may_poll() || self.driving.is_over(self.table)
    }

    /// Returns false while all threads wait, and no shadow is in a system call, whose buffers may
    /// be elsewhere.
    fn expects_faults(&self) -> bool {
        let shadows = self.origin.as_ref().map_or(0, |origin| origin.at_work);
        shadows > 0 || self.waits.count() < self.threads as usize
    }

    fn failed(&mut self, error: &dyn std::fmt::Display) {
        let line = format!("{}: {error}", self.names[self.me as usize]);
        self.end(1, &line)
    }
}

impl Server for Agent {
    /// Returns false: the process ends with the program.
    fn is_over(&self) -> bool {
        false
    }

    /// Returns true if no thread needs the processor. Waking a sleeper takes as long as a message.
    fn may_poll(&self) -> bool {
        self.waits.count() >= self.threads as usize
            || self.processors > self.threads
            || self.threads <= FEW && self.runnable().next().is_none()
    }

    fn pause(&self) {
        // A shadow may need this processor, and is not counted as a thread that waits.
        if self.origin.as_ref().is_some_and(|origin| origin.at_work > 0) {
            std::thread::yield_now();
        }
    }

    fn is_settled(&mut self) -> bool {
        if std::mem::take(&mut self.has_posted) {
            if self.may_poll() {
                std::thread::yield_now();
            }
            return false;
        }
        let copies = self.origin.as_ref().is_some_and(|origin| origin.forks.now.is_some());
        // Closed pages are acknowledged in a turn after their last request.
        !copies && self.pages.closed.is_empty()
    }

    fn wakers(&self) -> Vec<BorrowedFd<'_>> {
        let orders = self.orders.as_ref().map(|orders| orders.descriptor());
        let leases = self.leases.descriptor().map(|descriptor| descriptor.as_fd());
        [self.doorbell.as_fd()].into_iter().chain(orders).chain(leases).collect()
    }

    fn deadline(&self) -> Option<Instant> {
        let held = self.pages.residency.next_expiry();
        let all = [held, self.counts.next, self.packs_next(), self.returns_next()];
        let next = all.into_iter().flatten().min();
        next.map(|next| self.engine.instant(next))
    }

    fn announce_sleep(&mut self) -> bool {
        self.table.announce_sleep()
    }

    fn awake(&mut self, ready: u32) {
        if ready & DOORBELL != 0 {
            let _ = rustix::io::read(&self.doorbell, &mut [0; 8]);
        }
        // Without orders the second descriptor is that of the leases, which `tend` reads.
        if self.orders.is_some() && ready & ORDERS != 0 {
            self.take_order();
        }
        self.table.end_sleep();
    }
}

impl Replica for Agent {
    fn pages(&self) -> &Sequential {
        &self.pages
    }

    fn pages_mut(&mut self) -> &mut Sequential {
        &mut self.pages
    }

    fn violated(&mut self, from: NodeId, message: &str, why: Option<&str>) {
        let Some(why) = why else { self.violation(from, message) };
        let name = &self.names[from as usize];
        let line = format!("{name} sent {message}, but {why}: this is an error of nagaya");
        self.end(1, &line)
    }

    fn before_fill(&mut self, pages: std::ops::Range<Page>) -> Result<(), PagerError> {
        self.forget_texts(pages.clone())?;
        self.with_counts(|seen, _| pages.for_each(|page| seen.came(page)));
        Ok(())
    }

    fn before_unmap(&mut self, pages: std::ops::Range<Page>) -> Result<(), PagerError> {
        self.forget_texts(pages)
    }

    fn after_map(&mut self, pages: std::ops::Range<Page>) {
        self.copy_those_asked(pages);
    }

    fn resumed(&mut self, page: Page, now: u64) {
        self.waits.go_on(page, now);
        self.with_counts(|seen, now| seen.goes_on(page, now));
    }

    fn pages_lost(&mut self, node: NodeId) {
        self.lost(node, "it holds pages of the program");
    }

    fn memory_exceeded(&mut self, limit_bytes: u64) {
        let name = &self.names[self.me as usize];
        let line = format!(
            "{name}: pages that only it has take more than --memory {limit_bytes}: allow more, or \
             use more nodes"
        );
        self.end(1, &line)
    }
}
