//! `nagaya sim`: its predictions equal the messages of real runs; recordings of real nodes can be
//! replayed; and invalid input gets one line.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nagaya_tests::program::c_with_libraries;
use nagaya_tests::{Cmd, WorkDir, nagaya, tool};

const LIMIT: Duration = Duration::from_secs(120);

/// A program with the same parameters for both: `size=64` and `--size 64`.
fn real(dir: &WorkDir, nodes: usize, name: &str, parameters: &str, migrate: bool) {
    ride(dir, nodes, (name, parameters), migrate, "normal");
}

fn ride(dir: &WorkDir, nodes: usize, (name, parameters): (&str, &str), migrate: bool, rides: &str) {
    let program = c_with_libraries(&format!("../../examples/dsm/{name}.c"), &["jia", "m"]);
    let job = Cmd::new(tool("mpirun.openmpi")).args(["--oversubscribe", "-n"]);
    let mut job = job.arg(nodes.to_string()).arg(program).time_limit(LIMIT);
    for (parameter, value) in parameters.split(' ').filter_map(|word| word.split_once('=')) {
        job = job.arg(format!("--{parameter}")).arg(value);
    }
    let job = job.env("NAGAYA_DSM_STATISTICS", dir.join("node"));
    let job = job.env("NAGAYA_DSM_RIDES", rides);
    let job = job.env("NAGAYA_DSM_MIGRATE", if migrate { "1" } else { "0" });
    job.env("NAGAYA_DSM_RECORD", dir.path()).run().ok();
}

/// Returns the counters of all nodes of a real run.
fn counted(dir: &WorkDir, nodes: usize, what: &str) -> u64 {
    let of = |node| {
        let file = dir.join(&format!("node.{node}.json"));
        let text = fs::read_to_string(&file).expect("statistics");
        // Rides are counted of pages, too.
        let rides = text.split("\"rides\":[").nth(1).and_then(|rest| rest.split(']').next());
        let of = if what.starts_with("rides_") { rides.expect("rides") } else { &text };
        numbers(of, &format!("\"{what}\":"))
    };
    (0..nodes).map(of).sum()
}

/// The sum of all numbers that follow a word.
fn numbers(text: &str, word: &str) -> u64 {
    let number = |rest: &str| {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).expect("its end");
        rest[..digits].parse::<u64>().expect("a number")
    };
    text.split(word).skip(1).map(number).sum()
}

/// A column of the last line of a file of results.
fn column(file: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(file).expect("results");
    let names = text.lines().next().expect("a head").split(',');
    // Behind the names of program and cluster, in which a comma stands between quotes.
    let behind = names.skip(2).position(|column| column == name).expect("a column");
    let (_, cells) = text.lines().last().expect("a line").rsplit_once("\",").expect("a cluster");
    cells.split(',').nth(behind).expect("a cell").parse().expect("a number")
}

#[test]
fn real_runs_send_what_the_simulator_says() {
    // Bands are whole pages here; otherwise the result depends on the order of tasks.
    let programs =
        [("mm", "size=192"), ("sor", "rows=90 columns=1500 iterations=5"), ("lu", "size=256")];
    for (name, parameters) in programs {
        for (nodes, migrate) in [(2, false), (3, true), (4, false)] {
            let dir = WorkDir::new();
            real(&dir, nodes, name, parameters, migrate);
            let csv = dir.join("csv");
            let sim = nagaya("sim").arg(name).args(parameters.split(' ')).arg("--csv").arg(&csv);
            let sim = if migrate { sim.arg("--migrate") } else { sim };
            sim.args(["-n", &nodes.to_string(), "--rides", "normal"]).run().ok();
            for (ours, theirs) in
                [("messages", "messages"), ("bytes", "bytes"), ("pages", "page_messages")]
            {
                assert_eq!(
                    column(&csv, ours),
                    counted(&dir, nodes, theirs),
                    "{name} {parameters} on {nodes} nodes, migrate {migrate}: {ours}"
                );
            }
            let said = nagaya("sim").arg("--replay").arg(dir.path()).run().ok();
            assert!(said.starts_with(&format!("{nodes} nodes, ")), "{said}");
            assert!(said.ends_with(" steps: the same\n"), "{said}");
        }
    }
}

