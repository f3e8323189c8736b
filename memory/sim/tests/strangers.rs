//! `auto` and programs that its numbers were not chosen with: how much slower they are for it at
//! most, and that fewer than a tenth of the bytes are rides that nobody used.
//!
//! Each program has as many pages at each task's node; in every round each task reads some of
//! others' pages, computes, and writes its own.

use coherence::ride::Policy;
use coherence::scope::statistics::each;
use coherence::story::Random;
use sim::cluster::Cluster;
use sim::machine::{Machine, Setup};
use sim::program::{Allocation, Program};
use sim::protocol::Consistency;
use sim::report::Outcome;
use sim::task::{Life, Me};

const PAGE_BYTES: u64 = 8192;
/// Pages of a task, and rounds.
const PAGES: u64 = 24;
const ROUNDS: u64 = 40;

/// Which pages (whose, and which of theirs) a task reads in a round.
type Reads = fn(task: u64, tasks: u64, round: u64) -> Vec<(u64, u64)>;

struct Rounds(Reads);

impl Program for Rounds {
    fn allocations(&self, tasks: u64, page_bytes: u64) -> Vec<Allocation> {
        (0..tasks).map(|task| Allocation::on(task, PAGES * page_bytes)).collect()
    }

    fn task(&self, me: Me, bases: &[u64]) -> Life {
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

/// Numbers that depend on these only.
fn random(task: u64, round: u64) -> Random {
    Random::new(round * 1000 + task)
}

/// Any pages of anybody's, never the same.
fn gather(task: u64, tasks: u64, round: u64) -> Vec<(u64, u64)> {
    let mut random = random(task, round);
    let mut any = |below: u64| random.below(below as usize) as u64;
    (0..16).map(|_| (any(tasks), any(PAGES))).collect()
}

/// All of the one's before it.
fn ring(task: u64, tasks: u64, _: u64) -> Vec<(u64, u64)> {
    (0..PAGES).map(|page| ((task + tasks - 1) % tasks, page)).collect()
}

/// Some of one task's, which is another in each round.
fn hotspot(_: u64, tasks: u64, round: u64) -> Vec<(u64, u64)> {
    let whose = random(0, round).below(tasks as usize) as u64;
    (0..6).map(|page| (whose, page)).collect()
}

/// A page of each, as a matrix is transposed.
fn transpose(task: u64, tasks: u64, _: u64) -> Vec<(u64, u64)> {
    (1..tasks).map(|step| ((task + step) % tasks, task % PAGES)).collect()
}

/// Of a neighbour's pages each second one, by chance.
fn half(task: u64, tasks: u64, round: u64) -> Vec<(u64, u64)> {
    let mut random = random(task, round);
    let pages = (0..PAGES).filter(|_| random.one_in(2));
    pages.map(|page| ((task + 1) % tasks, page)).collect()
}

/// All of one neighbour's for some rounds, then the other's.
fn turns(task: u64, tasks: u64, round: u64) -> Vec<(u64, u64)> {
    let step = if (round / 5).is_multiple_of(2) { 1 } else { tasks - 1 };
    (0..8).map(|page| ((task + step) % tasks, page)).collect()
}

fn run(cluster: &str, nodes: u32, reads: Reads, rides: Policy) -> Outcome {
    let mut cluster = Cluster::known(cluster).expect("it is known");
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
    Machine::new(&setup, &Rounds(reads)).run().expect("it ends")
}

/// Percent of page messages that are saved, at least, and of time that is lost, at most, on 8 and
/// on 32 nodes of both clusters.
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

/// All want the same few pages at once: what rides to one, the others wait for; and it takes
/// some time to be known.
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
