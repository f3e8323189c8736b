//! Random programs with known results ("stories"). The random walks in `tests/` run them in
//! arbitrary order, and the simulator runs them on random clusters.
//!
//! No story has a data race. A byte is either counted under one lock, or has between two barriers
//! either one writer or only readers. So the value of every read is known when the story is made.

use crate::message::{Lock, Page};
use crate::ride::Policy;
use crate::scope::homes::Homes;

/// The next action of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Do {
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
pub struct Story {
    /// The program of each task, by node and task.
    pub nodes: Vec<Vec<Vec<Do>>>,
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

/// The size limits of a story.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Maximum number of nodes.
    pub nodes: usize,
    /// Maximum number of tasks per node.
    pub tasks: usize,
    /// True if all nodes have the same number of tasks.
    pub same: bool,
}

/// Generates a story within these size limits, for pages of `page_bytes` bytes.
pub fn story(random: &mut Random, size: Size, page_bytes: usize) -> Story {
    let nodes = 1 + random.below(size.nodes);
    let mut tasks: Vec<usize> = (0..nodes).map(|_| 1 + random.below(size.tasks)).collect();
    if size.same {
        tasks = vec![tasks[0]; nodes];
    }
    // One page in some stories: it then goes through all states.
    let pages = if random.one_in(3) { 1 } else { 1 + random.below(4) };
    let bytes = pages * page_bytes;
    let lock_of: Vec<Option<u32>> =
        (0..bytes).map(|_| random.one_in(3).then(|| random.below(3) as u32)).collect();
    let mut values = vec![0u8; bytes];
    let mut scripts: Vec<Vec<Vec<Do>>> =
        tasks.iter().map(|&tasks| vec![Vec::new(); tasks]).collect();
    let place = |at: usize| ((at / page_bytes) as u64, at % page_bytes);
    for phase in 0..1 + random.below(6) as u32 {
        let writer: Vec<Option<(usize, usize)>> = (0..bytes)
            .map(|_| {
                random.one_in(2).then(|| {
                    let node = random.below(nodes);
                    (node, random.below(tasks[node]))
                })
            })
            .collect();
        let before = values.clone();
        for (node, scripts) in scripts.iter_mut().enumerate() {
            for (task, script) in scripts.iter_mut().enumerate() {
                let mut mine = before.clone();
                for _ in 0..random.below(if pages == 1 { 16 } else { 8 }) {
                    let at = random.below(bytes);
                    let (page, byte) = place(at);
                    match (lock_of[at], writer[at]) {
                        (Some(lock), _) => {
                            script.push(Do::Lock(lock));
                            for _ in 0..1 + random.below(2) {
                                script.push(Do::Add(page, byte));
                                values[at] = values[at].wrapping_add(1);
                            }
                            // Another byte of the same lock, or a nested lock.
                            let other = random.below(bytes);
                            let inner = lock_of[other].filter(|&inner| inner >= lock);
                            if let Some(inner) = inner {
                                let (page, byte) = place(other);
                                let nested = inner > lock;
                                script.extend(nested.then_some(Do::Lock(inner)));
                                script.push(Do::Add(page, byte));
                                values[other] = values[other].wrapping_add(1);
                                script.extend(nested.then_some(Do::Unlock(inner)));
                            }
                            script.push(Do::Unlock(lock));
                        }
                        (None, Some(who)) if who == (node, task) => {
                            mine[at] = random.below(200) as u8;
                            script.push(Do::Write(page, byte, mine[at]));
                            values[at] = mine[at];
                            script.push(Do::Expect(page, byte, mine[at]));
                        }
                        (None, None) => script.push(Do::Expect(page, byte, before[at])),
                        (None, Some(_)) => {}
                    }
                }
                if random.one_in(4) {
                    script.push(Do::Lock(9));
                    script.push(Do::Unlock(9));
                }
            }
        }
        // One task signals another about a byte on a separate page. Afterwards all tasks may meet.
        if random.one_in(2) {
            let (page, byte) = (pages as u64, phase as usize % page_bytes);
            let mut somebody = || {
                let node = random.below(nodes);
                (node, random.below(tasks[node]))
            };
            let (tells, hears) = (somebody(), somebody());
            let meet = random.one_in(3);
            let script = &mut scripts[tells.0][tells.1];
            script.extend([Do::Write(page, byte, phase as u8), Do::Set(phase)]);
            let script = &mut scripts[hears.0][hears.1];
            script.extend([Do::Wait(phase), Do::Expect(page, byte, phase as u8)]);
            if meet {
                scripts.iter_mut().flatten().for_each(|script| script.push(Do::Meet));
                scripts[tells.0][tells.1].push(Do::Reset(phase));
            }
        }
        for script in scripts.iter_mut().flatten() {
            script.push(Do::Barrier);
        }
    }
    for script in scripts.iter_mut().flatten() {
        for (at, &value) in values.iter().enumerate() {
            let (page, byte) = place(at);
            script.push(Do::Expect(page, byte, value));
        }
    }
    let homes = match random.one_in(2) {
        true => Homes::At(random.below(nodes) as u32),
        false => {
            Homes::Blocks { pages: 1 + random.below(2) as u64, first: random.below(nodes) as u32 }
        }
    };
    Story {
        nodes: scripts,
        pages: pages as u64 + 1,
        homes,
        migrate: !random.one_in(3),
        alone: !random.one_in(3),
        rides: Policy::ALL[random.below(Policy::ALL.len())],
    }
}
