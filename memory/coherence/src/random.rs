//! Random programs with known results. The random walks in `tests/` run them in
//! arbitrary order, and the simulator runs them on random clusters.
//!
//! No program has a data race. A byte is either counted under one lock, or has between two barriers
//! either one writer or only readers. So the value of every read is known when the program is made.

use crate::message::{Lock, Page};
use crate::ride::Policy;
use crate::scope::homes::Homes;

/// The next action of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Reads the byte and checks its value.
    Expect(Page, usize, u8),
    /// Writes the byte.
    Write(Page, usize, u8),
    /// Reads the byte and writes it incremented by one (modulo 256), in two steps.
    Add(Page, usize),
    /// Acquires a lock.
    Lock(Lock),
    /// Releases a lock.
    Unlock(Lock),
    /// Waits at a barrier.
    Barrier,
    /// Sets a condition variable.
    Set(Lock),
    /// Resets a condition variable.
    Reset(Lock),
    /// Waits until a condition variable is set.
    Wait(Lock),
    /// Waits at a barrier without consistency.
    Meet,
}

/// The programs of all tasks, and the layout of memory.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program of each task, by node and task.
    pub nodes: Vec<Vec<Vec<Operation>>>,
    /// Number of pages.
    pub pages: u64,
    /// The placement of the pages' homes.
    pub homes: Homes,
    /// [`Options::migrate`](crate::scope::Options::migrate).
    pub migrate: bool,
    /// [`Options::alone`](crate::scope::Options::alone).
    pub alone: bool,
    /// [`Options::rides`](crate::scope::Options::rides).
    pub rides: Policy,
}

/// A deterministic random number generator (xorshift).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }

    /// Returns true with probability 1/`many`.
    pub fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }
}

/// The size limits of a program.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Maximum number of nodes.
    pub nodes: usize,
    /// Maximum number of tasks per node.
    pub tasks: usize,
    /// True if all nodes have the same number of tasks.
    pub same: bool,
}

/// The layout of a program's memory.
struct Layout {
    pages: usize,
    page_bytes: usize,
    /// The lock that protects each byte, if any.
    lock_of: Vec<Option<Lock>>,
}

impl Layout {
    /// Returns the page of a byte, and its offset there.
    fn place(&self, at: usize) -> (Page, usize) {
        ((at / self.page_bytes) as Page, at % self.page_bytes)
    }
}

/// The values of all bytes: before a phase, and as the phase leaves them.
struct Values {
    before: Vec<u8>,
    after: Vec<u8>,
}

/// Generates a program within these size limits, for pages of `page_bytes` bytes.
pub fn random_program(random: &mut Random, size: Size, page_bytes: usize) -> Program {
    let nodes = 1 + random.below(size.nodes);
    let mut tasks: Vec<usize> = (0..nodes).map(|_| 1 + random.below(size.tasks)).collect();
    if size.same {
        tasks = vec![tasks[0]; nodes];
    }
    // One page in some programs: it then goes through all states.
    let pages = if random.one_in(3) { 1 } else { 1 + random.below(4) };
    let bytes = pages * page_bytes;
    let lock_of = (0..bytes).map(|_| random.one_in(3).then(|| random.below(3) as Lock)).collect();
    let layout = Layout { pages, page_bytes, lock_of };
    let mut values = Values { before: vec![0; bytes], after: vec![0; bytes] };
    let mut scripts: Vec<Vec<Vec<Operation>>> =
        tasks.iter().map(|&tasks| vec![Vec::new(); tasks]).collect();
    for phase in 0..1 + random.below(6) as u32 {
        let writers: Vec<_> =
            (0..bytes).map(|_| random.one_in(2).then(|| random_task(random, &tasks))).collect();
        values.before.clone_from(&values.after);
        for (node, scripts) in scripts.iter_mut().enumerate() {
            for (task, script) in scripts.iter_mut().enumerate() {
                let is_writer = |at: usize| writers[at].map(|writer| writer == (node, task));
                access_bytes(random, &layout, &mut values, is_writer, script);
                if random.one_in(4) {
                    script.extend([Operation::Lock(9), Operation::Unlock(9)]);
                }
            }
        }
        if random.one_in(2) {
            signal(random, &layout, &tasks, phase, &mut scripts);
        }
        for script in scripts.iter_mut().flatten() {
            script.push(Operation::Barrier);
        }
    }
    for script in scripts.iter_mut().flatten() {
        for (at, &value) in values.after.iter().enumerate() {
            let (page, byte) = layout.place(at);
            script.push(Operation::Expect(page, byte, value));
        }
    }
    let homes = match random.one_in(2) {
        true => Homes::At(random.below(nodes) as u32),
        false => {
            Homes::Blocks { pages: 1 + random.below(2) as u64, first: random.below(nodes) as u32 }
        }
    };
    Program {
        nodes: scripts,
        pages: pages as u64 + 1,
        homes,
        migrate: !random.one_in(3),
        alone: !random.one_in(3),
        rides: Policy::ALL[random.below(Policy::ALL.len())],
    }
}

