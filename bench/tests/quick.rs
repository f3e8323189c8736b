//! The smoke test of each subcommand: it succeeds, and writes its tables and figures. The tests do
//! not check the figures, but `modes` verifies the modes of message transfer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// One subcommand at a time, since ranks spin.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The `nagaya-bench` of `NAGAYA_BIN_DIR`, or of this build.
fn bench() -> Command {
    match std::env::var_os("NAGAYA_BIN_DIR") {
        Some(directory) => Command::new(Path::new(&directory).join("nagaya-bench")),
        None => Command::new(env!("CARGO_BIN_EXE_nagaya-bench")),
    }
}

/// Runs `nagaya-bench --quick` with these arguments; returns the directory of the results.
fn quick(words: &[&str]) -> PathBuf {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("quick-{run}-{}", words[0]));
    let _ = fs::remove_dir_all(&out);
    let output = bench().args(["--quick", "--out"]).arg(&out).args(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{words:?}: {}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    out
}

/// Returns the lines of a CSV file without its headings; each has as many fields as these.
fn lines(out: &Path, file: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(out.join(file)).unwrap();
    let mut lines =
        text.lines().map(|line| line.split(',').map(str::to_string).collect::<Vec<_>>());
    let headings = lines.next().unwrap();
    let lines: Vec<_> = lines.collect();
    assert!(!lines.is_empty(), "{file} is empty");
    assert!(lines.iter().all(|line| line.len() == headings.len()), "{file}: {lines:?}");
    lines
}

fn is_drawn(out: &Path, file: &str) {
    let text = fs::read_to_string(out.join(file)).unwrap();
    assert!(text.starts_with("<svg") && text.contains("<polyline"), "{file} is no figure");
}

#[test]
fn each_mode_of_each_mpi_does_what_its_name_says() {
    let out = quick(&["modes"]);
    let modes = lines(&out, "modes.csv");
    // Five MPIs, four modes; Intel MPI has no eager of its own.
    assert_eq!(modes.len(), 19);
    assert!(modes.iter().all(|line| line.last().unwrap() == "true"), "{modes:?}");
}

#[test]
fn pingpong_compares_all_modes_and_the_limit() {
    let out = quick(&["pingpong", "--mpi", "openmpi,mpich"]);
    let times = lines(&out, "pingpong.csv");
    for mode in ["eager", "rendezvous", "cma", "space", "limit"] {
        let of_mode = times.iter().filter(|line| line[3] == mode && line[2] == "65536");
        let workloads = if mode == "limit" { 2 } else { 3 };
        assert_eq!(of_mode.count(), 2 * workloads, "two MPIs in mode {mode}");
    }
    let targets = lines(&out, "pingpong-targets.csv");
    for aim in ["faster_than_cma", "not_slower_than_cma", "near_limit"] {
        assert!(targets.iter().any(|line| line[3] == aim), "{aim} was not judged");
    }
    for file in ["latency-openmpi.svg", "bandwidth-mpich.svg", "pingpong.svg"] {
        is_drawn(&out, file);
    }
}

#[test]
fn pingpong_goes_over_libfabric_and_judges_streams() {
    let words =
        "pingpong --mpi openmpi --mode cma,provider --workload unchanged,stream --sizes 0,8";
    let out = quick(&words.split(' ').collect::<Vec<_>>());
    let times = lines(&out, "pingpong.csv");
    assert_eq!(times.len(), 8, "{times:?}");
    let targets = lines(&out, "pingpong-targets.csv");
    let judged = targets.iter().filter(|line| line[3] == "provider_not_slower");
    assert_eq!(judged.count(), 3, "{targets:?}");
}

#[test]
fn collectives_compares_all_operations() {
    let out = quick(&["collectives", "--mpi", "openmpi,mpich"]);
    // Two MPIs; a barrier, and seven operations at two sizes.
    assert_eq!(lines(&out, "collectives.csv").len(), 2 * (1 + 7 * 2));
    is_drawn(&out, "collectives.svg");
}

#[test]
fn footprint_counts_a_space_once() {
    let out = quick(&["footprint", "--mpi", "openmpi", "--ranks", "4"]);
    let all = lines(&out, "footprint.csv");
    let total = |mode: &str| -> f64 {
        let line = all.iter().find(|line| line[2] == mode).unwrap();
        line.last().unwrap().parse().unwrap()
    };
    assert!(total("space") < 3.0 * total("cma"), "{all:?}");
    assert!(total("space") > 0.3 * total("cma"), "{all:?}");
    is_drawn(&out, "footprint.svg");
}

