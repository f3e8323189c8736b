//! Programs that are linked to fixed addresses, such as Debian's python3 and most output of RHEL's
//! compilers: each is a task with its own page tables.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nagaya_tests::messages::of_program_are_single_copies;
use nagaya_tests::mpi::{ALL, INTEL_MPI, OPEN_MPI_4};
use nagaya_tests::{
    Cmd, WorkDir, exec, job, nagaya, program, same_as_plain, scratch_dir, seed, tasks,
};

/// Debian's own, which is one of them.
const PYTHON: &str = "/usr/bin/python3";

/// A C program, linked to fixed addresses.
fn fixed(source: &str, libraries: &[&str]) -> PathBuf {
    let flags = program::library_flags(libraries);
    let flags: Vec<&str> =
        ["-pthread", "-no-pie"].into_iter().chain(flags.iter().map(String::as_str)).collect();
    program::c_with(source, &flags)
}

#[test]
fn copies_between_them_equal_the_kernels() {
    let seed = seed().to_string();
    for signals in ["default", "caught"] {
        let arguments = |dir: &Path| {
            let dir = dir.to_str().expect("UTF-8").to_owned();
            ["with_peer".to_owned(), dir, seed.clone(), "600".to_owned(), signals.to_owned()]
        };
        let (plain, ours) = (WorkDir::new(), WorkDir::new());
        let half = |id: &str| {
            let command = Cmd::new(program::c("copies.c")).args(arguments(plain.path()));
            command.env("NAGAYA_TASK_ID", id)
        };
        let other = half("1").spawn();
        let text = half("0").run().ok();
        other.wait().ok();
        tasks(2, fixed("copies.c", &[])).args(arguments(ours.path())).run().prints(&text);
    }
}

#[test]
fn others_see_what_they_have() {
    let program = fixed("domains.c", &["pvas"]);
    for case in ["copies", "unmaps", "demand"] {
        let run = nagaya("run").args(["--domains", "all:1,all:1"]).arg(&program).arg(case);
        let output = run.time_limit(Duration::from_secs(60)).run();
        assert!(output.status.success(), "{case}: {output}");
    }
}

/// A program that owns a space, and starts itself as its tasks.
#[test]
fn one_that_owns_a_space_starts_tasks_of_itself() {
    let program = fixed("domain_owner.c", &["pvas"]);
    for case in ["arguments", "children", "refused", "again"] {
        let output = Cmd::new(&program).arg(case).time_limit(Duration::from_secs(60)).run();
        assert!(output.status.success(), "{case}: {output}");
    }
}

/// The keeper of its domains is libpvas as a program, which has no other use.
#[test]
fn libpvas_is_no_program_for_others() {
    let library = program::library("pvas");
    let output = Cmd::new("/lib64/ld-linux-x86-64.so.2").arg(library).run();
    assert_eq!(output.code(), 1, "{output}");
    assert_eq!(output.stderr, "libpvas: this library is a program for libpvas itself only\n");
}

#[test]
fn a_fork_has_memory_of_its_own() {
    let program = fixed("shared.c", &["pvas"]);
    for case in ["fork_gives_memory_of_its_own", "clone_with_a_stack_is_a_fork"] {
        let plain = Cmd::new(&program).arg(case).run().ok();
        tasks(2, &program).arg(case).run().prints(&plain.repeat(2));
    }
}

#[test]
fn static_ones_and_interpreters_of_scripts_run() {
    for flags in [&["-no-pie", "-fno-pie"][..], &["-static", "-no-pie"]] {
        let program = program::c_with("print_user.c", flags);
        let dir = WorkDir::new();
        let script = dir.write_executable("script", format!("#!{}\n", program.display()));
        for path in [&program, &script] {
            same_as_plain(&[path.to_str().expect("UTF-8")]).ends_with(0);
        }
    }
}

