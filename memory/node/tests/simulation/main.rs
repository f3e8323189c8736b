//! The page engine of several nodes in one thread: the product's protocols, engine and mesh over a
//! simulated network, clock and memory.
//!
//! `NAGAYA_SEED=n` repeats the run of a seed, and `NAGAYA_SEEDS=n` sets their number.

mod life;
mod memory;
mod replica;
mod resets;
mod scoped;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use coherence::random::{Random, Size, random_program};
use coherence::ride;
use coherence::scope;
use fastrand::Rng;
use life::{ALIVE, Player, Stage};
use memory::{FAILURES, Failure, Failures, Pages};
use net::secret::Secret;
use net::simulation::{Counts, DETECTION, Fault, Network, Next, Plan, Wait};
use replica::{ReplicaNode, Values};
use scoped::ScopedNode;

/// Number of seeds in an ordinary run.
const SEEDS: u64 = 1000;
/// Time limit of a node's silence.
const TIMEOUT: Duration = Duration::from_secs(8);
/// Size of a page: enough for payloads that are announced.
const PAGE_BYTES: usize = 128;
/// Number of bytes of a page that programs use.
const USED_BYTES: usize = 4;
/// Distance of these bytes.
const DISTANCE: usize = PAGE_BYTES / USED_BYTES;
/// Limits of a run.
const TIME_MAX: Duration = Duration::from_secs(7200);
const STEPS_MAX: u64 = 1_000_000;
/// Time until nodes that do not find each other give up, and what a turn may add.
const MEET_MAX: Duration = Duration::from_secs(31);
const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

/// The outcome of a run.
#[derive(Default)]
struct Outcome {
    hash: u64,
    counts: Counts,
    failures: [u64; FAILURES.len()],
    /// Jobs that reached their end, and jobs that failed.
    complete: u64,
    failed: u64,
}

/// Runs some seeds. Prints the seed of a run that fails.
fn all(run: impl Fn(u64) -> Outcome) -> Outcome {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let seeds = match number("NAGAYA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("NAGAYA_SEEDS").unwrap_or(SEEDS),
    };
    let mut sum = Outcome::default();
    for seed in seeds {
        let failing = PrintSeed(seed);
        let outcome = run(seed);
        std::mem::forget(failing);
        sum.hash ^= outcome.hash;
        sum.counts.merge(&outcome.counts);
        sum.failures.iter_mut().zip(outcome.failures).for_each(|(sum, one)| *sum += one);
        sum.complete += outcome.complete;
        sum.failed += outcome.failed;
    }
    let memory: Vec<String> =
        FAILURES.iter().map(|it| format!("{it:?} {}", sum.failures[*it as usize])).collect();
    println!("{} jobs complete, {} failed, {}", sum.complete, sum.failed, sum.counts);
    println!("memory: {}", memory.join(" "));
    sum
}

/// Prints the seed if the run panics.
struct PrintSeed(u64);

impl Drop for PrintSeed {
    fn drop(&mut self) {
        eprintln!("NAGAYA_SEED={} repeats this run", self.0);
    }
}

/// Returns the faults of a run.
fn plan(random: &mut Rng, nodes: usize, with_losses: bool) -> Plan {
    match with_losses {
        true => Plan::deadly(random, nodes, 20_000_000_000, 400 * nodes as u64),
        false => Plan::troubled(random, nodes, 1_000_000_000),
    }
}

/// Runs a job of several nodes, which `make` returns for the network.
fn job<P: Player>(
    seed: u64,
    plan: Plan,
    failures: &Failures,
    with_losses: bool,
    make: impl FnOnce(&mut Network, &Secret) -> Vec<P>,
) -> Outcome {
    let bound = MEET_MAX + DETECTION + 2 * TIMEOUT + 20 * Duration::from_nanos(plan.stop_ns);
    let mut network = Network::new(seed, plan);
    let secret = Secret::new([7; 32]);
    let mut players: Vec<Option<P>> = make(&mut network, &secret).into_iter().map(Some).collect();
    connect(&mut players);
    let mut waits = vec![Wait::Ready; players.len()];
    let mut first_end = None;
    loop {
        let is_late = network.now() >= TIME_MAX || network.steps() >= STEPS_MAX;
        assert!(!is_late, "the job goes on for ever at {:?}: {waits:?}", network.now());
        match network.next(&waits) {
            Next::Turn(at) => {
                let player = players[at].as_mut().expect("it lives");
                waits[at] = life::turn(player, &network, &NAMES);
                if let Some(why) = &player.life().failure {
                    assert!(with_losses, "node {at} fails without a fault: {why}");
                    first_end.get_or_insert(network.now());
                    players[at] = None; // its process ends
                }
            }
            Next::Death(at) => {
                first_end.get_or_insert(network.now());
                (players[at], waits[at]) = (None, Wait::Over);
            }
            Next::End => break,
        }
    }
    if let Some(first) = first_end {
        let time = network.now() - first;
        assert!(time < bound, "the last node ends {time:?} after the first");
    }
    for (at, player) in players.iter_mut().enumerate() {
        let Some(player) = player else { continue };
        assert!(matches!(player.life().stage, Stage::Over), "node {at} waits for ever");
    }
    players.clear();
    assert_eq!(network.remains(), [0; 3], "the network holds something");
    let (complete, failed) = (u64::from(first_end.is_none()), u64::from(first_end.is_some()));
    let failures = *failures.borrow();
    Outcome { hash: network.hash(), counts: network.counts(), failures, complete, failed }
}