#[test]
fn copy_tries_all_loops() {
    let out = quick(&["copy"]);
    let times = lines(&out, "copy.csv");
    for (copier, states) in [("movsb", 6), ("movnti", 6), ("sse-nt", 6)] {
        let of_loop = times.iter().filter(|line| line[4] == copier && line[3] == "65536");
        assert_eq!(of_loop.count(), states, "sources and destinations of {copier}");
    }
    is_drawn(&out, "copy.svg");
}

#[test]
fn domains_are_read_and_page_in_all_ways() {
    let out = quick(&["domains"]);
    let ways = ["private", "one", "several", "machines", "pool"];
    for (file, ways) in [("domains-reads.csv", &ways[..]), ("domains-rates.csv", &ways[..3])] {
        let lines = lines(&out, file);
        assert_eq!(lines.len(), 2 * ways.len(), "{lines:?}");
        for way in ways {
            assert!(lines.iter().any(|line| line.iter().any(|word| word == way)), "{lines:?}");
        }
    }
    let mapped = lines(&out, "domains-mapped.csv");
    assert_eq!(
        mapped.iter().map(|line| &line[0]).collect::<Vec<_>>(),
        ["hundredth", "each", "whole"]
    );
}

#[test]
fn memop_measures_the_paper_s_tables_again() {
    let out = quick(&["memop"]);
    let times = lines(&out, "memop.csv");
    let pages = ["ptrace", "process_vm", "memop", "memop-hidden", "memory"];
    let pages = pages.iter().flat_map(|way| ["read", "write"].map(|part| (*way, part)));
    let parts = ["fetch", "wait", "serve", "bring"];
    let fetches = ["ptrace", "memop"].iter().flat_map(|way| parts.map(|part| (*way, part)));
    for (way, part) in pages.chain(fetches).chain([("span", "fetch")]) {
        let is = |line: &&Vec<String>| line[0] == way && line[1] == part;
        assert_eq!(times.iter().filter(is).count(), 1, "{way}, {part}");
    }
    assert_ne!(lines(&out, "memop-targets.csv")[0][6], "not measured");
}

#[test]
fn dsm_compares_steps_and_counts_what_programs_send() {
    let out = quick(&["dsm"]);
    let steps = lines(&out, "dsm.csv");
    for step in ["read-miss", "write-miss", "upgrade", "lock", "hand-over", "barrier"] {
        for way in ["nagaya", "sleeping", "spinning"] {
            let is = |line: &&Vec<String>| line[0] == step && line[1] == "2" && line[2] == way;
            assert_eq!(steps.iter().filter(is).count(), 1, "{step}, {way}");
        }
    }
    let programs = lines(&out, "dsm-programs.csv");
    assert_eq!(programs.len(), 7 * 2, "seven programs on two numbers of nodes");
    // Every node fetches the other one's half of 128 rows of 1 KB, which are 16 pages.
    let mm = programs.iter().find(|line| line[0] == "mm" && line[1] == "2").unwrap();
    assert_eq!(mm[2], "16");
    // The simulator has the same counts, of messages and bytes, too.
    assert_eq!(mm[2..6], mm[6..10]);
    let targets = lines(&out, "dsm-targets.csv");
    assert!(targets.iter().all(|line| line[6] != "not measured"), "{targets:?}");
    is_drawn(&out, "dsm.svg");
    let simulated = lines(&out, "dsm-simulated.csv");
    assert_eq!(simulated.len(), 7, "seven programs");
    for cluster in ["sim-paper.svg", "sim-current.svg"] {
        is_drawn(&out, cluster);
    }
}

#[test]
fn span_compares_steps_and_programs() {
    let out = quick(&["span", "--programs", "montecarlo,matrix,pigz"]);
    let steps = lines(&out, "span.csv");
    for step in ["page-fetch", "upgrade", "run-of-16", "call", "wake", "move"] {
        for way in ["nagaya", "sleeping", "spinning"] {
            let is = |line: &&Vec<String>| line[0] == step && line[2] == way;
            assert_eq!(steps.iter().filter(is).count(), 1, "{step}, {way}");
        }
    }
    // The run itself compares their outputs.
    assert_eq!(lines(&out, "span-programs.csv").len(), 3);
    let targets = lines(&out, "span-targets.csv");
    assert_eq!(
        targets.len(),
        2 * 2 + 2 + 3,
        "two steps, a run, a move, three programs: {targets:?}"
    );
    assert!(targets.iter().all(|line| line[6] != "not measured"), "{targets:?}");
    is_drawn(&out, "span.svg");
}

