//! `nagaya try` and `nagaya exec --report` for jobs on several hosts: network namespaces under each
//! MPI's launcher, and the nodes of a Slurm cluster.

use std::path::Path;
use std::time::Duration;

use nagaya_tests::mpi::{self, MPICH_4, Mpi, OPEN_MPI_4};
use nagaya_tests::nodes::{NAMES, Nodes, Shares};
use nagaya_tests::slurm::Slurm;
use nagaya_tests::{Cmd, WorkDir, nagaya, skip, tool};
use serde_json::Value;

const NEEDS_ROOT: &str = "only root can make network namespaces";
/// Time limit of the four runs of an attempt.
const LIMIT: Duration = Duration::from_secs(300);
/// Bytes of each message of `mpi_pairs.c`.
const MESSAGE: u64 = 256 << 10;

/// `nagaya try` with one round of a job.
fn attempt(report: &Path, job: Cmd) -> Cmd {
    let attempt = nagaya("try").args(["--rounds", "1", "--compare", "--report"]).arg(report);
    attempt.arg("--").command(job).time_limit(LIMIT)
}

/// A job of four ranks, two on each of two nodes.
fn launch(nodes: &Nodes, mpi: Mpi) -> Cmd {
    let launcher = mpi.launch_on([NAMES[0], NAMES[1]], &nodes.agent());
    launcher.arg(mpi.compile("mpi_pairs.c"))
}

#[track_caller]
fn json(file: &Path) -> Value {
    let text = std::fs::read_to_string(file).expect("the report");
    serde_json::from_str(&text).expect("JSON")
}

/// Bytes of the messages to such ranks.
fn bytes(counts: &Value, to: &str) -> u64 {
    let rows = counts["total"]["messages"].as_array().expect("rows").iter();
    let these = rows.filter(|row| row["where"] == to);
    these.map(|row| row["bytes"].as_u64().expect("a number")).sum()
}

/// Checks the counts of `mpi_pairs` on two nodes with two ranks each.
#[track_caller]
fn are_those_of_two_nodes(counts: &Value) {
    for (member, wanted) in [("ranks", 4), ("ranks_counted", 4), ("nodes", 2)] {
        assert_eq!(counts[member], wanted, "{member}: {counts:#}");
    }
    // Each rank has one other on its node, and two on the other node.
    assert_eq!(bytes(counts, "node"), 4 * MESSAGE, "{counts:#}");
    assert_eq!(bytes(counts, "other_node"), 8 * MESSAGE, "{counts:#}");
}

fn copies(counts: &Value) -> u64 {
    counts["total"]["copies_in_user_space"]["bytes"].as_u64().expect("a number")
}

fn of_two_hosts(mpi: Mpi) {
    println!("{}", mpi.name);
    let Some(nodes) = Nodes::new(Shares::Files) else {
        return skip(NEEDS_ROOT);
    };
    let file = nodes.dir().join("report.json");
    are_counted(&nodes.on(0, attempt(&file, launch(&nodes, mpi))).run().ok(), &file);
    nodes.all_is_gone();
}

/// Checks the verdict and the report on `mpi_pairs` on two nodes with two ranks each.
#[track_caller]
fn are_counted(output: &str, file: &Path) {
    let first = output.lines().next().expect("a verdict");
    assert!(first.contains(" % of the time in messages; "), "{output}");
    assert!(first.ends_with("copies in user space: yes"), "{output}");
    for line in ["4 within the node (1.0 MiB)\n", "8 between nodes (2.0 MiB)\n"] {
        assert!(output.contains(&format!("messages        {line}")), "{output}");
    }
    assert!(output.contains("output          the same\n"), "{output}");
    let report = json(file);
    are_those_of_two_nodes(&report["without"]["counts"]);
    are_those_of_two_nodes(&report["counted_with"]);
    assert_eq!(copies(&report["without"]["counts"]), 0, "{report:#}");
    // Some MPIs also make a few tiny copies, to test if they can.
    let copied = copies(&report["counted_with"]);
    assert!((4 * MESSAGE..5 * MESSAGE).contains(&copied), "{report:#}");
}

#[test]
fn each_launcher_tries_a_job_on_two_hosts() {
    mpi::ALL.into_iter().for_each(of_two_hosts);
}

/// A directory that only the first node has: there is an empty file system on the second.
fn only_on_the_first(nodes: &Nodes) -> std::path::PathBuf {
    let directory = nodes.dir().join("local");
    std::fs::create_dir(&directory).expect("a new directory");
    let mount = Cmd::new(tool("mount")).args(["-t", "tmpfs", "tmpfs"]).arg(&directory);
    nodes.on(1, mount).run().ok();
    directory.join("tmp")
}

