//! Requirements of JIAJIA's programs besides the calls of 2.1: its variables, calls of later
//! versions, Fortran, and ends without jia_exit.

use std::path::PathBuf;
use std::time::Duration;

use nagaya_tests::mpi::INTEL_MPI;
use nagaya_tests::program::{build, c_with_libraries, include_dir, library_flags, source_dir};
use nagaya_tests::{Cmd, Output, WorkDir, nagaya, tool};

/// Time limit of a job.
const LIMIT: Duration = Duration::from_secs(120);

fn program(name: &str) -> PathBuf {
    c_with_libraries(&format!("dsm/{name}.c"), &["jia"])
}

/// A job of this many nodes, and one of tasks of one node.
fn jobs(tasks: usize) -> [Cmd; 3] {
    let mpirun = Cmd::new(tool("mpirun.openmpi")).args(["--oversubscribe", "-n"]);
    let run = nagaya("run").args(["--nodes", "1", "-n"]);
    let both = nagaya("run").args(["--nodes", "2", "-n", &(tasks + 1).to_string()]);
    let of = |job: Cmd| job.arg(tasks.to_string()).time_limit(LIMIT);
    [of(mpirun), of(run), both.time_limit(LIMIT)]
}

#[test]
fn names_of_jiajia_2_1_and_later_are_there() {
    for tasks in [1, 2, 4] {
        for job in jobs(tasks) {
            let said = job.arg(program("names")).run().ok();
            assert_eq!(said, "names are right\n");
        }
    }
}

#[test]
fn an_assertion_of_jiajia_s_ends_the_job_with_its_message() {
    for job in jobs(2) {
        let output = job.arg(program("names")).arg("wrong").run();
        assert_ne!(output.code(), 0, "{output}");
        assert!(output.stderr.contains(": wrong by intent"), "{output}");
    }
}

/// A program's own assert, in all ways in which the header may come.
#[test]
fn programs_may_have_another_assert() {
    let work = WorkDir::new();
    for (name, beginning) in [
        ("before", "#include <assert.h>\n#include <jia.h>\n"),
        ("after", "#include <jia.h>\n#include <assert.h>\n"),
        (
            "none",
            "#define JIA_NO_ASSERT\n#include <jia.h>\nstatic int assert(int it) { return it; }\n",
        ),
    ] {
        let text = format!("{beginning}int main(void) {{ assert(jia_tasks() == 1); return 0; }}\n");
        let source = work.write(&format!("{name}.c"), text);
        let object = work.join(&format!("{name}.o"));
        let gcc = Cmd::new(tool("gcc")).args(["-Wall", "-Werror", "-c", "-o"]).arg(object);
        gcc.arg(format!("-I{}", include_dir().display())).arg(source).run().ok();
    }
}

/// The same program linked with JIAJIA's calls for one process in ordinary memory.
fn serial(name: &str) -> PathBuf {
    let calls = source_dir().join("dsm/serial.c").display().to_string();
    let include = format!("-I{}", include_dir().display());
    build("gcc", &format!("dsm/{name}.c"), &[&include, &calls, "-lm"])
}

#[test]
fn computations_give_the_same_as_a_serial_build() {
    let program = c_with_libraries("dsm/kernels.c", &["jia", "m"]);
    for kernel in ["ep", "is", "sor", "lu", "mm", "water"] {
        let expected = Cmd::new(serial("kernels")).arg(kernel).run().ok();
        assert!(expected.starts_with(&format!("{kernel}: ")), "{expected}");
        for tasks in [1, 2, 3] {
            for job in jobs(tasks) {
                assert_eq!(job.arg(&program).arg(kernel).run().ok(), expected, "{tasks} tasks");
            }
        }
    }
}

fn tasks_were_here(output: &Output, tasks: usize) {
    for task in 0..tasks {
        let line = format!("task {task} was here\n");
        assert_eq!(output.stdout.matches(&line).count(), 1, "{output}");
    }
}

