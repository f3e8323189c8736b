//! OpenSHMEM between nodes: several spaces of one machine, and two machines (network namespaces)
//! under each launcher.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nagaya_tests::mpi::{ALL, MPICH_4, MPICH_5, Mpi, OPEN_MPI_4, OPEN_MPI_5};
use nagaya_tests::nodes::{NAMES, Nodes, Shares};
use nagaya_tests::remains::{MARK, Remains};
use nagaya_tests::slurm::Slurm;
use nagaya_tests::{Cmd, Output, chaos_rounds, kill, nagaya, program, seed, skip, wait_until};
use rustix::process::Signal;

/// Time limit of a job.
const LIMIT: Duration = Duration::from_secs(300);

/// A program of `programs/shmem/`, compiled by `oshcc`.
fn compiled(source: &str) -> PathBuf {
    let compiler = program::shmem_tool("oshcc");
    let compiler = compiler.to_str().expect("UTF-8");
    program::build(compiler, &format!("shmem/{source}"), &["-pthread", "-Wextra", "-Werror"])
}

/// `nagaya run` with `n` PEs in `nodes` spaces.
fn run(nodes: usize, n: usize, program: &Path) -> Cmd {
    let numbers = [nodes, n].map(|number| number.to_string());
    let run = nagaya("run").args(["--nodes", &numbers[0], "-n", &numbers[1]]);
    run.arg(program).time_limit(LIMIT)
}

/// All parts of `nodes.c` are right, of which `random` chooses the sizes.
fn is_right(job: Cmd, rounds: u32) -> Output {
    let seed = seed().to_string();
    let said = job.args([&seed, &rounds.to_string()]).run();
    let right = said.stdout.lines().filter(|line| line.ends_with(" is right"));
    assert!(right.count() == 10 && said.code() == 0, "{said}");
    said
}

#[test]
fn all_operations_between_two_spaces() {
    let program = compiled("nodes.c");
    for n in [2, 3, 4] {
        is_right(run(2, n, &program), 3);
    }
}

#[test]
fn all_operations_between_four_spaces_over_tcp() {
    is_right(run(4, 5, &compiled("nodes.c")).env("NAGAYA_NET", "tcp"), 2);
}

/// Large puts and gets are one-sided, and keep their order with messages.
#[test]
fn all_operations_over_ucx() {
    let over = |n, variable: (&str, &str)| {
        let job = run(2, n, &compiled("nodes.c")).env("NAGAYA_NET", "ucx-tcp");
        is_right(job.env(variable.0, variable.1).env("SHMEM_DEBUG", "1"), 2)
    };
    let said = over(2, ("NAGAYA_SEED", &seed().to_string()));
    let reached = said.stderr.lines().filter(|line| line.ends_with("is reached by RDMA"));
    assert_eq!(reached.count(), 2, "{said}");
    if let Some(libraries) = newer_ucx() {
        over(4, ("LD_LIBRARY_PATH", libraries.to_str().expect("UTF-8")));
    }
}

/// The directory of UCX 1.20, which has another protocol layer than Debian's 1.13. It comes with
/// Open MPI 5.
fn newer_ucx() -> Option<PathBuf> {
    let launcher = OPEN_MPI_5.launcher_path();
    let libraries = launcher.ancestors().nth(2).expect("a prefix").join("lib/openmpi");
    let found = libraries.join("libucp.so.0").exists();
    if !found {
        skip(&format!("{}: run scripts/deps", libraries.display()));
    }
    found.then_some(libraries)
}

#[test]
fn collective_operations_and_chapters_between_spaces() {
    let collectives = compiled("collectives.c");
    for (nodes, n) in [(2, 3), (3, 5)] {
        run(nodes, n, &collectives).arg(seed().to_string()).run().prints("collectives agree\n");
    }
    for chapter in ["moves", "signals", "statics", "setup", "unfinished"] {
        run(2, 3, &compiled("chapters.c")).arg(chapter).run().ok();
    }
}

/// Runs a job of four PEs on two nodes under a launcher.
fn on_two_nodes(mpi: Mpi, nodes: &Nodes, program: Cmd) -> Cmd {
    let launcher = mpi.launch_on([NAMES[0], NAMES[1]], &nodes.agent());
    nodes.on(0, launcher.command(program)).time_limit(LIMIT)
}

#[test]
fn all_launchers_on_two_nodes() {
    let Some(nodes) = Nodes::new(Shares::Files) else {
        return skip("only root can make network namespaces");
    };
    let (operations, collectives) = (compiled("nodes.c"), compiled("collectives.c"));
    for mpi in ALL {
        println!("{}", mpi.name);
        is_right(on_two_nodes(mpi, &nodes, Cmd::new(&operations)), 1);
        // They take a minute, and depend on no launcher.
        if mpi.name == OPEN_MPI_4.name {
            let exec = nagaya("exec").arg(&collectives).arg(seed().to_string());
            on_two_nodes(mpi, &nodes, exec).run().prints("collectives agree\n");
        }
    }
}