#[test]
fn ainori_holds_policies_against_none_in_the_simulator_and_in_real_runs() {
    let out = quick(&["ainori"]);
    let runs = lines(&out, "ainori.csv");
    assert_eq!(runs.len(), 4 * 5 * 3, "programs, policies, numbers of processes");
    let saved = |program: &str, policy: &str| {
        let is = |line: &&Vec<String>| line[..3] == [program, policy, "4"];
        runs.iter().find(is).unwrap()[12].parse::<f64>().unwrap()
    };
    assert_eq!(saved("mm", "normal"), 0.0);
    // The rows of B are read in sequence, which is easy to predict.
    assert!(saved("mm", "ainori1") > 30.0);
    is_drawn(&out, "ainori.svg");
    let real = lines(&out, "ainori-real.csv");
    assert_eq!(real.len(), 4 * 5, "programs and policies");
    for policy in ["normal", "ainori1"] {
        let mm = real.iter().find(|line| line[0] == "mm" && line[2] == policy).unwrap();
        assert_eq!(mm[3], mm[4], "the simulator knows how often pages are sent");
    }
    lines(&out, "ainori-targets.csv");
}

#[test]
fn fcp_compares_its_protocols_with_plain_memory_and_sockets() {
    let out = quick(&["fcp"]);
    let times = lines(&out, "fcp.csv");
    for way in ["vcl", "fcp", "fcp-plus", "fcp2", "fcp2-space", "udp", "tcp", "unix"] {
        let of_way = times.iter().filter(|line| line[3] == way && line[2] == "4096");
        assert_eq!(of_way.count(), 1, "unchanged buffers of 4096 bytes by {way}");
    }
    let senders = times.iter().filter(|line| line[0] == "senders");
    assert_eq!(senders.count(), 3 * 5, "three protocols, five numbers of senders");
    let targets = lines(&out, "fcp-targets.csv");
    assert!(targets.iter().all(|line| line[6] != "not measured"), "{targets:?}");
    is_drawn(&out, "fcp.svg");
}

#[test]
fn ofi_compares_our_provider_with_libfabrics_own() {
    let out = quick(&["ofi"]);
    let times = lines(&out, "ofi.csv");
    for (way, count) in [("line", 1), ("nagaya", 6), ("shm", 6)] {
        assert_eq!(times.iter().filter(|line| line[2] == way).count(), count, "{way}: {times:?}");
    }
    let targets = lines(&out, "ofi-targets.csv");
    assert!(targets.iter().all(|line| line[6] != "not measured"), "{targets:?}");
}

#[test]
fn delegate_compares_requests_with_a_line_and_writes_with_direct_ones() {
    let out = quick(&["delegate"]);
    let times = lines(&out, "delegate.csv");
    for (way, count) in [("line", 1), ("empty", 3), ("direct", 2), ("delegated", 2)] {
        assert_eq!(times.iter().filter(|line| line[0] == way).count(), count, "{way}: {times:?}");
    }
    let system = lines(&out, "delegate-system.csv");
    for (what, places) in [("send", 2), ("put", 2), ("allreduce", 1), ("alltoall", 1)] {
        for way in ["direct", "delegated"] {
            let count = system.iter().filter(|line| line[0] == what && line[2] == way).count();
            // Slow cores need the permission to make control groups.
            assert!(count >= places, "{what} {way}: {system:?}");
        }
    }
    let targets = lines(&out, "delegate-targets.csv");
    assert!(targets.iter().all(|line| line[6] != "not measured"), "{targets:?}");
}

#[test]
fn pvm_runs_one_binary_under_stock_pvm_and_ours() {
    let out = quick(&["pvm"]);
    let times = lines(&out, "pvm.csv");
    let measured = |what: &str, tasks: &str, bytes: &str, way: &str| {
        times.iter().any(|line| line[..4] == [what, tasks, bytes, way])
    };
    for way in ["stock-daemon", "stock-direct", "nagaya", "nagaya-daemon"] {
        for what in ["xdr-fresh", "inplace-unchanged", "loopback"] {
            assert!(measured(what, "2", "4096", way), "{what} by {way}");
        }
        assert!(measured("stream", "5", "4096", way), "four senders by {way}");
    }
    for way in ["stock-daemon", "stock-direct", "nagaya"] {
        assert!(measured("barrier", "4", "0", way) && measured("reduce", "4", "64", way), "{way}");
    }
    assert!(measured("spawn", "1", "0", "stock-daemon") && measured("notice", "1", "0", "nagaya"));
    assert!(measured("inplace-fresh", "2", "4", "openmpi"));
    lines(&out, "pvm-targets.csv");
    is_drawn(&out, "pvm.svg");
}

