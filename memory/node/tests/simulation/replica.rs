//! A node with sequentially consistent pages, whose tasks read and increment the same bytes. Each
//! read returns the last value that any node wrote.

use std::cell::RefCell;
use std::rc::Rc;

use coherence::message::NodeId;
use coherence::sequential::frame::Frame;
use coherence::sequential::{Event, Node, Options};
use net::mesh::{Gone, Mesh, Received};
use net::simulation::Network;
use node::driver::{Driver, Engine};
use node::residency::MIN_RESIDENCE_NS;
use node::sequential::{Replica, Sequential};
use pager::{Access, Fault};

use crate::life::{self, Life, Player};
use crate::memory::Pages;
use crate::resets::{RESETS, Resets};

/// The value of each byte: that of the last write.
pub type Values = Rc<RefCell<Vec<u8>>>;

struct Task {
    /// The bytes that it will use, the last first, and whether it increments them.
    left: Vec<(u64, bool)>,
    stopped: Option<u64>,
}

/// A node.
pub struct ReplicaNode {
    pub engine: Engine<Pages>,
    pages: Sequential,
    tasks: Vec<Task>,
    pub values: Values,
    pub resets: Resets,
    life: Life,
}

impl ReplicaNode {
    /// A node with these tasks, which owns all pages if it is the first.
    pub fn new(
        memory: Pages,
        mesh: Mesh,
        options: Options,
        pages: u64,
        tasks: Vec<Vec<(u64, bool)>>,
        values: Values,
        (limit_bytes, resets): (Option<u64>, u64),
    ) -> Self {
        let mut state = Sequential::new(Node::new(options));
        state.residency.limit_bytes = limit_bytes;
        let tasks = tasks.into_iter().map(|left| Task { left, stopped: None }).collect();
        let life = Life::new(options.nodes as usize);
        let engine = Engine::new(memory, Some(mesh));
        let resets = Resets { left: if options.me == 0 { resets } else { 0 }, ..Resets::default() };
        let mut node = Self { engine, pages: state, tasks, values, resets, life };
        node.step(Event::Allocate { pages, owner: 0, everywhere: false });
        node.pages.node.allow_prediction(0..pages);
        node
    }

    /// Returns the options of node `me` with this number of nodes.
    pub fn options(nodes: u32, me: NodeId, random: &mut fastrand::Rng) -> Options {
        let rides = coherence::ride::Policy::ALL;
        Options {
            nodes,
            me,
            pages_max: random.u32(1..9),
            copies_max: if random.u32(0..3) == 0 { random.u64(0..4) } else { u64::MAX },
            rides: rides[random.usize(0..rides.len())],
            migratory: random.u8(0..4),
            rest: random.u64(0..2 * MIN_RESIDENCE_NS),
        }
    }

    fn run_task(&mut self, at: usize) {
        let task = &mut self.tasks[at];
        let Some(&(byte, increments)) = task.left.last() else { return };
        let page_bytes = self.engine.memory.page_bytes_u64();
        let (page, offset) = (byte / page_bytes, (byte % page_bytes) as usize);
        let wants = if increments { Access::Write } else { Access::Read };
        let Some(value) = self.engine.memory.touch(page, offset, wants, at as u32) else {
            task.stopped = Some(page);
            return;
        };
        let last = &mut self.values.borrow_mut()[byte as usize];
        assert_eq!(value, last, "byte {byte} has the value of the last write");
        if increments {
            *value = value.wrapping_add(1);
            *last = *value;
        }
        task.left.pop();
    }
}

impl Player for ReplicaNode {
    fn life(&mut self) -> &mut Life {
        &mut self.life
    }

    fn run_tasks(&mut self, network: &Network) {
        self.begin_reset(network);
        for at in 0..self.tasks.len() {
            if self.tasks[at].stopped.is_none() && network.below(3) > 0 {
                self.run_task(at);
            }
        }
    }

    fn can_run(&self) -> bool {
        let can_run = |task: &Task| task.stopped.is_none() && !task.left.is_empty();
        self.resets.left > 0 || self.tasks.iter().any(can_run)
    }

    fn have_tasks_ended(&self) -> bool {
        // A page that was sent ahead may let a task go on before its request is answered.
        let is_quiet = self.pages.node.is_quiet(&(0..self.pages.node.pages()));
        let resets = self.resets.left + self.resets.in_progress;
        is_quiet && resets == 0 && self.tasks.iter().all(|task| task.left.is_empty())
    }

    fn timer_ns(&self) -> Option<u64> {
        self.pages.residency.next_expiry()
    }

    fn resume(&mut self, pages: &[u64]) {
        for task in &mut self.tasks {
            task.stopped = task.stopped.filter(|page| !pages.contains(page));
        }
    }
}

impl Driver for ReplicaNode {
    type Memory = Pages;

    fn engine(&self) -> &Engine<Pages> {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine<Pages> {
        &mut self.engine
    }

    fn received(&mut self, message: Received) {
        let Received { from, header, body } = message;
        if self.life.receive(&header) {
            return;
        }
        if header[0] == RESETS {
            return self.receive_reset(from, &header);
        }
        match Frame::<()>::parse(&header) {
            Some(Frame::Page(header)) => self.receive(from, header, &body),
            Some(Frame::Batch) => self.receive_batch(from, &body),
            other => panic!("{from} sends {other:?}"),
        }
    }

    fn disconnected(&mut self, gone: Gone) {
        life::disconnected(self, gone);
    }

    fn node_lost(&mut self, node: NodeId, why: &str) {
        self.step(Event::Lost(node));
        life::lost(&mut self.life, node, why);
    }

    fn faulted(&mut self, fault: &Fault) {
        self.resolve(fault.page, fault.wants);
    }

    fn take_requests(&mut self) -> bool {
        false
    }

    fn tend(&mut self) -> bool {
        if let Err(error) = self.limit_memory(Pages::used_bytes) {
            self.failed(&error);
        }
        let found = self.acknowledge_quiet();
        self.expire_holds() || found
    }

    fn failed(&mut self, error: &dyn std::fmt::Display) {
        self.life.fail(error.to_string());
    }
}

impl Replica for ReplicaNode {
    fn pages(&self) -> &Sequential {
        &self.pages
    }

    fn pages_mut(&mut self) -> &mut Sequential {
        &mut self.pages
    }

    fn violated(&mut self, from: NodeId, message: &str, why: Option<&str>) {
        panic!("{from} violates the protocol: {message}: {why:?}");
    }
}