/// Returns a random task, by its node and its index there.
fn random_task(random: &mut Random, tasks: &[usize]) -> (usize, usize) {
    let node = random.below(tasks.len());
    (node, random.below(tasks[node]))
}

/// Generates a task's accesses of a phase. `is_writer` returns true if the task writes the byte,
/// and `None` if no task does.
fn access_bytes(
    random: &mut Random,
    layout: &Layout,
    values: &mut Values,
    is_writer: impl Fn(usize) -> Option<bool>,
    script: &mut Vec<Operation>,
) {
    for _ in 0..random.below(if layout.pages == 1 { 16 } else { 8 }) {
        let at = random.below(layout.lock_of.len());
        let (page, byte) = layout.place(at);
        match (layout.lock_of[at], is_writer(at)) {
            (Some(lock), _) => increment(random, layout, values, at, lock, script),
            (None, Some(true)) => {
                let value = random.below(200) as u8;
                values.after[at] = value;
                script.push(Operation::Write(page, byte, value));
                script.push(Operation::Expect(page, byte, value));
            }
            (None, None) => script.push(Operation::Expect(page, byte, values.before[at])),
            (None, Some(false)) => {}
        }
    }
}

/// Generates increments of the byte `at` under its lock.
fn increment(
    random: &mut Random,
    layout: &Layout,
    values: &mut Values,
    at: usize,
    lock: Lock,
    script: &mut Vec<Operation>,
) {
    let mut add = |at: usize, script: &mut Vec<Operation>| {
        let (page, byte) = layout.place(at);
        script.push(Operation::Add(page, byte));
        values.after[at] = values.after[at].wrapping_add(1);
    };
    script.push(Operation::Lock(lock));
    for _ in 0..1 + random.below(2) {
        add(at, script);
    }
    // Another byte of the same lock, or a nested lock.
    let other = random.below(layout.lock_of.len());
    if let Some(inner) = layout.lock_of[other].filter(|&inner| inner >= lock) {
        let is_nested = inner > lock;
        script.extend(is_nested.then_some(Operation::Lock(inner)));
        add(other, script);
        script.extend(is_nested.then_some(Operation::Unlock(inner)));
    }
    script.push(Operation::Unlock(lock));
}

/// Generates a signal from one task to another about a byte on a separate page. Afterwards all
/// tasks may meet.
fn signal(
    random: &mut Random,
    layout: &Layout,
    tasks: &[usize],
    phase: u32,
    scripts: &mut [Vec<Vec<Operation>>],
) {
    let (page, byte) = (layout.pages as Page, phase as usize % layout.page_bytes);
    let (sender, receiver) = (random_task(random, tasks), random_task(random, tasks));
    let meet = random.one_in(3);
    let script = &mut scripts[sender.0][sender.1];
    script.extend([Operation::Write(page, byte, phase as u8), Operation::Set(phase)]);
    let script = &mut scripts[receiver.0][receiver.1];
    script.extend([Operation::Wait(phase), Operation::Expect(page, byte, phase as u8)]);
    if meet {
        scripts.iter_mut().flatten().for_each(|script| script.push(Operation::Meet));
        scripts[sender.0][sender.1].push(Operation::Reset(phase));
    }
}
