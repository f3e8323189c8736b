//! The agent as a user of the [page engine](node): what happens besides pages.

use coherence::message::NodeId;
use net::mesh::{Gone, Received};
use node::driver::{Driver, Engine};
use pager::{Fault, Region};

use super::Agent;

impl Driver for Agent {
    type Memory = Region;

    fn engine(&self) -> &Engine<Region> {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine<Region> {
        &mut self.engine
    }

    fn received(&mut self, message: Received) {
        self.handle(message);
    }

    fn disconnected(&mut self, gone: Gone) {
        self.gone(gone);
    }

    fn node_lost(&mut self, node: NodeId, why: &str) {
        let line = format!("{} is lost: {why}", self.world.name(node));
        self.end(1, &line)
    }

    fn faulted(&mut self, fault: &Fault) {
        self.stopped(fault);
    }

    fn take_requests(&mut self) -> bool {
        let mut found = false;
        while let Some((task, request)) = self.desk.take() {
            found = true;
            self.waiting += 1;
            self.requested(task, request);
        }
        found
    }

    fn tend(&mut self) -> bool {
        let found = self.join();
        self.look_at_clock();
        found
    }

    fn failed(&mut self, error: &dyn std::fmt::Display) {
        self.fail(error)
    }

    /// A task that drives the agent leaves when it is answered.
    fn is_answered(&self) -> bool {
        self.driven.as_ref().is_some_and(|it| !it.sleeps && self.desk.is_answered(it.task))
    }
}