#[test]
fn programs_that_end_without_jia_exit_keep_output_and_status() {
    for how in ["alone", "none"] {
        for (job, tasks) in jobs(3).into_iter().zip([3, 3, 4]) {
            let output = job.arg(program("ends")).arg(how).run();
            assert_eq!(output.code(), 0, "{output}");
            tasks_were_here(&output, tasks);
            let sum = format!("the sum is {}\n", tasks * (tasks + 1) / 2);
            let sums = if how == "alone" { tasks } else { tasks - 1 };
            assert_eq!(output.stdout.matches(&sum).count(), sums, "{output}");
            assert_eq!(output.stderr, "");
        }
    }
    // A launcher that counts processes that have not said that they end.
    let output = INTEL_MPI.launch(3).arg(program("ends")).arg("alone").time_limit(LIMIT).run();
    assert_eq!(output.code(), 0, "{output}");
    tasks_were_here(&output, 3);
    let alone = Cmd::new(program("ends")).arg("status").time_limit(LIMIT).run();
    assert_eq!((alone.code(), &*alone.stdout), (5, "task 0 was here\n"), "{alone}");
}

#[test]
fn a_task_that_others_wait_for_and_that_has_ended_ends_the_job() {
    for (how, words) in [
        ("status", "has ended without jia_exit, with status 5"),
        ("barrier", "has ended without jia_exit, and another task waits for it at a barrier"),
        ("message", "has ended without jia_exit, and another task waits for it for a message"),
        ("lock", "has ended without jia_exit, with lock 3"),
    ] {
        for (job, last) in jobs(3).into_iter().zip([2, 2, 3]) {
            let output = job.arg(program("ends")).arg(how).run();
            assert_ne!(output.code(), 0, "{how}: {output}");
            assert!(output.stderr.contains(&format!("task {last} {words}")), "{how}: {output}");
            let line = format!("task {last} was here\n");
            assert!(output.stdout.contains(&line), "{how}: {output}");
        }
    }
}

/// All litmus programs are right.
#[track_caller]
fn is_right(job: Cmd) {
    let printed = job.args(["all", "20"]).time_limit(LIMIT).run().ok();
    assert_eq!(printed.matches(" is right\n").count(), 15, "{printed}");
}

/// Their page tables are their own, so each is a node.
#[test]
fn programs_that_are_linked_to_fixed_addresses_share_memory() {
    let libraries = library_flags(&["jia"]);
    let flags: Vec<_> = libraries.iter().map(String::as_str).collect();
    let program = build("gcc", "dsm/litmus.c", &[&["-pthread", "-no-pie"], &flags[..]].concat());
    for job in jobs(3) {
        is_right(job.arg(&program));
    }
    let exec = nagaya("exec").arg(&program);
    is_right(Cmd::new(tool("mpirun.openmpi")).args(["--oversubscribe", "-n", "3"]).command(exec));
}

/// Tasks of a domain share page tables, and those of two domains do not.
#[test]
fn each_domain_of_a_space_is_a_node() {
    let domains = nagaya("run").args(["--domains", "all:2,all:2"]).arg(program("litmus"));
    is_right(domains);
}

#[test]
fn fortran_programs_share_memory() {
    let include = format!("-I{}", include_dir().display());
    let libraries = library_flags(&["jia"]);
    for flags in [&["-fcray-pointer"][..], &["-fcray-pointer", "-no-pie", "-O2"]] {
        let mut all = vec![include.as_str()];
        all.extend(flags);
        all.extend(libraries.iter().map(String::as_str));
        let program = build("gfortran", "dsm/fortran.f", &all);
        for (job, tasks) in jobs(3).into_iter().zip([3, 3, 4]) {
            let said = job.arg(&program).run().ok();
            let words: Vec<&str> = said.split_whitespace().collect();
            let ranks = (tasks * (tasks - 1) / 2).to_string();
            let wanted = ["sum", "4501500", "of", &tasks.to_string(), "ranks", &ranks];
            assert_eq!(words, wanted, "{flags:?}");
        }
    }
}