#[test]
fn ranks_on_hosts_without_the_directory_are_named_and_do_not_fail() {
    for mpi in [OPEN_MPI_4, MPICH_4] {
        let Some(nodes) = Nodes::new(Shares::Files) else {
            return skip(NEEDS_ROOT);
        };
        let local = only_on_the_first(&nodes);
        std::fs::create_dir(&local).expect("a new directory");
        let file = nodes.dir().join("report.json");
        let sessions = ("OMPI_MCA_orte_tmpdir_base", nodes.dir());
        let attempt = nodes.on(0, attempt(&file, launch(&nodes, mpi)).env(sessions.0, sessions.1));
        let output = attempt.env("TMPDIR", &local).run().ok();
        let why = format!("counted         2 of 4 ranks: not all nodes have {}", local.display());
        assert!(output.contains(&why), "{output}");
        assert!(output.contains("messages        2 within the node (512.0 KiB)\n"), "{output}");
        assert!(output.contains("messages        4 to ranks of unknown nodes"), "{output}");
        let report = json(&file);
        for counts in [&report["without"]["counts"], &report["counted_with"]] {
            assert_eq!(counts["ranks_counted"], 2, "{counts:#}");
        }
        let left = std::fs::read_dir(&local).expect("the directory").count();
        assert_eq!(left, 0, "nothing is left in {}", local.display());

        // By itself, nagaya exec reports it from the node concerned.
        let file = local.join("report.json");
        let exec = nagaya("exec").arg("--report").arg(&file).arg(mpi.compile("mpi_pairs.c"));
        let launcher = mpi.launch_on([NAMES[0], NAMES[1]], &nodes.agent()).command(exec);
        let launcher = launcher.env(sessions.0, sessions.1).time_limit(LIMIT);
        let output = nodes.on(0, launcher).run();
        let line = "No such file or directory (os error 2): the ranks of node2 are not counted";
        assert_eq!(output.stderr.matches(line).count(), 1, "{output}");
        output.prints("4 ranks\n");
        assert_eq!(json(&file)["ranks_counted"], 2);
    }
}

/// Without TMPDIR the counts are in the working directory, which the nodes share; /tmp is not.
#[test]
fn counts_arrive_by_the_working_directory() {
    let Some(nodes) = Nodes::new(Shares::Files) else {
        return skip(NEEDS_ROOT);
    };
    let work = WorkDir::new();
    let mount = Cmd::new(tool("mount")).args(["-t", "tmpfs", "tmpfs", "/tmp"]);
    nodes.on(1, mount).run().ok();
    let file = nodes.dir().join("report.json");
    let sessions = ("OMPI_MCA_orte_tmpdir_base", nodes.dir());
    let job = launch(&nodes, OPEN_MPI_4);
    let attempt = attempt(&file, job).env(sessions.0, sessions.1);
    nodes.on(0, attempt).env_remove("TMPDIR").dir(work.path()).run().ok();
    let report = json(&file);
    are_those_of_two_nodes(&report["without"]["counts"]);
    are_those_of_two_nodes(&report["counted_with"]);
    let left = std::fs::read_dir(work.path()).expect("the directory").count();
    assert_eq!(left, 0, "nothing is left in {}", work.path().display());
}

/// srun starts the ranks of Open MPI by PMIx, and those of MPICH by PMI-2.
#[test]
fn srun_tries_a_job_on_two_hosts() {
    let Some(nodes) = Nodes::new(Shares::Files) else {
        return skip(NEEDS_ROOT);
    };
    let slurm = Slurm::start_on(&nodes);
    for (mpi, interface) in [(OPEN_MPI_4, "pmix"), (MPICH_4, "pmi2")] {
        println!("{}", mpi.name);
        let file = nodes.dir().join("report.json");
        let srun = Cmd::new(tool("srun")).args([&format!("--mpi={interface}"), "-N2", "-n4"]);
        let attempt = attempt(&file, srun.arg(mpi.compile("mpi_pairs.c")));
        are_counted(&nodes.on(0, attempt).env("SLURM_CONF", slurm.conf()).run().ok(), &file);
    }
}

/// A job whose nodes all lack the directory, as one that is started from a login node.
#[test]
fn a_directory_that_no_rank_has_is_named() {
    let Some(nodes) = Nodes::new(Shares::Files) else {
        return skip(NEEDS_ROOT);
    };
    let local = only_on_the_first(&nodes);
    std::fs::create_dir(&local).expect("a new directory");
    let launcher = MPICH_4.launcher_path();
    let job = Cmd::new(launcher).args(["-hosts", "node2:2", "-launcher", "ssh", "-launcher-exec"]);
    let job = job.arg(nodes.agent()).args(["-n", "2"]).arg(MPICH_4.compile("mpi_pairs.c"));
    let attempt = attempt(&nodes.dir().join("report.json"), job);
    let output = nodes.on(0, attempt).env("TMPDIR", &local).run();
    let remedy = "work in a directory that they share, or set TMPDIR to one";
    output.refused(125, &["with Nagaya, counting", "No such file or directory", remedy]);
}