fn connect<P: Player>(players: &mut [Option<P>]) {
    let mut meshes: Vec<_> = players
        .iter_mut()
        .flatten()
        .map(|player| player.engine_mut().mesh.as_mut().expect("there are several nodes"))
        .collect();
    let addresses: Vec<Vec<u8>> = meshes.iter().map(|mesh| mesh.address().to_vec()).collect();
    let addresses: Vec<&[u8]> = addresses.iter().map(Vec::as_slice).collect();
    meshes.iter_mut().for_each(|mesh| mesh.connect(&addresses).expect("addresses of fabrics"));
}

/// Runs tasks that race for the same bytes, under sequential consistency, while pages are reset.
fn race(seed: u64, with_losses: bool) -> Outcome {
    let mut random = Rng::with_seed(seed);
    let nodes = random.usize(2..6);
    let failures = Failures::default();
    let failing = if with_losses && random.bool() { random.u32(100..3000) } else { 0 };
    let pages = if random.u32(0..8) == 0 { random.u64(60..150) } else { random.u64(1..8) };
    let limit_bytes = (random.u32(0..4) == 0).then(|| pages * PAGE_BYTES as u64 / 2);
    let resets = if random.u32(0..3) == 0 { random.u64(1..6) } else { 0 };
    let options = ReplicaNode::options(nodes as u32, 0, &mut random);
    let values: Values = Rc::new(RefCell::new(vec![0; pages as usize * PAGE_BYTES]));
    let plan = plan(&mut random, nodes, with_losses);
    job(seed, plan, &failures, with_losses, |network, secret| {
        let mut node = |me: u32| {
            let mesh = network.mesh(me, secret, Some(TIMEOUT), ALIVE.to_vec()).expect("a mesh");
            let fork = random.fork();
            let memory = Pages::new(pages, PAGE_BYTES, fork, failing, failures.clone());
            let tasks = (0..random.usize(1..4)).map(|_| {
                let bytes = pages * USED_BYTES as u64;
                let steps = 0..random.usize(1..40);
                let place = |at: u64| at * DISTANCE as u64;
                steps.map(|_| (place(random.u64(0..bytes)), random.bool())).collect()
            });
            let tasks = tasks.collect();
            let options = coherence::sequential::Options { me, ..options };
            let values = values.clone();
            let limits = (limit_bytes, resets);
            ReplicaNode::new(memory, mesh, options, pages, tasks, values, limits)
        };
        (0..nodes as u32).map(&mut node).collect()
    })
}

/// Runs a random program with locks and barriers, under scope consistency.
fn program(seed: u64, with_losses: bool) -> Outcome {
    let mut source = Random::new(seed);
    let size = Size { nodes: 5, tasks: 2, same: true };
    let program = loop {
        let program = random_program(&mut source, size, USED_BYTES);
        if program.nodes.len() > 1 {
            break program;
        }
    };
    let mut random = Rng::with_seed(seed);
    let nodes = program.nodes.len();
    let failures = Failures::default();
    let failing = if with_losses && random.bool() { random.u32(100..3000) } else { 0 };
    let plan = plan(&mut random, nodes, with_losses);
    job(seed, plan, &failures, with_losses, |network, secret| {
        let mut node = |me: u32| {
            let mesh = network.mesh(me, secret, Some(TIMEOUT), ALIVE.to_vec()).expect("a mesh");
            let fork = random.fork();
            let memory = Pages::new(program.pages, PAGE_BYTES, fork, failing, failures.clone());
            let tasks = program.nodes[me as usize].clone();
            let options = scope::Options {
                nodes: nodes as u32,
                me,
                tasks: tasks.len() as u32,
                migrate: program.migrate,
                alone: program.alone,
                rides: program.rides,
                pages_max: ride::pages_max(PAGE_BYTES),
            };
            ScopedNode::new(memory, mesh, options, (program.pages, program.homes), tasks)
        };
        (0..nodes as u32).map(&mut node).collect()
    })
}

/// Checks that all faults have happened, and that jobs with and without an error exist. Under scope
/// consistency, a page is read through a view that cannot fail.
fn assert_happened(outcome: &Outcome, with_losses: bool, reads_fail: bool) {
    if std::env::var("NAGAYA_SEED").is_ok() {
        return;
    }
    assert!(outcome.complete > 0, "no job was complete");
    let unmapped = outcome.failures[Failure::Unmapped as usize];
    assert!(unmapped > 0, "no mapping was dropped");
    if with_losses {
        assert!(outcome.failed > 0, "no job failed");
        assert_eq!(outcome.counts.never(), []);
        let happened = |failure: &Failure| outcome.failures[*failure as usize] > 0;
        let mut failures = FAILURES.iter().filter(|it| reads_fail || **it != Failure::Unread);
        assert!(failures.all(happened), "{:?}", outcome.failures);
    } else {
        assert_eq!(outcome.failed, 0);
        assert!(outcome.counts.of(Fault::Stopped) > 0 && outcome.counts.of(Fault::Slow) > 0);
    }
}

#[test]
fn racing_tasks_see_one_memory_however_late_messages_are() {
    assert_happened(&all(|seed| race(seed, false)), false, true);
}

#[test]
fn racing_tasks_see_one_memory_until_a_node_dies() {
    assert_happened(&all(|seed| race(seed, true)), true, true);
}

#[test]
fn programs_with_locks_read_what_they_must_however_late_messages_are() {
    assert_happened(&all(|seed| program(seed, false)), false, false);
}

#[test]
fn programs_with_locks_read_what_they_must_until_a_node_dies() {
    assert_happened(&all(|seed| program(seed, true)), true, false);
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    for seed in 0..25 {
        for with_losses in [false, true] {
            assert_eq!(race(seed, with_losses).hash, race(seed, with_losses).hash);
            assert_eq!(program(seed, with_losses).hash, program(seed, with_losses).hash);
        }
    }
}
