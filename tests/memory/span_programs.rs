//! `nagaya span`: programs from Debian with threads, OpenMP programs and storms of pthreads, whose
//! threads run on several nodes, print what they print on one machine; litmus tests by the million.

use std::time::Duration;

use nagaya_tests::program::{c, c_with};
use nagaya_tests::span::{LIMIT, packing, span};
use nagaya_tests::{Cmd, WorkDir, tool};

/// On one to three nodes it prints what it prints alone, but for lines with one of these words.
#[track_caller]
fn prints_the_same(work: &WorkDir, command: &[&str], but: &[&str]) {
    let program = tool(command[0]);
    let lines = |output: &str| {
        let is_same = |line: &&str| !but.iter().any(|word| line.contains(word));
        output.lines().filter(is_same).map(str::to_string).collect::<Vec<_>>()
    };
    let of = |command: Cmd| lines(&command.time_limit(LIMIT).dir(work.path()).run().ok());
    let alone = of(Cmd::new(&program).args(&command[1..]));
    assert!(!alone.is_empty(), "{command:?} prints nothing");
    for nodes in [1, 2, 3] {
        let ours = of(span(nodes, &program).args(&command[1..]));
        assert!(ours == alone, "{command:?} on {nodes} nodes prints something else: {ours:?}");
    }
    let ours = of(packing(2, &program).args(&command[1..]));
    assert!(ours == alone, "{command:?}, packed, prints something else: {ours:?}");
}

/// Letters in an order that is the same each time.
fn letters(letters: &[u8]) -> impl FnMut() -> u8 {
    let mut state = 7u32;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        letters[(state >> 16) as usize % letters.len()]
    }
}

#[test]
fn minimap2_finds_the_same_places() {
    let work = WorkDir::new();
    let mut next = letters(b"ACGT");
    let reference: Vec<u8> = (0..100_000).map(|_| next()).collect();
    let mut reads = Vec::new();
    for read in 0..60 {
        reads.extend(format!(">read{read}\n").bytes());
        reads.extend(&reference[read * 1500..][..1000]);
        reads.push(b'\n');
    }
    work.write("reference.fa", [b">reference\n", &reference[..], b"\n"].concat());
    work.write("reads.fa", reads);
    // Small batches: threads that begin and end by the dozen.
    let command = ["minimap2", "-a", "-t", "3", "-K", "10k", "reference.fa", "reads.fa"];
    // The command line stands in the output.
    prints_the_same(&work, &command, &["@PG"]);
}

#[test]
fn seven_zip_packs_the_same() {
    let work = WorkDir::new();
    let mut next = letters(b"abcdefghijklmnop");
    work.write("data", (0..1_500_000).map(|_| next()).collect::<Vec<u8>>());
    let check = "7z a -bd -mmt3 -so -txz -mx1 - data | sha256sum";
    let alone = Cmd::new("sh").args(["-c", check]).dir(work.path()).run().ok();
    let archive = ["a", "-bd", "-mmt3", "-so", "-txz", "-mx1", "-", "data"];
    for nodes in [1, 2, 3] {
        let pipe = Cmd::new("sh").args(["-c", "\"$@\" | sha256sum", "sh"]);
        let ours = pipe.command(span(nodes, tool("7z")).args(archive)).dir(work.path());
        ours.time_limit(LIMIT).run().prints(&alone);
    }
}

#[test]
fn sysbench_counts_the_same() {
    let work = WorkDir::new();
    let many = ["--threads=3", "--time=0", "--histogram=off"];
    let with = |words: &[&'static str]| [&["sysbench"], words, &many[..], &["run"]].concat();
    // Lines with times, and shares of the work that each thread has had.
    let times =
        ["second", "time", "min:", "avg:", "max:", "sum:", "percentile", "avg/stddev", "MiB"];
    for words in [
        &["cpu", "--events=60"][..],
        &["memory", "--memory-total-size=4M", "--memory-block-size=4K"],
        &["mutex", "--mutex-num=64", "--mutex-locks=100", "--mutex-loops=100"],
        &["threads", "--events=20", "--thread-locks=4"],
    ] {
        prints_the_same(&work, &with(words), &times);
    }
}

#[test]
fn openmp_s_loops_and_tasks_give_the_same() {
    let program = c_with("span/openmp.c", &["-O2", "-fopenmp", "-lm"]);
    for name in ["jacobi", "montecarlo", "quicksort"] {
        let alone = Cmd::new(&program).arg(name).env("OMP_NUM_THREADS", "3").run().ok();
        for nodes in [1, 2, 3, 4] {
            span(nodes, &program).arg(name).env("OMP_NUM_THREADS", "3").run().prints(&alone);
        }
    }
}

#[test]
fn storms_of_threads_lose_nothing() {
    let program = c("span/storms.c");
    for name in ["threads", "queue", "wakes", "readers", "barriers", "locals"] {
        for (nodes, rounds) in [(1, "300"), (2, "30"), (3, "20"), (4, "10")] {
            span(nodes, &program).args([name, rounds]).run().prints("right\n");
        }
        packing(3, &program).args([name, "60"]).run().prints("right\n");
    }
}

/// Litmus tests of sequential consistency: this many executions of each.
#[track_caller]
fn is_consistent(executions: &str, limit: Duration) {
    let program = c("span/many.c");
    for nodes in [2, 3, 4] {
        let output = span(nodes, &program).arg(executions).time_limit(limit).run();
        assert!(output.status.success() && output.stdout == "right\n", "{output}");
        eprintln!("{nodes} nodes: shape, executions, of the rarest outcome\n{}", output.stderr);
    }
}

#[test]
fn litmus_tests_see_what_may_be_seen() {
    is_consistent("40000", LIMIT);
}

#[test]
#[ignore = "millions of executions, some minutes; make soak"]
fn litmus_tests_see_it_millions_of_times() {
    is_consistent("2000000", Duration::from_secs(3600));
}
