//! Random programs with data races, on 2 to 64 nodes. Every read returns the last write of any
//! node, no addition is lost, and no task waits forever, also when a node is lost.

use std::cell::RefCell;
use std::rc::Rc;

use coherence::message::NodeId;
use coherence::random::Random;
use coherence::ride::Policy;

use crate::cluster::Cluster;
use crate::faults::Faults;
use crate::machine::Machine;
use crate::program::{Allocation, Program};
use crate::protocol::Consistency;
use crate::setup::Setup;
use crate::task::{Task, TaskFuture};

const PAGE_BYTES: usize = 8;

/// A program whose tasks read and increment the same bytes.
struct Racing {
    seed: u64,
    /// Number of shared bytes.
    bytes: u64,
    /// Number of steps of a task.
    steps: usize,
    /// The last value of each byte.
    memory: Rc<RefCell<Vec<u8>>>,
}

impl Program for Racing {
    fn has_contents(&self) -> bool {
        true
    }

    fn allocations(&self, _: u64, _: u64) -> Vec<Allocation> {
        vec![Allocation::on(0, self.bytes)]
    }

    fn task(&self, me: Task, _: &[u64]) -> TaskFuture {
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
                        me.fail(format!("byte {at} is {read}, expected {last}"));
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
/// The first failed check.
pub fn run(seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let nodes = 2 + random.below(if seed.is_multiple_of(8) { 63 } else { 7 }) as u32;
    let bytes = if random.one_in(3) { 1 } else { 1 + random.below(16 * PAGE_BYTES) as u64 };
    let cluster = if random.one_in(2) { "paper" } else { "current" };
    let setup = Setup {
        cluster: Cluster::known(cluster).expect("a built-in cluster"),
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
    let scale_ns = if cluster == "paper" { 400_000 } else { 15_000 };
    let lost = random
        .one_in(4)
        .then(|| (random.below(nodes as usize) as NodeId, random.below(100 * scale_ns) as u64));
    let delay_ns_max = scale_ns << random.below(6);
    let pause_ns_max = scale_ns << random.below(6);
    let memory = Rc::new(RefCell::new(vec![0; bytes as usize]));
    let steps = 1 + random.below(if nodes > 8 { 12 } else { 40 });
    let program = Racing { seed, bytes, steps, memory };
    let mut machine = Machine::new(&setup, &program);
    machine.inject(Faults { random, delay_ns_max, pause_ns_max, lost });
    machine.run().map(drop).map_err(|error| format!("{error:?}"))
}