#[test]
fn common_blocks_of_fortran_belong_to_their_task() {
    let program = program::build("gfortran", "common.f90", &["-no-pie"]);
    let text = same_as_plain(&[program.to_str().expect("UTF-8")]).ok();
    tasks(4, program).run().prints(&text.repeat(4));
}

#[test]
fn messages_of_all_mpis_are_single_copies() {
    for mpi in ALL {
        let program = mpi.compile_with("mpi_messages.c", &["-no-pie"]);
        let dir = WorkDir::new();
        let done = dir.join("done");
        of_program_are_single_copies(mpi, &program, &done, Path::to_path_buf, |command| command);
    }
}

#[test]
fn python_computes_with_numpy_side_by_side() {
    let work = program::source_dir().join("numpy_work.py");
    tasks(2, PYTHON).arg(work).run().prints(&"numpy is right\n".repeat(2));
}

#[test]
fn python_forks_and_starts_programs() {
    let script = "import multiprocessing, subprocess\n\
                  if __name__ == '__main__':\n\
                  \x20   pool = multiprocessing.get_context('fork').Pool(2)\n\
                  \x20   print(pool.map(abs, [-1, -2, -3]))\n\
                  \x20   print(subprocess.check_output(['echo', 'said']).decode())\n";
    tasks(1, PYTHON).args(["-c", script]).run().prints("[1, 2, 3]\nsaid\n\n");
}

#[test]
fn mpi4py_under_open_mpi_sends_numpys_arrays() {
    let work = program::source_dir().join("mpi_work.py");
    let exec = nagaya("exec").arg(PYTHON).arg(work);
    OPEN_MPI_4.launch(2).command(exec).run().prints("Open MPI: 2 ranks agree\n");
}

#[test]
fn the_stock_intel_mpi_benchmarks_run() {
    let target = scratch_dir().ancestors().nth(2).expect("the target directory");
    let program = target.join("mpi/impi-rt/bin/IMB-MPI1");
    assert!(program.exists(), "{} is missing: run scripts/deps", program.display());
    let options = ["-iter", "20", "-npmin", "2", "PingPong", "Allreduce"];
    let exec = nagaya("exec").arg(program).args(options);
    let text = INTEL_MPI.launch(2).command(exec).run().ok();
    for benchmark in ["PingPong", "Allreduce"] {
        assert!(text.contains(&format!("# Benchmarking {benchmark}")), "{text}");
    }
    assert!(text.contains("4194304"), "all sizes: {text}");
}

/// A job whose first program can share page tables has made its space for those.
#[test]
fn later_starts_have_a_space_of_their_own() {
    let job = job();
    let stay = |program: &Path| {
        let mut task = exec(&job, program).arg("stay").spawn();
        let line = task.wait_for_lines(1).remove(0);
        (task, line.split("owner ").nth(1).expect("an owner").to_owned())
    };
    let (other, late) = (program::c_pvas("print_task.c"), fixed("print_task.c", &["pvas"]));
    let tasks = [stay(&other), stay(&late), stay(&late), stay(&other)];
    let owners: Vec<_> = tasks.iter().map(|(_, owner)| owner).collect();
    assert_eq!((owners[0], owners[1]), (owners[3], owners[2]));
    assert_ne!(owners[0], owners[1]);
    for job in [job.clone(), format!("{job}.fixed")] {
        assert_eq!(nagaya_tests::tasks_of(&job).len(), 2, "{job}");
    }
    exec(&job, PYTHON).args(["-c", "print(7)"]).run().prints("7\n");
    // Other errors are reported once.
    exec(&job, fixed("print_task.c", &["pvas"]).with_extension("c"))
        .run()
        .refused(127, &["print_task.c"]);
}

#[test]
fn xpmem_attaches_memory_of_fixed_address_programs() {
    for program in [
        fixed("xpmem_static.c", &["xpmem", "pvas"]),
        program::c_with_libraries("xpmem_static.c", &["xpmem", "pvas"]),
    ] {
        tasks(2, program).time_limit(Duration::from_secs(60)).run().ok();
    }
}
