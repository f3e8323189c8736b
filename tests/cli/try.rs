//! `nagaya try` and `nagaya exec --report`: counts of an MPI job's messages, and the verdict.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nagaya_tests::mpi::{
    self, INTEL_MPI, INTEL_MPI_ABI, MPICH_4, MPICH_5, MPICH_5_ABI, Mpi, OPEN_MPI_4, OPEN_MPI_5,
};
use nagaya_tests::{Cmd, WorkDir, bin_dir, nagaya};
use serde_json::Value;

fn json(file: &Path) -> Value {
    let text = std::fs::read_to_string(file).expect("the report");
    serde_json::from_str(&text).expect("JSON")
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {value:#}"))
}

/// The sum of a member over the rows that have these values.
fn sum(rows: &Value, wanted: &[(&str, Value)], member: &str) -> u64 {
    let rows = rows.as_array().expect("rows").iter();
    let these = rows.filter(|row| wanted.iter().all(|(name, value)| row[*name] == *value));
    these.map(|row| row[member].as_u64().expect("a number")).sum()
}

/// Checks the counts of `mpi_traffic`, which uses functions whose names end in `suffix`.
fn are_right(counts: &Value, suffix: &str) {
    assert_eq!(number(counts, "/ranks"), 2, "{counts:#}");
    assert_eq!(number(counts, "/ranks_counted"), 2, "{counts:#}");
    let total = &counts["total"];
    let of = |to: &str, from_bytes: u64, member: &str| {
        let wanted = [("where", to.into()), ("from_bytes", from_bytes.into())];
        sum(&total["messages"], &wanted, member)
    };
    assert_eq!((of("node", 512, "count"), of("node", 512, "bytes")), (10, 10_000), "{total:#}");
    assert_eq!((of("node", 1 << 20, "count"), of("node", 1 << 20, "bytes")), (5, 5 << 20));
    assert_eq!((of("node", 256, "count"), of("node", 256, "bytes")), (3, 1200), "{total:#}");
    assert_eq!((of("itself", 8, "count"), of("itself", 8, "bytes")), (1, 8), "{total:#}");
    let calls = |name: &str| {
        let row = [("function", name.into())];
        (sum(&total["calls"], &row, "count"), sum(&total["calls"], &row, "bytes"))
    };
    let partitioned = if suffix.is_empty() { 0 } else { 2 };
    assert_eq!(
        (of("node", 64, "count"), of("node", 64, "bytes")),
        (partitioned, partitioned * 100)
    );
    assert_eq!(sum(&total["messages"], &[], "count"), 19 + partitioned, "{total:#}");
    let counted = |name: &str| calls(&format!("{name}{suffix}"));
    assert_eq!(counted("MPI_Allreduce"), (14, 112), "{total:#}");
    assert_eq!(counted("MPI_Alltoallv"), (2, 40), "{total:#}");
    assert_eq!(counted("MPI_Alltoallw"), (2, 40), "{total:#}");
    assert_eq!(counted("MPI_Send"), (15, 10_000 + (5 << 20)), "{total:#}");
    assert_eq!(counted("MPI_Recv").0, 18, "{total:#}");
    // A persistent send; by both ranks two partitioned messages and two reductions of 8 bytes.
    let starts = if suffix.is_empty() { (3, 1200) } else { (11, 1200 + 400 + 32) };
    assert_eq!(calls("MPI_Start"), starts, "{total:#}");
    let peers = &counts["per_rank"][0]["peers"];
    assert_eq!(sum(peers, &[("rank", 1.into())], "count"), 18 + partitioned, "{peers:#}");
    let share = total["mpi_seconds"].as_f64().expect("s") / total["seconds"].as_f64().expect("s");
    assert!((0.0..=1.01).contains(&share), "{total:#}");
}

/// Counts with the functions whose names end in `suffix`.
fn counts_of_exec(mpi: Mpi, suffix: &str) -> Value {
    let dir = WorkDir::new();
    let file = dir.join("report.json");
    let flags: &[&str] = if suffix.is_empty() { &[] } else { &["-DLARGE_COUNTS"] };
    let program = mpi.compile_with("mpi_traffic.c", flags);
    let exec = nagaya("exec").arg("--report").arg(&file).arg(program);
    mpi.launch(2).command(exec).run().prints("sum 3\n");
    let report = json(&file);
    are_right(&report, suffix);
    let left: Vec<PathBuf> = std::fs::read_dir(dir.path())
        .expect("directory")
        .map(|entry| entry.expect("entry").path())
        .collect();
    assert_eq!(left, [file], "no file is left beside the report");
    assert_eq!(report["per_rank"][1]["task"], 1, "{report:#}");
    report
}

#[test]
fn exec_counts_the_messages_of_each_mpi() {
    for mpi in mpi::ALL {
        let report = counts_of_exec(mpi, "");
        assert!(number(&report, "/total/copies_in_user_space/bytes") >= 5 << 20, "{report:#}");
    }
}

#[test]
fn exec_counts_functions_with_64_bit_counts() {
    for mpi in [MPICH_4, MPICH_5, INTEL_MPI, MPICH_5_ABI, INTEL_MPI_ABI] {
        counts_of_exec(mpi, "_c");
    }
}

/// Functions that communicate, and yet are not counted: they only prepare something, or work within
/// a rank.
const NOT_COUNTED: &[&str] = &[
    "Abi_",
    "Abort",
    "Add_",
    "Address",
    "Aint_",
    "Alloc_mem",
    "Attr_",
    "Buffer_attach",
    "Cart",
    "Close_port",
    "Comm_",
    "Dims_",
    "Dist_",
    "Err",
    "File_",
    "Finalized",
    "Free_mem",
    "Get_",
    "Graph",
    "Grequest_",
    "Group_",
    "Info_",
    "Init",
    "Intercomm_",
    "Is_thread_main",
    "Keyval_",
    "Lookup_",
    "Message_",
    "Op_",
    "Open_port",
    "Pack",
    "Pcontrol",
    "Publish_",
    "Query_thread",
    "Reduce_local",
    "Register_",
    "Remove_",
    "Request_c2f",
    "Request_f2c",
    "Request_fromint",
    "Request_toint",
    "Session_",
    "Status_",
    "T_",
    "Test_cancelled",
    "Topo_",
    "Type_",
    "Unpack",
    "Unpublish_",
    "Win_allocate",
    "Win_attach",
    "Win_c2f",
    "Win_call_",
    "Win_create",
    "Win_delete_",
    "Win_detach",
    "Win_f2c",
    "Win_free",
    "Win_fromint",
    "Win_get_",
    "Win_set_",
    "Win_shared_query",
    "Win_toint",
    "Wtick",
    "Wtime",
];

/// Returns the library with an MPI's functions.
fn library_of(mpi: Mpi) -> PathBuf {
    let libraries = Cmd::new("ldd").arg(mpi.compile("mpi_traffic.c")).run().ok();
    let mut lines = libraries.lines().filter(|line| line.trim_start().starts_with("libmpi"));
    let path = lines.find_map(|line| line.split_whitespace().nth(2));
    path.unwrap_or_else(|| panic!("no MPI in {libraries}")).into()
}

/// Returns the names of the functions of MPI that a library exports, without prefix.
fn functions_of(library: &Path) -> BTreeSet<String> {
    let symbols = Cmd::new("nm").args(["-D", "--defined-only"]).arg(library).run().ok();
    let names = symbols.lines().filter_map(|line| line.split_whitespace().nth(2));
    names.filter_map(|name| name.strip_prefix("PMPI_")).map(str::to_owned).collect()
}

#[test]
fn all_functions_that_communicate_are_counted() {
    let counted = functions_of(&bin_dir().join("libnagaya_traffic.so"));
    for mpi in [MPICH_5_ABI, OPEN_MPI_5, OPEN_MPI_4] {
        let all = functions_of(&library_of(mpi));
        assert!(all.contains("Barrier"), "{all:?}");
        let missing: Vec<&String> = all
            .difference(&counted)
            .filter(|name| !NOT_COUNTED.iter().any(|start| name.starts_with(start)))
            .collect();
        assert!(missing.is_empty(), "{}: {missing:?}", mpi.name);
    }
}

#[test]
fn records_of_a_job_that_was_killed_do_not_count() {
    for mpi in [OPEN_MPI_4, MPICH_4] {
        let dir = WorkDir::new();
        let (file, records) = (dir.join("report.json"), dir.join("report.json.ranks"));
        std::fs::create_dir(&records).expect("a new directory");
        let counting = Cmd::new("env")
            .arg(format!("LD_PRELOAD={}", bin_dir().join("libnagaya_traffic.so").display()))
            .arg(format!("NAGAYA_TRAFFIC_DIR={}", records.display()))
            .arg(mpi.compile("mpi_pairs.c"));
        mpi.launch(4).command(counting).run().ok();
        assert_eq!(std::fs::read_dir(&records).expect("directory").count(), 4);
        let exec = nagaya("exec").arg("--report").arg(&file).arg(mpi.compile("mpi_traffic.c"));
        mpi.launch(2).command(exec).run().ok();
        are_right(&json(&file), "");
        assert!(!records.exists(), "{} is left", records.display());
    }
}

#[test]
fn exec_writes_its_report_as_text_for_people() {
    let dir = WorkDir::new();
    let file = dir.join("report");
    let program = OPEN_MPI_4.compile("mpi_traffic.c");
    let exec = nagaya("exec").arg("--report").arg(&file).arg(program);
    OPEN_MPI_4.launch(2).command(exec).run().ok();
    let text = std::fs::read_to_string(file).expect("the report");
    for part in ["2 ranks on 1 node", "copies in user space: ", "messages within the node: 18"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_report_that_cannot_be_written_is_refused_at_the_start() {
    let exec = nagaya("exec").args(["--report", "/nonexistent/report.json", "true"]);
    exec.run().refused(125, &["--report /nonexistent/report.json", "No such file"]);
}

#[test]
fn try_runs_a_job_both_ways_and_says_what_it_found() {
    for mpi in [OPEN_MPI_4, MPICH_4] {
        let dir = WorkDir::new();
        let file = dir.join("report.json");
        let program = mpi.compile("mpi_traffic.c");
        let job = mpi.launch(2).arg(program);
        let output = nagaya("try")
            .args(["--rounds", "2", "--compare", "--report"])
            .arg(&file)
            .arg("--")
            .command(job)
            .run()
            .ok();
        let first = output.lines().next().expect("a verdict");
        assert!(first.contains(" % of the time in messages within the node; "), "{output}");
        assert!(first.ends_with("copies in user space: yes"), "{output}");
        assert!(output.contains("output          the same\n"), "{output}");
        let report = json(&file);
        are_right(&report["without"]["counts"], "");
        are_right(&report["counted_with"], "");
        let copies = "/total/copies_in_user_space/count";
        assert_eq!(number(&report["without"]["counts"], copies), 0);
        assert!(number(&report["counted_with"], copies) >= 5, "{report:#}");
        for side in ["without", "with"] {
            assert_eq!(report[side]["seconds"].as_array().map(Vec::len), Some(2), "{report:#}");
        }
        assert_eq!(report["output"]["result"], "same");
    }
}

#[test]
fn try_says_which_line_of_the_output_differs() {
    let program = OPEN_MPI_4.compile("mpi_traffic.c");
    let attempt = |compare: &[&str]| {
        let job = OPEN_MPI_4.launch(2).arg(&program).arg("differ");
        nagaya("try").args(["--rounds", "1"]).args(compare).arg("--").command(job).run()
    };
    let output = attempt(&[]).ok();
    assert!(output.contains("differs: without \"PID "), "{output}");
    let output = attempt(&["--compare"]);
    assert_eq!(output.code(), 1, "{output}");
}

#[test]
fn try_names_the_run_that_failed() {
    let job = OPEN_MPI_4.launch(2).args(["sh", "-c", "echo out of luck >&2; exit 3"]);
    let output = nagaya("try").args(["--rounds", "1", "--"]).command(job).run();
    output.refused(125, &["without Nagaya", "status 3", "out of luck"]);
}

#[test]
fn try_refuses_a_program_without_a_launcher() {
    let output = nagaya("try").args(["--", "true"]).run();
    output.refused(125, &["true is no launcher", "--span"]);
    let output = nagaya("try").args(["--", "no-such-launcher", "-n", "2", "true"]).run();
    output.refused(127, &["no-such-launcher"]);
}

#[test]
fn programs_without_mpi_are_timed_and_not_counted() {
    let job = OPEN_MPI_4.launch(2).arg("true");
    let output = nagaya("try").args(["--rounds", "1", "--"]).command(job).run().ok();
    assert!(output.contains("not counted: no MPI program"), "{output}");
    assert!(output.contains("copies in user space: unknown"), "{output}");
}

#[test]
fn a_share_is_claimed_only_where_messages_were_counted() {
    let program = OPEN_MPI_4.compile("mpi_traffic.c");
    let job = OPEN_MPI_4.launch(2).arg(program).arg("idle");
    let output = nagaya("try").args(["--rounds", "1", "--"]).command(job).run().ok();
    assert!(output.contains("messages        none was counted: "), "{output}");
    assert!(!output.contains(" % of the time"), "{output}");
}

#[test]
fn try_compares_one_node_with_several() {
    let output = nagaya("try").args(["--rounds", "1", "--span", "2", "--", "seq", "3"]).run().ok();
    let first = output.lines().next().expect("a verdict");
    assert!(first.starts_with("one node -> 2 nodes: "), "{output}");
    assert!(output.contains("output          the same\n"), "{output}");
}

#[test]
fn long_runs_report_their_progress() {
    let attempt = |progress: &str| {
        let job = OPEN_MPI_4.launch(1).args(["sleep", "2.5"]);
        let attempt = nagaya("try").args(["--rounds", "1", "--"]).command(job);
        attempt.env("NAGAYA_PROGRESS", progress).run()
    };
    let output = attempt("1");
    let line = output.stderr.lines().next().unwrap_or_default();
    assert!(line.starts_with("nagaya: try: without Nagaya, counting (2 s)"), "{output}");
    assert_eq!(attempt("").stderr, "", "no progress where there is no terminal");
}
