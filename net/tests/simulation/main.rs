//! Fabrics and meshes of several processes in one thread, over a simulated network with faults.
//!
//! `NAGAYA_SEED=n` repeats the run of a seed, and `NAGAYA_SEEDS=n` sets their number.

mod handshakes;
mod meshes;
mod sockets;
mod talker;

use std::time::Duration;

use fastrand::Rng;
use net::fabric::ANSWER_MAX;
use net::secret::Secret;
use net::simulation::{Counts, DETECTION, Fault, Network, Next, Plan, Wait};
use talker::{Ledger, Talker};

/// Number of seeds in an ordinary run.
const SEEDS: u64 = 1000;
/// Limit of the simulated time of a run.
pub const TIME_MAX: Duration = Duration::from_secs(3600);

/// Limit of the steps of a run.
pub const STEPS_MAX: u64 = 1_000_000;

/// The outcome of a run.
pub struct Outcome {
    hash: u64,
    counts: Counts,
    /// Connections that were lost, and messages that were received.
    lost: u64,
    received: u64,
}

/// Runs some seeds. Prints the seed of a run that fails.
fn all(run: impl Fn(u64) -> Outcome) -> Outcome {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let seeds = match number("NAGAYA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("NAGAYA_SEEDS").unwrap_or(SEEDS),
    };
    let (mut counts, mut hash, mut lost, mut received) = (Counts::default(), 0, 0, 0);
    for seed in seeds {
        let failing = PrintSeed(seed);
        let outcome = run(seed);
        std::mem::forget(failing);
        counts.merge(&outcome.counts);
        hash ^= outcome.hash;
        lost += outcome.lost;
        received += outcome.received;
    }
    println!("received {received}, lost {lost}, {counts}");
    Outcome { hash, counts, lost, received }
}

/// Prints the seed if the run panics.
struct PrintSeed(u64);

impl Drop for PrintSeed {
    fn drop(&mut self) {
        eprintln!("NAGAYA_SEED={} repeats this run", self.0);
    }
}

/// Runs processes that connect and talk at random, with or without losses.
fn talk(seed: u64, with_losses: bool) -> Outcome {
    let mut random = Rng::with_seed(seed);
    let nodes = random.usize(2..6);
    let actions = random.u64(1..60);
    let stop_ns = if with_losses { 10_000_000_000 } else { 2_000_000_000 };
    let plan = match with_losses {
        true => Plan::deadly(&mut random, nodes, stop_ns, actions * 10 * nodes as u64),
        false => Plan::troubled(&mut random, nodes, stop_ns),
    };
    let bound = DETECTION + 2 * ANSWER_MAX + 20 * Duration::from_nanos(stop_ns);
    let may_abandon = with_losses && !plan.overtakes;
    let mut network = Network::new(seed, plan);
    let (secret, mut ledger) = (Secret::new([7; 32]), Ledger::default());
    let mut talkers: Vec<Option<Talker>> = (0..nodes)
        .map(|node| {
            let fabric = network.fabric(node as u64, &secret).expect("a fabric");
            Some(Talker::new(fabric, node, actions, with_losses, may_abandon, bound))
        })
        .collect();
    let address =
        |talker: &Option<Talker>| talker.as_ref().expect("it lives").fabric.address().to_vec();
    let addresses: Vec<Vec<u8>> = talkers.iter().map(address).collect();
    loop {
        if network.now() >= TIME_MAX || network.steps() >= STEPS_MAX {
            let working = talkers.iter().flatten().filter(|it| !it.is_idle());
            let working: Vec<String> = working.map(|talker| talker.to_string()).collect();
            panic!("processes go on for ever: {working:#?}");
        }
        let wait = |talker: &Option<Talker>| talker.as_ref().map_or(Wait::Over, |it| it.wait);
        let waits: Vec<Wait> = talkers.iter().map(wait).collect();
        match network.next(&waits) {
            Next::Turn(node) => {
                let talker = talkers[node].as_mut().expect("it lives");
                talker.turn(&network, &addresses, &mut ledger);
            }
            Next::Death(node) => {
                ledger.died.insert(node, network.now());
                talkers[node] = None;
            }
            Next::End => break,
        }
    }
    for (node, talker) in talkers.iter().enumerate() {
        let Some(talker) = talker else { continue };
        assert!(talker.is_idle(), "process {node} waits for ever: {talker}");
    }
    for count in &ledger.counts {
        assert!(count.received <= count.sent, "more has come than was sent");
        if count.is_closed && !with_losses {
            let lost = count.sent - count.received;
            assert!(lost <= count.unsent, "a closed connection has lost messages: {count:?}");
        }
    }
    talkers.clear();
    assert_eq!(network.remains(), [0; 3], "the network holds something");
    let received = ledger.counts.iter().map(|count| count.received).sum();
    Outcome { hash: network.hash(), counts: network.counts(), lost: ledger.lost, received }
}

/// The network without losses has these faults only.
const HARMLESS: [Fault; 9] = [
    Fault::Pending,
    Fault::Full,
    Fault::Announced,
    Fault::Held,
    Fault::Partial,
    Fault::Reordered,
    Fault::Overtook,
    Fault::Stopped,
    Fault::Slow,
];

/// Checks that each of these faults has happened, in a run of all seeds.
fn assert_happened(outcome: &Outcome, faults: &[Fault]) {
    if std::env::var("NAGAYA_SEED").is_err() {
        let never = outcome.counts.never();
        let missing: Vec<_> = faults.iter().filter(|fault| never.contains(fault)).collect();
        assert!(missing.is_empty(), "these faults have never happened: {missing:?}");
        assert!(outcome.received > 0, "no message has come");
    }
}

#[test]
fn messages_arrive_once_and_in_order_however_late() {
    let outcome = all(|seed| talk(seed, false));
    assert_happened(&outcome, &HARMLESS);
    assert_eq!(outcome.lost, 0);
}

#[test]
fn processes_that_die_at_any_step_are_reported_and_nothing_hangs() {
    let outcome = all(|seed| talk(seed, true));
    assert_happened(&outcome, &Fault::ALL);
}

#[test]
fn nodes_meet_send_and_leave_however_late() {
    let outcome = all(|seed| meshes::job(seed, false));
    assert_happened(&outcome, &HARMLESS);
    assert_eq!(outcome.lost, 0);
}

#[test]
fn jobs_whose_nodes_die_at_any_step_end_in_time() {
    let outcome = all(|seed| meshes::job(seed, true));
    assert_happened(&outcome, &Fault::ALL);
    assert!(outcome.lost > 0 || std::env::var("NAGAYA_SEED").is_ok(), "no node was lost");
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    for seed in 0..50 {
        for with_losses in [false, true] {
            assert_eq!(talk(seed, with_losses).hash, talk(seed, with_losses).hash);
            let job = || meshes::job(seed, with_losses).hash;
            assert_eq!(job(), job());
        }
    }
    assert_ne!(talk(1, true).hash, talk(2, true).hash);
}
