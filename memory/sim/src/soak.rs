//! Random programs with known results, on random clusters with faults.
//!
//! The checks:
//! - Every read returns the value that scope consistency guarantees.
//! - All tasks reach their end. If a node is lost, tasks may wait for it, but no check may fail.
//! - The replay of each node's recording has the same outcome.
//! - A refused message does not change a node.
//!
//! [`racing`] has programs with data races, which need sequential consistency.

pub mod racing;

use coherence::message::NodeId;
use coherence::random::{self, Operation, Random, Size, random_program};
use coherence::record;

use crate::cluster::Cluster;
use crate::faults::Faults;
use crate::machine::Machine;
use crate::program::{Allocation, Program};
use crate::protocol::Consistency;
use crate::report::RunError;
use crate::setup::Setup;
use crate::task::{Task, TaskFuture};

/// A random program for the simulator.
struct RandomTasks<'a> {
    program: &'a random::Program,
    page_bytes: u64,
}

impl Program for RandomTasks<'_> {
    fn has_contents(&self) -> bool {
        true
    }

    fn allocations(&self, tasks: u64, page_bytes: u64) -> Vec<Allocation> {
        let nodes = self.program.nodes.len() as u32;
        let home = |page| u64::from(self.program.homes.of(page, nodes)) * tasks / u64::from(nodes);
        (0..self.program.pages).map(|page| Allocation::on(home(page), page_bytes)).collect()
    }

    fn task(&self, me: Task, _: &[u64]) -> TaskFuture {
        let per_node = me.tasks as usize / self.program.nodes.len();
        let (node, task) = (me.task as usize / per_node, me.task as usize % per_node);
        let script = self.program.nodes[node][task].clone();
        let page_bytes = self.page_bytes;
        Box::pin(async move {
            for next in script {
                match next {
                    Operation::Expect(page, at, value) => {
                        let at = page * page_bytes + at as u64;
                        let read = me.load(at..at + 1).await[0];
                        if read != value {
                            me.fail(format!("byte {at} is {read}, expected {value}"));
                        }
                    }
                    Operation::Write(page, at, value) => {
                        me.store(page * page_bytes + at as u64, &[value]).await;
                    }
                    Operation::Add(page, at) => {
                        let at = page * page_bytes + at as u64;
                        let read = me.load(at..at + 1).await[0];
                        me.store(at, &[read.wrapping_add(1)]).await;
                    }
                    Operation::Lock(lock) => me.lock(lock).await,
                    Operation::Unlock(lock) => me.unlock(lock).await,
                    Operation::Barrier => me.barrier().await,
                    Operation::Set(variable) => me.set(variable).await,
                    Operation::Reset(variable) => me.reset(variable).await,
                    Operation::Wait(variable) => me.wait(variable).await,
                    Operation::Meet => me.meet().await,
                }
                me.compute(1, 1000.0).await;
            }
        })
    }
}

/// Runs the program of a seed.
///
/// # Errors
/// The first failed check.
pub fn run(seed: u64) -> Result<(), String> {
    const PAGE_BYTES: usize = 4;
    let mut random = Random::new(seed);
    let size = match random.one_in(50) {
        true => Size { nodes: 24, tasks: 1, same: true },
        false => Size { nodes: 6, tasks: 3, same: true },
    };
    let program = random_program(&mut random, size, PAGE_BYTES);
    let nodes = program.nodes.len() as u32;
    let cluster = if random.one_in(2) { "paper" } else { "current" };
    let setup = Setup {
        cluster: Cluster::known(cluster).expect("a built-in cluster"),
        nodes,
        tasks: program.nodes[0].len() as u32,
        page_bytes: PAGE_BYTES,
        consistency: Consistency::Scope,
        copies_max: u64::MAX,
        migrate: program.migrate,
        alone: program.alone,
        rides: program.rides,
        contention: random.one_in(2),
    };
    let scale_ns = if cluster == "paper" { 400_000 } else { 15_000 };
    let lost = random
        .one_in(10)
        .then(|| (random.below(nodes as usize) as NodeId, random.below(100 * scale_ns) as u64));
    let delay_ns_max = scale_ns << random.below(6);
    let pause_ns_max = scale_ns << random.below(6);
    let tasks = RandomTasks { program: &program, page_bytes: PAGE_BYTES as u64 };
    let mut machine = Machine::new(&setup, &tasks);
    machine.record();
    machine.inject(Faults { random, delay_ns_max, pause_ns_max, lost });
    match machine.run() {
        Ok(_) => {}
        // Tasks wait for the lost node.
        Err(RunError::Deadlock(_)) if lost.is_some() => {}
        Err(error) => return Err(format!("{error:?}")),
    }
    for (node, recording) in machine.recordings().iter().enumerate() {
        record::replay(recording).map_err(|differs| format!("node {node}: {differs:?}"))?;
    }
    Ok(())
}