/// Rides depend only on the requests of nodes and their order. The same messages carry the same
/// pages, and as many are used. (Bytes are not compared for SOR. A page that rides before its home
/// writes it is written with notice, and named at the barrier; otherwise it is not.)
#[test]
fn rides_of_real_runs_are_those_of_the_simulator() {
    let programs = [("mm", "size=256"), ("sor", "rows=40 columns=6000 iterations=6")];
    for (name, parameters) in programs {
        for rides in ["ainori1", "ainori2", "ainori3"] {
            let dir = WorkDir::new();
            ride(&dir, 2, (name, parameters), false, rides);
            let csv = dir.join("csv");
            let sim = nagaya("sim").arg(name).args(parameters.split(' ')).arg("--csv").arg(&csv);
            let said = sim.args(["-n", "2", "--rides", rides]).run().ok();
            let ways = [("messages", "messages"), ("pages", "page_messages"), ("bytes", "bytes")];
            for (ours, theirs) in &ways[..if name == "sor" { 2 } else { 3 }] {
                let (ours, theirs) = (column(&csv, ours), counted(&dir, 2, theirs));
                assert_eq!(ours, theirs, "{name} {parameters}, {rides}");
            }
            for (what, theirs) in [("sent ", "rides_sent"), ("used ", "rides_used")] {
                let theirs = counted(&dir, 2, theirs);
                assert_eq!(numbers(&said, what), theirs, "{name} {parameters}, {rides}: {what}");
                assert!(theirs > 0, "{name} {parameters}, {rides}: {what}");
            }
        }
    }
}

/// In IS all nodes add to one table of 16 pages under a lock, and then read it. All but its home
/// fetch it for the lock; to read it, all but the home and the last that had the lock, which is
/// the home in some runs and not in others.
#[test]
fn a_real_is_fetches_as_its_lock_goes_round() {
    let (pages, iterations) = (16, 3);
    for nodes in [2, 4] {
        let dir = WorkDir::new();
        let parameters = format!("integers=20000 iterations={iterations}");
        real(&dir, nodes, "is", &parameters, false);
        let csv = dir.join("csv");
        let sim = nagaya("sim").arg("is").args(parameters.split(' ')).arg("--csv").arg(&csv);
        sim.args(["-n", &nodes.to_string(), "--rides", "normal"]).run().ok();
        let others = nodes as u64 - 1;
        let can_be = iterations * pages * (2 * others - 1)..=iterations * pages * 2 * others;
        for fetched in [column(&csv, "pages"), counted(&dir, nodes, "page_messages")] {
            assert!(can_be.contains(&fetched), "{fetched} pages on {nodes} nodes, not {can_be:?}");
        }
    }
}

#[test]
fn a_step_that_was_another_is_named() {
    let dir = WorkDir::new();
    let sor = nagaya("sim").args(["sor", "rows=8", "columns=64", "iterations=2", "-n", "2"]);
    sor.arg("--record").arg(dir.path()).run().ok();
    nagaya("sim").arg("--replay").arg(dir.path()).run().ok();
    // One node's events, under the name of the other.
    fs::copy(dir.join("node-1.record"), dir.join("node-0.record")).expect("a copy");
    let mut bytes = fs::read(dir.join("node-0.record")).expect("it is there");
    // Number of nodes and which one this is follow the head.
    bytes[10] = 0;
    fs::write(dir.join("node-0.record"), bytes).expect("it can be written");
    let replay = nagaya("sim").arg("--replay").arg(dir.path()).run();
    replay.refused(125, &["node-0.record", "step"]);
}

#[test]
fn the_time_on_one_node_can_be_given() {
    let dir = WorkDir::new();
    let csv = dir.join("csv");
    let sor = || nagaya("sim").args(["sor", "rows=100", "columns=1000", "-n", "1"]);
    sor().args(["--one-node", "2.5", "--csv"]).arg(&csv).run().ok();
    let text = fs::read_to_string(&csv).expect("results");
    let (_, cells) = text.lines().last().expect("a line").rsplit_once("\",").expect("a cluster");
    let seconds: f64 = cells.split(',').nth(2).expect("a time").parse().expect("a number");
    assert!((2.49..=2.51).contains(&seconds), "{text}");
    let refused = sor().args(["--one-node", "0"]).run();
    refused.refused(125, &["--one-node 0", "without its inner loop"]);
}

