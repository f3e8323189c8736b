//! Random programs that race, on 2 to 64 nodes: every read gives what was written last anywhere,
//! every addition counts, and nobody waits for ever, also when a node is lost.

use std::cell::RefCell;
use std::rc::Rc;

use coherence::message::NodeId;
use coherence::ride::Policy;
use coherence::run::{NOBODY, Run};
use coherence::sequential::message::{Header, Op};
use coherence::sequential::{Event, Node};
use coherence::story::Random;

use super::Faults;
use crate::cluster::Cluster;
use crate::machine::{Machine, Setup};
use crate::program::{Allocation, Program};
use crate::protocol::Consistency;
use crate::task::{Life, Me};

const PAGE_BYTES: usize = 8;

struct Racing {
    seed: u64,
    /// Bytes that are raced for.
    bytes: u64,
    /// Steps of a task.
    steps: usize,
    /// What was written last.
    memory: Rc<RefCell<Vec<u8>>>,
}

impl Program for Racing {
    fn has_contents(&self) -> bool {
        true
    }

    fn allocations(&self, _: u64, _: u64) -> Vec<Allocation> {
        vec![Allocation::on(0, self.bytes)]
    }

    fn task(&self, me: Me, _: &[u64]) -> Life {
        let mut random = Random::new(self.seed.wrapping_mul(4099) + me.task);
        let (bytes, steps, memory) = (self.bytes, self.steps, Rc::clone(&self.memory));
        let sweeps = random.one_in(3);
        Box::pin(async move {
            let mut at = random.below(bytes as usize) as u64;
            for _ in 0..steps {
                at = match sweeps {
                    true => (at + me.page_bytes) % bytes,
                    false => random.below(bytes as usize) as u64,
                };
                if random.one_in(2) {
                    let read = me.load(at..at + 1).await[0];
                    let last = memory.borrow()[at as usize];
                    if read != last {
                        me.wrong(format!("byte {at} is {read}, not {last}"));
                    }
                } else {
                    me.update(at..at + 1, |_, byte| {
                        byte[0] = byte[0].wrapping_add(1);
                        let last = &mut memory.borrow_mut()[at as usize];
                        *last = last.wrapping_add(1);
                    })
                    .await;
                }
                me.compute(random.below(4) as u64, 1000.0).await;
            }
        })
    }
}

/// Runs the program of a seed.
///
/// # Errors
/// What went wrong.
pub fn run(seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let nodes = 2 + random.below(if seed.is_multiple_of(8) { 63 } else { 7 }) as u32;
    let bytes = if random.one_in(3) { 1 } else { 1 + random.below(16 * PAGE_BYTES) as u64 };
    let cluster = if random.one_in(2) { "paper" } else { "current" };
    let setup = Setup {
        cluster: Cluster::known(cluster).expect("it is known"),
        nodes,
        tasks: 1 + random.below(3) as u32,
        page_bytes: PAGE_BYTES,
        consistency: Consistency::Sequential,
        copies_max: if random.one_in(3) { random.below(4) as u64 } else { u64::MAX },
        migrate: false,
        alone: true,
        rides: Policy::ALL[random.below(Policy::ALL.len())],
        contention: random.one_in(2),
    };
    let scale = if cluster == "paper" { 400_000 } else { 15_000 };
    let lost = random
        .one_in(4)
        .then(|| (random.below(nodes as usize) as NodeId, random.below(100 * scale) as u64));
    let late_ns = scale << random.below(6);
    let pause_ns = scale << random.below(6);
    let memory = Rc::new(RefCell::new(vec![0; bytes as usize]));
    let steps = 1 + random.below(if nodes > 8 { 12 } else { 40 });
    let program = Racing { seed, bytes, steps, memory };
    let mut machine = Machine::new(&setup, &program);
    machine.disturb(Faults { random, late_ns, pause_ns, lost });
    machine.run().map(drop).map_err(|stuck| format!("{stuck:?}"))
}

/// Tells a copy of the node something that makes no sense, most likely.
pub(super) fn nonsense(random: &mut Random, node: &Node) -> Result<(), String> {
    let header = Header {
        op: Op::ALL[random.below(Op::ALL.len())],
        from: random.below(6) as u32,
        to: if random.one_in(20) { random.below(6) as u32 } else { node.options().me },
        node: random.below(6) as u32,
        page: random.below(6) as u64,
        set: if random.one_in(2) { 0 } else { random.below(1 << 8) as u64 },
        whole: random.one_in(2),
        hops: 0,
        runs: 0,
    };
    let runs = (0..random.below(3)).map(|at| {
        let first = 3 * at as u64 + random.below(3) as u64;
        Run { first, pages: 1, writer: NOBODY }
    });
    let event = Event::Message(header, runs.collect());
    let told = format!("{event:?}");
    let (mut copy, mut actions) = (node.clone(), Vec::new());
    if copy.step(event, node.now(), &mut actions).is_err() && (copy != *node || !actions.is_empty())
    {
        return Err(format!("node {}: {told} is refused, and changed it", header.to));
    }
    Ok(())
}