#[test]
fn late_receivers_are_compared_for_all_mpis() {
    let figures = lines(&quick(&["late"]), "late.csv");
    // Five MPIs, two calls, sizes from 1 to 256 KB.
    assert_eq!(figures.len(), 5 * 2 * 9, "{figures:?}");
}

#[test]
fn kernels_compare_all_mpis() {
    let out = quick(&["kernels"]);
    let figures = lines(&out, "kernels.csv");
    // Five MPIs, four kernels, each with its loop and its whole job.
    assert_eq!(figures.len(), 5 * 4 * 2, "{figures:?}");
    let machine = fs::read_to_string(out.join("machine.txt")).unwrap();
    assert!(machine.lines().any(|line| line.starts_with("kind ") && line.contains("family")));
}

/// Writes a program that prints `script`'s output, as a rank of an MPI program would.
fn a_program(name: &str, script: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program.to_str().unwrap().to_string()
}

#[test]
fn a_job_s_figures_are_compared() {
    let program =
        a_program("table", "echo '# Size  Avg'; echo '4  2.5'; echo '8  5.0'; echo right");
    let words = ["job", "--ranks", "1", "--column", "2", "--expect", "right", "--", &program];
    let figures = lines(&quick(&words), "job.csv");
    let names: Vec<_> = figures.iter().map(|line| line[3].as_str()).collect();
    assert_eq!(names, ["4", "8", "whole mpirun; s"]);
    assert!(figures[..2].iter().all(|line| line[10] == "1.000000"), "{figures:?}");
}

#[test]
fn a_wrong_result_under_nagaya_is_an_error_and_no_figure() {
    // Open MPI tells a rank the command that mpirun has started.
    let wrong = "case $OMPI_COMMAND in *nagaya) echo wrong;; *) echo right;; esac";
    let program = a_program("wrong", wrong);
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("quick-wrong");
    let _ = fs::remove_dir_all(&out);
    let mut command = bench();
    command.args(["--quick", "--out"]).arg(&out).args(["job", "--ranks", "1"]);
    let output = command.args(["--expect", "right", "--", &program]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("has not printed `right`"), "{text}");
    assert!(!out.join("job.csv").exists());
}

#[test]
fn spawn_syscall_and_pagetables_leave_their_tables() {
    for topic in ["spawn", "syscall", "pagetables", "net"] {
        let out = quick(&[topic]);
        lines(&out, &format!("{topic}.csv"));
        if topic == "spawn" {
            assert_eq!(lines(&out, "spawn-jobs.csv").len(), 4);
            assert_eq!(lines(&out, "forks.csv").len(), 6);
        }
    }
}

#[test]
fn a_wrong_argument_gets_a_message() {
    for words in [&["pingpong", "--sizes", "7"][..], &["copy", "--loops", "teleport"]] {
        let output = bench().args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && !said.contains("panicked"), "{words:?}: {said}");
    }
}

#[test]
fn two_sets_of_results_are_compared() {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compare");
    let _ = fs::remove_dir_all(&base);
    let set = |name: &str, processor: &str, csv: &str| {
        let directory = base.join(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("machine.txt"), format!("processor     {processor}\n")).unwrap();
        fs::write(directory.join("dsm.csv"), format!("step,us,us_min,us_max\n{csv}")).unwrap();
        directory
    };
    let a = set("a", "AMD", "lock,10.0,9.0,11.0\nbarrier,5.0,4.9,5.1\n");
    let b = set("b", "Intel", "lock,20.0,19.0,21.0\nbarrier,5.1,5.0,5.2\n");
    let compare = |a: &Path, b: &Path| bench().arg("compare").args([a, b]).output().unwrap();
    let output = compare(&a, &b);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("AMD") && text.contains("Intel"), "{text}");
    assert!(text.contains("2 results, in B 1 are higher and 0 lower"), "{text}");
    assert!(text.contains("lock") && text.contains("2.00") && !text.contains("barrier"), "{text}");
    fs::write(b.join("dsm.csv"), "what\nnothing\n").unwrap();
    let output = compare(&a, &b);
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && line.contains("no result in common"), "{line}");
}