#[test]
fn a_trace_is_what_perfetto_reads() {
    let dir = WorkDir::new();
    let trace = dir.join("trace.json");
    let is = nagaya("sim").args(["is", "integers=1000", "iterations=1", "-n", "3", "-t", "2"]);
    is.arg("--trace").arg(&trace).run().ok();
    let look = r#"
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
assert names[2, 1] == "task 5" and names[2, 2] == "protocol", names
leave = {e["id"]: e["ts"] for e in events if e["ph"] == "s"}
arrive = {e["id"]: e["ts"] for e in events if e["ph"] == "f"}
assert leave and leave.keys() == arrive.keys()
assert all(leave[id] < arrive[id] for id in leave)
spans = {e["name"] for e in events if e["ph"] == "X"}
assert {"work", "fault", "lock", "barrier", "OP_GETPGRANT", "OP_ACQ"} <= spans, spans
"#;
    Cmd::new("python3").args(["-c", look]).arg(&trace).run().ok();
}

#[test]
fn random_programs_on_random_clusters_keep_the_guarantees() {
    let said = nagaya("sim").args(["--soak", "300", "--seed", "7"]).run().ok();
    assert_eq!(said, "300 random programs from 7 on: all as promised\n");
}

#[test]
fn the_same_run_gives_the_same_again() {
    let run = || nagaya("sim").args(["water", "molecules=60", "-n", "1,3"]).run().ok();
    assert_eq!(run(), run());
}

#[test]
fn invalid_settings_get_one_line() {
    let dir = WorkDir::new();
    let known = nagaya("sim").args(["mm", "-n", "1", "size=8"]).run().ok();
    assert!(known.starts_with("mm on: "), "{known}");
    let bad = dir.write("bad.toml", "name = 3\n");
    let bad = bad.to_str().expect("a name");
    let none = dir.join("none");
    let none = none.to_str().expect("a name");
    let garbage = WorkDir::new();
    garbage.write("node-0.record", "nonsense");
    let garbage = garbage.path().to_str().expect("a name");
    let cases: [(&[&str], &[&str]); 9] = [
        (&["nothing"], &["nothing: no such program", "mm, sor, lu"]),
        (&["mm", "size=0"], &["mm: size is 0", "1 to 65536"]),
        (&["mm", "rows=4"], &["mm:", "rows", "its parameters are size"]),
        (&["mm", "size"], &["size: write NAME=NUMBER"]),
        (&["mm", "-n", "0"], &["0 is not in 1..=4096"]),
        (&["mm", "--page", "5000"], &["--page 5000", "multiple of 4096"]),
        (&["mm", "-c", none], &["none", "neither a cluster (paper, current)"]),
        (&["mm", "-c", bad], &["bad.toml: line 1"]),
        (&["--replay", garbage], &["node-0.record is not a recording"]),
    ];
    for (arguments, words) in cases {
        nagaya("sim").args(arguments).run().refused(125, words);
    }
}

#[test]
fn this_machine_can_be_measured_and_drawn() {
    let dir = WorkDir::new();
    let (cluster, figure) = (dir.join("this.toml"), dir.join("this.svg"));
    let said = nagaya("sim").arg("--calibrate").arg(&cluster).time_limit(LIMIT).run().ok();
    assert_eq!(fs::read_to_string(&cluster).expect("it is written"), said);
    let sim = nagaya("sim").args(["is", "integers=1000", "-n", "1,2", "-c"]).arg(&cluster);
    let said = sim.arg("--plot").arg(&figure).time_limit(LIMIT).run().ok();
    assert!(said.starts_with("is on: this machine\n"), "{said}");
    let figure = fs::read_to_string(figure).expect("it is drawn");
    assert!(figure.contains("\nis\n"), "{figure}");
}
