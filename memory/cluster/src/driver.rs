//! The agent as a user of the [page engine](node): it handles the orders and requests of this
//! machine, and connects the publishing of blocks with the protocol.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Instant;

use coherence::message::NodeId;
use coherence::sequential::message::{Body, Content, Header};
use launch::control;
use net::mesh::Received;
use node::driver::{Driver, Engine, Server};
use node::sequential::{Replica, Sequential};
use pager::{Fault, Shared};

use crate::agent::Agent;
use crate::pooled::Pooled;

impl Driver for Agent {
    type Memory = Shared;

    fn engine(&self) -> &Engine<Shared> {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine<Shared> {
        &mut self.engine
    }

    fn received(&mut self, message: Received) {
        self.handle(message);
    }

    fn node_lost(&mut self, machine: NodeId, why: &str) {
        self.lost(machine, why);
    }

    fn faulted(&mut self, fault: &Fault) {
        self.stopped(fault);
    }

    fn take_requests(&mut self) -> bool {
        let mut found = false;
        let mut buffer = [0; 1024];
        while rustix::io::read(&self.signals, &mut buffer).is_ok_and(|count| count > 0) {
            found = true;
            self.take_task_requests();
        }
        while let Some(order) = self.orders.take() {
            found = true;
            self.carry_out_order(order);
        }
        found
    }

    fn tend(&mut self) -> bool {
        let found = self.expire_holds();
        self.reopen_expired();
        self.acknowledge_quiet();
        self.continue_fetches();
        self.continue_pooling();
        if control::is_closed() && !self.is_over {
            self.fails("the process that started it is gone");
        }
        found
    }

    fn failed(&mut self, error: &dyn std::fmt::Display) {
        self.fails(&error.to_string());
    }
}

impl Server for Agent {
    fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns true if there is a processor that no task needs.
    fn may_poll(&self) -> bool {
        let alive = self.plan.own_ids().filter(|&id| self.control.is_announced(id)).count();
        self.processors > alive
    }

    fn wakers(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.signals.as_fd()]
    }

    fn deadline(&self) -> Option<Instant> {
        let held = self.pages.residency.next_expiry().map(|until| self.engine.instant(until));
        let unmapped = self.unmapped.front().map(|(until, _)| *until);
        let pooled = self.pooled.as_ref().and_then(Pooled::due);
        held.into_iter().chain(unmapped).chain(pooled).min()
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
        match why {
            Some(why) => self.protocol_violation(from, &format!("{message}: {why}")),
            None => self.protocol_violation(from, message),
        }
    }

    fn requested_by_node(&mut self, header: &Header, content: &Content) {
        self.publish_asked(header, content);
    }

    fn before_send(&mut self) {
        self.announce_tasks();
    }

    fn sends_itself(&mut self, header: &Header, body: &Body) -> bool {
        self.send_with_lookup(header, body)
    }
}
