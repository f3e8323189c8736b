//! The `auto` policy and programs that were not used to choose its numbers. The tests limit the
//! loss of time, and the share of useless rides to a tenth of all bytes.
//!
//! Each program has the same number of pages at each task's node. In every round each task reads
//! some pages of other tasks, computes, and writes its own pages.

use coherence::random::Random;
use coherence::ride::Policy;
use coherence::scope::statistics::each;
use sim::cluster::Cluster;
use sim::machine::Machine;
use sim::program::{Allocation, Program};
use sim::protocol::Consistency;
use sim::report::Outcome;
use sim::setup::Setup;
use sim::task::{Task, TaskFuture};

const PAGE_BYTES: u64 = 8192;
/// Number of pages per task, and number of rounds.
const PAGES: u64 = 24;
const ROUNDS: u64 = 40;

/// Returns the pages that a task reads in a round, each by its task and index.
type Reads = fn(task: u64, tasks: u64, round: u64) -> Vec<(u64, u64)>;

struct Rounds(Reads);

impl Program for Rounds {
    fn allocations(&self, tasks: u64, page_bytes: u64) -> Vec<Allocation> {
        (0..tasks).map(|task| Allocation::on(task, PAGES * page_bytes)).collect()
    }

    fn task(&self, me: Task, bases: &[u64]) -> TaskFuture {
        let (reads, bases) = (self.0, bases.to_vec());
        Box::pin(async move {
            let page = |task: u64, page: u64| {
                let at = bases[task as usize] + page * PAGE_BYTES;
                at..at + PAGE_BYTES
            };
            me.write(page(me.task, 0).start..page(me.task, PAGES - 1).end).await;
            me.barrier().await;
            if me.task == 0 {
                me.start().await;
            }
            for round in 0..ROUNDS {
                for (whose, which) in reads(me.task, me.tasks, round) {
                    me.read(page(whose, which)).await;
                    me.compute(1, 50_000.0).await;
                }
                me.compute(1, 500_000.0).await;
                me.barrier().await;
                me.read_and_write(page(me.task, 0).start..page(me.task, PAGES - 1).end).await;
                me.barrier().await;
            }
            if me.task == 0 {
                me.stop().await;
            }
        })
    }
}

/// Returns random numbers that depend only on these parameters.
fn random(task: u64, round: u64) -> Random {
    Random::new(round * 1000 + task)
}

/// Random pages of all tasks, different in each round.
fn gather(task: u64, tasks: u64, round: u64) -> Vec<(u64, u64)> {
    let mut random = random(task, round);
    let mut any = |below: u64| random.below(below as usize) as u64;
    (0..16).map(|_| (any(tasks), any(PAGES))).collect()
}

/// All pages of the previous task.
fn ring(task: u64, tasks: u64, _: u64) -> Vec<(u64, u64)> {
    (0..PAGES).map(|page| ((task + tasks - 1) % tasks, page)).collect()
}

/// Some pages of one task, which differs between rounds.
fn hotspot(_: u64, tasks: u64, round: u64) -> Vec<(u64, u64)> {
    let whose = random(0, round).below(tasks as usize) as u64;
    (0..6).map(|page| (whose, page)).collect()
}

/// One page of each task, like the transposition of a matrix.
fn transpose(task: u64, tasks: u64, _: u64) -> Vec<(u64, u64)> {
    (1..tasks).map(|step| ((task + step) % tasks, task % PAGES)).collect()
}

/// Random pages of a neighbour, half of all.
fn half(task: u64, tasks: u64, round: u64) -> Vec<(u64, u64)> {
    let mut random = random(task, round);
    let pages = (0..PAGES).filter(|_| random.one_in(2));
    pages.map(|page| ((task + 1) % tasks, page)).collect()
}

/// Pages of one neighbour for some rounds, then pages of the other.
fn turns(task: u64, tasks: u64, round: u64) -> Vec<(u64, u64)> {
    let step = if (round / 5).is_multiple_of(2) { 1 } else { tasks - 1 };
    (0..8).map(|page| ((task + step) % tasks, page)).collect()
}

fn run(cluster: &str, nodes: u32, reads: Reads, rides: Policy) -> Outcome {
    let mut cluster = Cluster::known(cluster).expect("a known name");
    if cluster.cores == 2 {
        (cluster.network.machine_nodes, cluster.cores) = (2, 1);
    }
    let setup = Setup {
        cluster,
        consistency: Consistency::Scope,
        copies_max: u64::MAX,
        nodes,
        tasks: 1,
        page_bytes: PAGE_BYTES as usize,
        migrate: false,
        alone: true,
        rides,
        contention: true,
    };
    Machine::new(&setup, &Rounds(reads)).run().expect("no error")
}

/// Checks the minimum percentage of saved page messages and the maximum percentage of lost time, on
/// 8 and on 32 nodes of both clusters.
fn saves(name: &str, reads: Reads, least: f64, most: f64) {
    for (cluster, nodes) in [("paper", 8), ("paper", 32), ("current", 8), ("current", 32)] {
        let [normal, auto] =
            [Policy::Normal, Policy::Auto].map(|rides| run(cluster, nodes, reads, rides));
        let saved = 100.0 - 100.0 * auto.page_messages() as f64 / normal.page_messages() as f64;
        let slower = 100.0 * auto.time_ns as f64 / normal.time_ns as f64 - 100.0;
        let bytes = 100.0 * auto.bytes as f64 / normal.bytes as f64 - 100.0;
        let vain: u64 = each(&auto.rides).map(|(_, _, rides)| rides.sent - rides.used).sum();
        let vain = (100 * vain * PAGE_BYTES) as f64 / auto.bytes as f64;
        let what = format!(
            "{name}, {nodes} nodes, {cluster}: {saved:.1} % saved, time {slower:+.1} %, bytes \
             {bytes:+.1} %, {vain:.1} % of them in vain"
        );
        println!("{what}");
        assert!(saved >= least && slower <= most && vain < 10.0, "{what}");
    }
}

#[test]
fn pages_by_chance() {
    saves("gather", gather, -1.0, 2.0);
}

#[test]
fn a_ring() {
    saves("ring", ring, 50.0, 2.0);
}

/// All tasks read the same few pages at once. A ride to one task delays the others, and the policy
/// learns this only after some time.
#[test]
fn a_hotspot_that_moves() {
    saves("hotspot", hotspot, -1.0, 3.0);
}

#[test]
fn a_matrix_is_transposed() {
    saves("transpose", transpose, -1.0, 2.0);
}

#[test]
fn each_second_page() {
    saves("half", half, -1.0, 2.0);
}

#[test]
fn one_neighbour_and_then_the_other() {
    saves("turns", turns, 0.0, 2.0);
}
