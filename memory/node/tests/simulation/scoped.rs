//! A node with scope-consistent pages, which runs a random program with locks, barriers and
//! condition variables. The program knows the value of each read.

use coherence::message::{Header, NodeId};
use coherence::random::Operation;
use coherence::refusal::Refused;
use coherence::scope::event::Task as TaskNumber;
use coherence::scope::homes::Homes;
use coherence::scope::{Event, Node, Options};
use net::mesh::{Gone, Mesh, Received};
use net::simulation::Network;
use node::driver::{Driver, Engine};
use node::memory::Memory as _;
use node::scope::{Scope, Scoped};
use pager::{Access, Fault};

use crate::DISTANCE;
use crate::life::{self, Life, Player};
use crate::memory::Pages;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs,
    Stopped(u64),
    /// For a grant.
    Waits,
}

struct Task {
    /// Its coming operations, the last first.
    left: Vec<Operation>,
    state: State,
    /// The value that an addition has read.
    read: Option<u8>,
}

/// A node.
pub struct ScopedNode {
    engine: Engine<Pages>,
    scope: Scope,
    tasks: Vec<Task>,
    life: Life,
}

impl ScopedNode {
    pub fn new(
        memory: Pages,
        mesh: Mesh,
        options: Options,
        (pages, homes): (u64, Homes),
        tasks: Vec<Vec<Operation>>,
    ) -> Self {
        let task = |mut left: Vec<Operation>| {
            left.reverse();
            Task { left, state: State::Runs, read: None }
        };
        let scope = Scope::new(Node::new(options), memory.page_bytes(), None);
        let tasks = tasks.into_iter().map(task).collect();
        let life = Life::new(options.nodes as usize);
        let mut node = Self { engine: Engine::new(memory, Some(mesh)), scope, tasks, life };
        node.event(Event::Allocate { pages, homes });
        node
    }

    fn event(&mut self, event: Event) {
        let misuse = self.step(event, &mut Vec::new());
        assert_eq!(misuse, None, "the program is right");
    }

    /// A task calls the protocol.
    fn call(&mut self, at: usize, event: Event, waits: bool) {
        self.tasks[at].left.pop();
        if waits {
            self.tasks[at].state = State::Waits;
        }
        self.event(event);
    }

    fn run_task(&mut self, at: usize) {
        let (task, number) = (&mut self.tasks[at], at as TaskNumber);
        let Some(&operation) = task.left.last() else { return };
        match operation {
            Operation::Expect(page, byte, value) => {
                let node = self.scope.node.options().me;
                if let Some(read) = self.touch(at, page, byte, Access::Read) {
                    assert_eq!(*read, value, "byte {byte} of page {page} on node {node}");
                    self.tasks[at].left.pop();
                }
            }
            Operation::Write(page, byte, value) => {
                if let Some(place) = self.touch(at, page, byte, Access::Write) {
                    *place = value;
                    self.tasks[at].left.pop();
                }
            }
            Operation::Add(page, byte) => match task.read {
                None => {
                    let read = self.touch(at, page, byte, Access::Read).copied();
                    self.tasks[at].read = read;
                }
                Some(read) => {
                    if let Some(place) = self.touch(at, page, byte, Access::Write) {
                        *place = read.wrapping_add(1);
                        self.tasks[at].read = None;
                        self.tasks[at].left.pop();
                    }
                }
            },
            Operation::Lock(lock) => self.call(at, Event::Acquire(number, lock), true),
            Operation::Unlock(lock) => self.call(at, Event::Release(number, lock), false),
            Operation::Barrier => self.call(at, Event::Barrier(number), true),
            Operation::Set(variable) => self.call(at, Event::Set(number, variable), false),
            Operation::Reset(variable) => self.call(at, Event::Reset(number, variable), false),
            Operation::Wait(variable) => self.call(at, Event::Wait(number, variable), true),
            Operation::Meet => self.call(at, Event::Meet(number), true),
        }
    }

    fn touch(&mut self, at: usize, page: u64, byte: usize, wants: Access) -> Option<&mut u8> {
        self.tasks[at].state = State::Stopped(page);
        let place = self.engine.memory.touch(page, byte * DISTANCE, wants, at as u32)?;
        self.tasks[at].state = State::Runs;
        Some(place)
    }
}

impl Player for ScopedNode {
    fn life(&mut self) -> &mut Life {
        &mut self.life
    }

    fn run_tasks(&mut self, network: &Network) {
        for at in 0..self.tasks.len() {
            let can_run = self.tasks[at].state == State::Runs && self.life.failure.is_none();
            if can_run && network.below(3) > 0 {
                self.run_task(at);
            }
        }
    }

    fn can_run(&self) -> bool {
        self.tasks.iter().any(|task| task.state == State::Runs && !task.left.is_empty())
    }

    fn have_tasks_ended(&self) -> bool {
        let has_ended = |task: &Task| task.left.is_empty() && task.state == State::Runs;
        self.scope.missing() == 0 && self.tasks.iter().all(has_ended)
    }

    fn timer_ns(&self) -> Option<u64> {
        None
    }

    fn resume(&mut self, pages: &[u64]) {
        for task in &mut self.tasks {
            if matches!(task.state, State::Stopped(page) if pages.contains(&page)) {
                task.state = State::Runs;
            }
        }
    }
}

impl Driver for ScopedNode {
    type Memory = Pages;

    fn engine(&self) -> &Engine<Pages> {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine<Pages> {
        &mut self.engine
    }

    fn received(&mut self, message: Received) {
        let Received { from, header, mut body } = message;
        if self.life.failure.is_some() || self.life.receive(&header) {
            return;
        }
        let header = Header::parse(&header).expect("a header of the protocol");
        assert!(self.receive(header, &mut body), "{from} sends a malformed body");
    }

    fn disconnected(&mut self, gone: Gone) {
        life::disconnected(self, gone);
    }

    fn node_lost(&mut self, node: NodeId, why: &str) {
        life::lost(&mut self.life, node, why);
    }

    fn faulted(&mut self, fault: &Fault) {
        if self.life.failure.is_some() {
            return;
        }
        self.resolve(fault.page, fault.wants);
    }

    fn take_requests(&mut self) -> bool {
        false
    }

    fn tend(&mut self) -> bool {
        false
    }

    fn failed(&mut self, error: &dyn std::fmt::Display) {
        self.life.fail(error.to_string());
    }
}

impl Scoped for ScopedNode {
    fn pages(&self) -> &Scope {
        &self.scope
    }

    fn pages_mut(&mut self) -> &mut Scope {
        &mut self.scope
    }

    fn send_page_message(&mut self, header: &Header, body: Vec<u8>) {
        self.engine.send(header.to, &header.bytes(), body);
    }

    fn granted(&mut self, task: TaskNumber) {
        let state = &mut self.tasks[task as usize].state;
        assert_eq!(*state, State::Waits, "a task is granted what it waits for");
        *state = State::Runs;
    }

    fn refused(&mut self, refused: &Refused, _: bool) {
        panic!("{} violates the protocol: {}", refused.from, refused.reason());
    }

    fn memory_and_pages(&mut self) -> (&mut Pages, &mut Scope) {
        (&mut self.engine.memory, &mut self.scope)
    }
}
