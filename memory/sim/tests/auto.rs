//! The `auto` policy on the paper's cluster, with two nodes per machine. Fewer messages carry
//! pages, few rides are useless, and no program is slower.

use coherence::ride::{Carrier, Policy};
use coherence::scope::statistics::each;
use sim::cluster::Cluster;
use sim::machine::Machine;
use sim::program::known;
use sim::protocol::Consistency;
use sim::report::Outcome;
use sim::setup::Setup;

const PAGE_BYTES: usize = 8192;

fn run(name: &str, parameters: &str, rides: Policy) -> Outcome {
    let mut cluster = Cluster::known("paper").expect("a known name");
    cluster.network.machine_nodes = 2;
    cluster.cores = 1;
    let known = known::ALL.iter().find(|known| known.name == name).expect("a known name");
    let table = parameters.parse().expect("a table");
    let program = known.make(&table, &cluster).expect("valid parameters");
    let setup = Setup {
        cluster,
        nodes: 32,
        tasks: 1,
        page_bytes: PAGE_BYTES,
        consistency: Consistency::Scope,
        copies_max: u64::MAX,
        migrate: false,
        alone: true,
        rides,
        contention: true,
    };
    Machine::new(&setup, program.as_ref()).run().expect("no error")
}

/// Checks the savings: at least this percentage of page messages.
fn saves(name: &str, parameters: &str, percent: u64) {
    let normal = run(name, parameters, Policy::Normal);
    let auto = run(name, parameters, Policy::Auto);
    let (before, after) = (normal.page_messages(), auto.page_messages());
    assert!(
        after * 100 <= before * (100 - percent),
        "{name}: {after} page messages, {before} without rides"
    );
    let (before, after) = (normal.time_ns, auto.time_ns);
    assert!(after * 100 <= before * 102, "{name}: {after} ns, {before} without rides");
    let vain: u64 = each(&auto.rides).map(|(_, _, rides)| rides.sent - rides.used).sum();
    let vain = vain * PAGE_BYTES as u64;
    assert!(vain * 10 < auto.bytes, "{name}: {vain} bytes of useless rides, of {}", auto.bytes);
}

#[test]
fn pages_that_are_read_one_after_the_other_ride() {
    saves("mm", "", 84);
}

#[test]
fn pages_that_are_needed_in_every_round_ride() {
    saves("sor", "iterations = 10", 50);
    saves("is", "", 70);
    let rides = run("sor", "iterations = 10", Policy::Auto).rides;
    let used = |carrier| each(&rides).any(|(by, _, rides)| by == carrier && rides.used > 0);
    assert!(used(Carrier::Barrier) && used(Carrier::Page));
}

/// The pivot column and the pivot row of a phase are requested together, each in a message or two.
#[test]
fn pages_that_shift_from_phase_to_phase_are_requested_together() {
    saves("lu", "", 36);
    let [normal, auto] = [Policy::Normal, Policy::Auto].map(|rides| run("lu", "", rides).time_ns);
    assert!(1000 * auto <= 1005 * normal, "{auto} ns, {normal} without");
}

#[test]
fn unpredictable_threads_are_left_alone() {
    for name in ["tsp", "water", "ep"] {
        saves(name, "", 0);
    }
}
