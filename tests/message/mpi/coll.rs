//! Collective operations by Nagaya's library (LD_PRELOAD), in which ranks read their peers'
//! buffers in place.

use std::time::Duration;

use nagaya_tests::mpi::{
    INTEL_MPI_ABI, MPICH_4, MPICH_5, MPICH_5_ABI, Mpi, OPEN_MPI_4, OPEN_MPI_5,
};
use nagaya_tests::program::{build, c_with};
use nagaya_tests::remains::{MARK, Remains};
use nagaya_tests::{Cmd, bin_dir, kill, nagaya, nagaya_path, seed};
use rustix::process::Signal;

const TIME_LIMIT: Duration = Duration::from_secs(300);

/// The library, before the MPI of whatever runs.
fn with_library(command: Cmd) -> Cmd {
    command.env("LD_PRELOAD", bin_dir().join("libnagaya_coll.so")).time_limit(TIME_LIMIT)
}

fn tasks(mpi: Mpi, ranks: usize) -> Cmd {
    with_library(mpi.launch_tasks(ranks, mpi.compile("mpi_coll.c")))
}

fn case(mpi: Mpi, ranks: usize, name: &str) -> Cmd {
    tasks(mpi, ranks).arg(name)
}

/// More ranks than processors, where they leave them to each other.
fn many(mpi: Mpi) -> usize {
    if mpi.yields { 5 } else { 3 }
}

/// A program that looks for MPI's functions, by weak symbols or dlsym(3), finds the same as
/// without the libraries that stand before the MPI, be it linked to the MPI or a plug-in of a
/// program that is not. What it finds works, also below wrappers of its own.
pub fn has_the_functions_of_the_mpi_and_no_others(mpi: Mpi) {
    let linked = Cmd::new(mpi.compile("mpi_names.c"));
    let plugin = mpi.compile_with("mpi_names.c", &["-DPLUGIN", "-shared", "-fPIC"]);
    let host = Cmd::new(c_with("mpi_names.c", &["-DHOST", "-ldl"])).arg(plugin);
    for program in [linked, host] {
        let run = |command: Cmd| command.time_limit(TIME_LIMIT).run().ok();
        let without = run(mpi.launch(2).command(program.clone()));
        assert!(without.contains("PMPI_Alltoall weak dlsym\n"), "{without}");
        let [coll, traffic] = ["coll", "traffic"]
            .map(|name| bin_dir().join(format!("libnagaya_{name}.so")).display().to_string());
        let with =
            |libraries: &str| mpi.launch(2).args(["env", &format!("LD_PRELOAD={libraries}")]);
        for libraries in [&coll, &traffic, &format!("{traffic}:{coll}")] {
            assert_eq!(without, run(with(libraries).command(program.clone())), "{libraries}");
        }
        assert_eq!(without, run(with(&coll).arg(nagaya_path()).arg("exec").command(program)));
    }
}

/// Programs for the interface that MPI 5 standardises use the MPI's own operations.
#[test]
fn the_standard_abi_is_left_to_the_mpi() {
    for mpi in [MPICH_5_ABI, INTEL_MPI_ABI] {
        has_the_functions_of_the_mpi_and_no_others(mpi);
        let program = mpi.compile("mpi_collectives.c");
        with_library(mpi.launch_tasks(3, program)).run().prints("collectives agree\n");
    }
}

/// Random operations, buffers and communicators: the results are those of the MPI's own.
pub fn agrees_with_the_mpis_own(mpi: Mpi) {
    let place = case(mpi, 2, "place").env("NAGAYA_COLL_LOG", "1").run();
    let said = place.stderr.matches("nagaya-coll: operations of 2 ranks: in place").count();
    assert_eq!(said, 1, "{place}");
    place.prints("in place\n");
    let seed = seed().to_string();
    for (ranks, rounds) in [(2, "400"), (many(mpi), "150")] {
        let random = case(mpi, ranks, "random").args([&seed, rounds]);
        random.run().prints("both agree\n");
    }
    // All of MPI's, also those that it does not have.
    let program = mpi.compile("mpi_collectives.c");
    let ranks = if mpi.yields { 4 } else { 3 };
    with_library(mpi.launch_tasks(ranks, program)).run().prints("collectives agree\n");
}

/// What has each MPI bring large messages piece by piece, which both sides must call it for.
const PIECE_BY_PIECE: [(&str, &str); 4] = [
    ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
    ("OMPI_MCA_smsc", "^cma,xpmem,knem"),
    ("MPIR_CVAR_CH4_CMA_ENABLE", "0"),
    ("UCX_TLS", "posix,self"),
];

/// A rank that waits makes the MPI progress, threads do not disturb each other, outboxes are
/// reused, and errors are the MPI's.
pub fn goes_with_the_rest(mpi: Mpi) {
    for ranks in [2, many(mpi)] {
        let progress = case(mpi, ranks, "progress");
        progress.clone().run().prints("messages went on\n");
        let pieces = PIECE_BY_PIECE.into_iter();
        let progress = pieces.fold(progress, |command, (name, value)| command.env(name, value));
        progress.run().prints("messages went on\n");
        case(mpi, ranks, "ahead").run().prints("nobody is disturbed\n");
        case(mpi, ranks, "threads").run().prints("threads agree\n");
    }
    case(mpi, 2, "churn").run().prints("all have gone\n");
    case(mpi, 2, "errors").run().prints("errors are told\n");
}

