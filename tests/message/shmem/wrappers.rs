//! `oshcc`, `oshc++` and `oshrun`: their command lines, and their choices.

use nagaya_tests::{Cmd, Output, WorkDir, nagaya, program};

fn shown(tool: &str, arguments: &str) -> String {
    let arguments = arguments.split_whitespace();
    Cmd::new(program::shmem_tool(tool)).args(arguments).run().ok().trim_end().to_owned()
}

#[test]
fn a_program_is_linked_and_an_object_is_not() {
    let (compile, link) = (shown("oshcc", "--showme:compile"), shown("oshcc", "--showme:link"));
    assert!(compile.starts_with("-I") && compile.ends_with("/include"), "{compile}");
    assert!(link.ends_with(" -lnagaya-shmem") && link.contains("-Wl,-rpath,/"), "{link}");
    for inputs in ["-o a a.c", "a.o -lm", "-x c -", ""] {
        let line = shown("oshcc", &format!("-show {inputs}"));
        let wanted = ["cc", &compile, inputs, &link].join(" ").replace("  ", " ");
        assert_eq!(line, wanted);
    }
    for inputs in ["-c a.c", "-E a.c", "-fsyntax-only -x c -", "--version", "-v", "-o a"] {
        assert_eq!(shown("oshcc", &format!("-show {inputs}")), format!("cc {compile} {inputs}"));
    }
    assert_eq!(shown("oshc++", "-show -c a.cc"), format!("c++ {compile} -c a.cc"));
}

#[test]
fn the_compiler_may_be_another_one() {
    let oshcc = || Cmd::new(program::shmem_tool("oshcc")).args(["-show", "-c", "a.c"]);
    let line = oshcc().env("NAGAYA_CC", "ccache gcc-12 -m64").run().ok();
    assert!(line.starts_with("ccache gcc-12 -m64 -I"), "{line}");
    let none = Cmd::new(program::shmem_tool("oshcc")).arg("a.c").env("NAGAYA_CC", "no-compiler");
    none.run().refused(127, &["no-compiler", "NAGAYA_CC"]);
}

#[test]
fn options_of_the_compiler_are_the_compiler_s() {
    // Under the names of the wrappers, also those that nagaya has.
    let version = shown("oshcc", "--version");
    assert!(version.contains("Free Software Foundation"), "{version}");
    assert!(nagaya("oshcc").arg("--help").run().ok().contains("Usage: nagaya oshcc"));
}

/// Returns the command line that `oshrun` chooses with these variables, if these commands exist.
fn chosen(arguments: &str, variables: &[&str], commands: &[&str]) -> Output {
    let dir = WorkDir::new();
    for name in commands {
        dir.write_executable(name, "#!/bin/sh\n");
    }
    let mut oshrun = Cmd::new(program::shmem_tool("oshrun")).arg("--show");
    for name in ["SLURM_JOB_ID", "SLURM_STEP_ID", "PBS_NODEFILE"] {
        oshrun = oshrun.env_remove(name);
    }
    for name in variables {
        oshrun = oshrun.env(name, "1");
    }
    oshrun.env("PATH", dir.path()).args(arguments.split_whitespace()).run()
}

#[track_caller]
fn chooses(arguments: &str, variables: &[&str], commands: &[&str], wanted: &str) {
    let line = chosen(arguments, variables, commands).ok();
    let command = format!("{wanted} ");
    assert!(line.starts_with(&command) || line.contains(&format!("/{command}")), "{line}");
}

#[test]
fn one_machine_needs_no_launcher() {
    let all = ["srun", "mpirun"];
    chooses("-n 4 ./app -H x", &[], &all, "nagaya run --kill-on-bad-exit -n 4 ./app -H");
    // Other names of -n are replaced in front of the program.
    chooses(
        "-np 4 -x A=1 ./app -np 3",
        &[],
        &all,
        "nagaya run --kill-on-bad-exit -n 4 -x A=1 ./app -np",
    );
    // In a step of Slurm, srun has started this process already.
    chooses("-n 4 ./app", &["SLURM_JOB_ID", "SLURM_STEP_ID"], &all, "nagaya run");
    chooses("-n 4 ./app", &["SLURM_JOB_ID"], &["mpirun"], "nagaya run");
    chooses("--launcher nagaya -n 4 ./app", &["SLURM_JOB_ID"], &all, "nagaya run");
}

#[test]
fn hosts_and_allocations_need_one() {
    let all = ["srun", "mpiexec", "mpirun"];
    chooses("-n 4 -H a,b ./app", &[], &all, "mpirun -n 4 -H a,b");
    chooses("--hostfile=f -n 4 ./app", &[], &["srun", "mpiexec"], "mpiexec --hostfile=f -n 4");
    chooses("-n 4 ./app", &["SLURM_JOB_ID"], &all, "srun -n 4");
    chooses("-n 4 ./app", &["PBS_NODEFILE"], &all, "mpirun -n 4");
    chooses("--launcher /opt/run -n 4 ./app", &[], &all, "opt/run -n 4");
    chosen("-H a ./app", &[], &[]).refused(125, &["-H: no launcher (mpirun, "]);
}