#[test]
fn with_mpi_on_two_nodes_in_either_order() {
    let Some(nodes) = Nodes::new(Shares::Files) else {
        return skip("only root can make network namespaces");
    };
    let flags = program::library_flags(&["nagaya-shmem"]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    for mpi in [OPEN_MPI_4, OPEN_MPI_5, MPICH_4, MPICH_5] {
        println!("{}", mpi.name);
        let program = mpi.compile_with("shmem/with_mpi.c", &flags);
        // PMIx must not be initialised before MPI_Init of Open MPI 5 (docs/shmem.md).
        let orders = if mpi.name == OPEN_MPI_5.name { &["mpi"][..] } else { &["mpi", "shmem"] };
        for first in orders {
            on_two_nodes(mpi, &nodes, Cmd::new(&program).arg(first)).run().prints("both\n");
        }
    }
}

#[test]
fn srun_on_two_nodes() {
    let (slurm, program) = (Slurm::start(&["n0", "n1"]), compiled("nodes.c"));
    for interface in ["pmix", "pmi2"] {
        let srun = slurm.client("srun").args([&format!("--mpi={interface}"), "-N", "2", "-n", "2"]);
        is_right(srun.arg(&program).env("UCX_TLS", "tcp,self").time_limit(LIMIT), 1);
    }
}

/// The line that reports a PE's end.
fn names_the_pe(output: &Output, pe: usize) {
    let ours: Vec<_> =
        output.stderr.lines().filter(|line| line.starts_with("nagaya-shmem: ")).collect();
    let ended = format!("PE {pe} ");
    let is_told = |line: &&str| line.contains(&ended) && line.contains(" has ended without");
    assert!(ours.len() == 1 && ours.iter().all(is_told), "{output}");
}

/// A PE is killed while all exchange data. All others end, and one line names it.
#[test]
fn a_pe_that_is_killed_ends_the_pes_of_all_nodes() {
    let mut random = fastrand::Rng::with_seed(seed());
    let program = compiled("killed.c");
    for round in 0..chaos_rounds(12) {
        let (nodes, n) = if round % 2 == 0 { (2, 4) } else { (3, 3) };
        let remains = Remains::new();
        let mut job = run(nodes, n, &program).env(MARK, remains.mark());
        // UCX before 1.14 aborts if a peer ends while it answers.
        if round % 3 == 2
            && let Some(libraries) = newer_ucx()
        {
            job = job.env("NAGAYA_NET", "ucx-tcp").env("LD_LIBRARY_PATH", libraries);
        }
        let mut job = job.spawn();
        let mut pes: Vec<(usize, i32)> = job
            .wait_for_lines(n)
            .iter()
            .map(|line| {
                let (pe, pid) = line.split_once(' ').expect("two numbers");
                (pe.parse().expect("a PE"), pid.parse().expect("a PID"))
            })
            .collect();
        pes.sort_unstable();
        std::thread::sleep(Duration::from_micros(random.u64(..30_000)));
        let (pe, pid) = pes[random.usize(..n)];
        kill(pid, Signal::KILL);
        let output = job.wait();
        assert_ne!(output.code(), 0, "{output}");
        names_the_pe(&output, pe);
        remains.none("a PE");
    }
}

#[test]
fn errors_and_exits_end_the_pes_of_all_nodes() {
    let program = compiled("errors.c");
    let of = |error: &str| run(2, 3, &program).arg(error).run();
    let output = of("exit").ends_with(42);
    assert_eq!(output.stderr, "", "{output}");
    for (error, line) in [
        ("pe", "shmem_long_p: PE 3 does not exist; the job has 3 PEs"),
        ("stack", "shmem_long_put: 0x"),
        ("end", "shmem_putmem: 1099511627776 bytes at 0x"),
        ("atomic", "shmem_long_atomic_inc: the object at 0x"),
        ("comparison", "shmem_long_wait_until: 17 is no comparison"),
    ] {
        let output = of(error).ends_with(1);
        let lines: Vec<_> = output.stderr.lines().collect();
        let wanted = format!("nagaya-shmem: PE 0: {line}");
        assert!(lines.len() == 1 && lines[0].starts_with(&wanted), "{error}: {output}");
    }
}

/// A node whose network fails counts as lost. All PEs end, and one line says so. MPICH's launcher
/// does not notice the failure: it waits for the node's answer, and the test ends it.
#[test]
fn a_node_that_is_cut_off_ends_the_job() {
    let Some(nodes) = Nodes::new(Shares::Files) else {
        return skip("only root can make network namespaces");
    };
    let mut job = on_two_nodes(MPICH_4, &nodes, Cmd::new(compiled("killed.c"))).spawn();
    job.wait_for_lines(4);
    nodes.cut(1);
    let have_ended = || (0..2).all(|node| nodes.tasks(node).is_empty());
    wait_until("the PEs of both nodes have ended", Duration::from_secs(60), have_ended);
    job.signal(Signal::KILL);
    let output = job.wait();
    let lines = output.stderr.lines().filter(|line| line.starts_with("nagaya-shmem: "));
    let lines: Vec<&str> = lines.collect();
    assert!(lines.len() == 1 && lines[0].contains("node is lost"), "{output}");
}
