//! The agent as a user of the [page engine](node).

use coherence::message::{Header, NodeId, Op};
use coherence::refusal::Refused;
use coherence::scope::Event;
use coherence::scope::event::Task;
use net::mesh::{Gone, Received};
use node::driver::{Driver, Engine};
use node::scope::{Scope, Scoped};
use pager::{Fault, Region};

use super::{Agent, RECORD_BYTES};
use crate::frame::Frame;

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
        while let Some((task, request)) = self.table.take() {
            found = true;
            self.waiting += 1;
            self.requested(task, request);
        }
        found
    }

    fn tend(&mut self) -> bool {
        let found = self.join();
        self.check_time();
        found
    }

    fn failed(&mut self, error: &dyn std::fmt::Display) {
        self.fail(error)
    }

    /// A task that drives the agent stops when its request is answered.
    fn is_answered(&self) -> bool {
        let is_answered = |task| self.table.is_answered(task);
        self.driving_task.as_ref().is_some_and(|it| !it.sleeps && is_answered(it.task))
    }
}

impl Scoped for Agent {
    fn pages(&self) -> &Scope {
        &self.pages
    }

    fn pages_mut(&mut self) -> &mut Scope {
        &mut self.pages
    }

    fn memory_and_pages(&mut self) -> (&mut Region, &mut Scope) {
        (&mut self.engine.memory, &mut self.pages)
    }

    fn send_page_message(&mut self, header: &Header, body: Vec<u8>) {
        self.send(header.to, Frame::Page(*header), body);
    }

    fn granted(&mut self, task: Task) {
        let state = &mut self.tasks[task as usize];
        if std::mem::take(&mut state.leaves) {
            state.has_left = true;
        }
        self.reply(task, Ok([0, 0]));
    }

    fn refused(&mut self, refused: &Refused, allocates: bool) {
        let name = self.world.name(refused.from);
        let (op, reason) = (refused.op, refused.reason());
        let line = format!("{name}: {op} {reason}: a defect of libjia");
        // Otherwise the task that allocates would continue without its memory.
        if allocates {
            self.end(1, &line);
        }
        // Programs whose nodes allocate differently cause this, too. Node 0 reports them first.
        self.end_later(line);
    }

    /// Shows the event to the observer.
    fn before_step(&mut self, event: &Event, body: &[u8]) {
        let (Some((observer, _)), Event::Message(header, ..)) = (&mut self.observer, event) else {
            return;
        };
        match header.op {
            Op::Diff => {
                let (epoch, page_bytes) =
                    (self.pages.node.epoch(), self.engine.memory.place().page_bytes);
                observer.changed(header.from, epoch, body, page_bytes);
            }
            Op::AcquireGrant | Op::BarrierGrant | Op::WaitGrant => observer.learned(),
            _ => {}
        }
    }

    fn after_step(&mut self) {
        self.write_record(RECORD_BYTES);
    }

    fn before_send(&mut self, header: &Header) {
        if matches!(header.op, Op::Barrier | Op::BarrierGrant) {
            self.compare_nodes();
        }
        match (header.op, &mut self.observer) {
            (Op::GetPage, Some((observer, _))) => observer.fetches(header.scope, header.to),
            (Op::GetPageGrant, Some((observer, _))) => observer.sends(header.scope, header.to),
            _ => {}
        }
    }
}