/// A rank that never waits in an operation makes progress as well: what it has sent is delivered,
/// and its window read, while it calls nothing else.
pub fn finishes_what_is_behind(mpi: Mpi) {
    for ranks in [2, 3] {
        let behind = case(mpi, ranks, "behind");
        behind.clone().run().prints("messages went on\n");
        let pieces = PIECE_BY_PIECE.into_iter();
        let behind = pieces.fold(behind, |command, (name, value)| command.env(name, value));
        behind.run().prints("messages went on\n");
    }
}

/// A barrier in place makes the MPI progress: an epoch that ended before it is seen by the first
/// test after it. (MPICH 4.0 is left out: its put into such a window of 4 bytes never arrives, with
/// Nagaya and without.)
#[test]
fn a_test_after_a_barrier_in_place_sees_an_epoch_that_ended_before() {
    for mpi in [MPICH_5, OPEN_MPI_4, OPEN_MPI_5] {
        with_library(mpi.launch_tasks(2, mpi.compile("mpi_epochs.c")))
            .run()
            .prints("0 ends seen late\n");
    }
}

/// A rank that waits in a barrier in place answers one-sided operations without a nap before each.
#[test]
fn a_rank_in_a_barrier_in_place_serves_one_sided_operations() {
    for mpi in [MPICH_4, MPICH_5, OPEN_MPI_4, OPEN_MPI_5] {
        with_library(mpi.launch_tasks(2, mpi.compile("mpi_served.c")))
            .run()
            .prints("all were served\n");
    }
}

/// Buffers may be at absolute addresses, as MPICH's I/O passes them.
#[test]
fn buffers_in_place_may_be_at_absolute_addresses() {
    for mpi in [MPICH_4, MPICH_5, OPEN_MPI_4, OPEN_MPI_5] {
        with_library(mpi.launch_tasks(3, mpi.compile("mpi_bottom.c")))
            .run()
            .prints("absolute addresses work\n");
    }
}

/// A rank is killed while all are in operations: the launcher ends, and nobody remains.
pub fn a_rank_is_killed(mpi: Mpi) {
    let mut random = seed();
    for ranks in [2, 3] {
        let remains = Remains::new();
        let job = case(mpi, ranks, "forever").env(MARK, remains.mark());
        let mut job = job.time_limit(Duration::from_secs(60)).spawn();
        let pids = job.wait_for_pids(ranks);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_micros(random >> 48));
        kill(pids[usize::try_from(random % 2).expect("small")], Signal::KILL);
        let output = job.wait();
        assert_ne!(output.code(), 0, "{output}");
        // Wrong results would be said; nor do the others fail by what has vanished.
        assert!(!output.stderr.contains("not so"), "{output}");
        assert!(!output.stderr.contains("ignal 11"), "{output}");
        assert!(!output.stderr.contains("Segmentation"), "{output}");
        remains.none("a rank in an operation");
    }
}

/// Open MPI's functions for Fortran call those of C by their second names.
#[test]
fn programs_in_fortran_have_it_too() {
    let program = build("mpif90.openmpi", "coll.f90", &[]);
    let job = with_library(OPEN_MPI_4.launch_tasks(3, program)).env("NAGAYA_COLL_LOG", "1");
    // Libraries that are bound before ours make the dynamic linker say nothing.
    let job = job.env("LD_BIND_NOW", "1").run();
    assert_eq!(job.stderr, "nagaya-coll: operations of 3 ranks: in place\n", "{job}");
    job.prints("Fortran agrees\n");
}

/// Whoever is outside the space, with the library or without, is not waited for in vain.
#[test]
fn ranks_outside_the_space_use_the_mpis_own() {
    let mpi = OPEN_MPI_4;
    let program = mpi.compile("mpi_coll.c");
    with_library(mpi.launch(2).arg(&program).arg("place")).run().prints("by the MPI\n");
    let library = format!("LD_PRELOAD={}", bin_dir().join("libnagaya_coll.so").display());
    let inside = Cmd::new("env").arg(&library).command(nagaya("exec").arg(&program));
    let processes = [
        Cmd::new("env").arg(&library).arg(&program),
        Cmd::new(&program),
        // In the space, and without the library.
        nagaya("exec").arg(&program),
    ];
    for outside in processes {
        let job = |arguments: &[&str]| {
            let first = mpi.launch(2).command(inside.clone()).args(arguments);
            let both = first.args([":", "-n", "1"]).command(outside.clone()).args(arguments);
            both.time_limit(TIME_LIMIT).run()
        };
        job(&["place"]).prints("by the MPI\n");
        // Some communicators have no rank of those outside.
        job(&["random", &seed().to_string(), "150"]).prints("both agree\n");
    }
}
