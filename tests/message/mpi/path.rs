//! The path that `nagaya exec` chooses for messages and collective operations.

use nagaya_tests::mpi::{MPICH_5, Mpi, OPEN_MPI_4};
use nagaya_tests::{Cmd, WorkDir, nagaya};

fn exec(mpi: Mpi, ranks: usize, options: &[&str], program: &str) -> Cmd {
    let program = mpi.compile(program);
    mpi.launch(ranks).command(nagaya("exec").args(options).arg("-v").arg(program))
}

/// The line that names the path of a job which prints `wanted`.
#[track_caller]
fn path_of(job: Cmd, wanted: &str) -> String {
    let output = job.run();
    let lines = output.stderr.lines().filter(|line| line.starts_with("nagaya: transport: "));
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    assert_eq!(lines.len(), 1, "one rank names the path: {output}");
    output.prints(wanted);
    lines.into_iter().next().expect("one")
}

/// Without options, operations are in place if each rank has a processor, and messages single
/// copies. Options and variables choose otherwise.
pub fn is_chosen(mpi: Mpi) {
    let place = |ranks, options: &[&str]| exec(mpi, ranks, options, "mpi_coll.c").arg("place");
    let path = path_of(place(2, &[]), "in place\n");
    assert!(path.starts_with("nagaya: transport: copy (not compared"), "{path}");
    assert!(path.contains("collective operations: inplace (2 ranks on "), "{path}");

    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let path = path_of(place(processors + 1, &[]), "by the MPI\n");
    assert!(path.contains("collective operations: mpi ("), "{path}");
    place(2, &["--collectives", "mpi"]).run().prints("by the MPI\n");
    place(2, &[]).env("NAGAYA_COLLECTIVES", "mpi").run().prints("by the MPI\n");
    place(processors + 1, &["--collectives=inplace"]).run().prints("in place\n");

    let sends = |options: &[&str]| exec(mpi, 2, options, "mpi_path.c");
    sends(&[]).run().prints("by the MPI\n");
    if mpi.has_provider() {
        let path = path_of(sends(&["--transport", "provider"]), "over the provider\n");
        assert!(path.contains("transport: provider (as requested)"), "{path}");
        sends(&[]).env("NAGAYA_TRANSPORT", "provider").run().prints("over the provider\n");
    }
}

/// The measured transport is taken, unless the user selects one.
#[test]
fn a_measurement_decides() {
    let mpi = MPICH_5;
    let config = WorkDir::new();
    let launcher = mpi.launcher_path();
    let tune = nagaya("tune").arg(format!("--mpi={}", launcher.display()));
    let tuned = tune.env("XDG_CONFIG_HOME", config.path()).run().ok();
    let transport = tuned.lines().find_map(|line| line.strip_prefix("transport: "));
    let transport = transport.expect("a transport").split(' ').next().expect("a name");
    let file = config.join("nagaya/mpi");
    let text = std::fs::read_to_string(&file).expect("the measurement");
    let run = || exec(mpi, 2, &[], "mpi_path.c").env("XDG_CONFIG_HOME", config.path());
    for (wanted, printed) in [("provider", "over the provider\n"), ("copy", "by the MPI\n")] {
        std::fs::write(&file, text.replace(&format!("\t{transport}\n"), &format!("\t{wanted}\n")))
            .expect("a file");
        let path = path_of(run(), printed);
        assert!(path.contains(&format!("transport: {wanted} (")), "{path}");
        assert!(path.contains(&file.display().to_string()), "{path}");
    }
    std::fs::write(&file, text.replace(&format!("\t{transport}\n"), "\tprovider\n"))
        .expect("a file");
    let path = path_of(run().env("MPIR_CVAR_NOLOCAL", "0"), "by the MPI\n");
    assert!(path.contains("copy (MPIR_CVAR_NOLOCAL is set)"), "{path}");
}

/// A path that does not exist is refused in one line, and nothing runs.
#[test]
fn a_path_that_does_not_exist_is_refused() {
    let provider = ["--transport", "provider"];
    let alone = nagaya("exec").args(provider).arg("/bin/true");
    alone.run().refused(125, &["--transport provider", "does not show which MPI"]);
    let protected = nagaya("exec").args(["--protect", "--collectives", "inplace", "/bin/true"]);
    protected.run().refused(125, &["--collectives inplace", "--protect"]);
    let unknown = nagaya("exec").arg("/bin/true").env("NAGAYA_TRANSPORT", "pigeon");
    unknown.run().refused(125, &["NAGAYA_TRANSPORT=pigeon", "auto, copy or provider"]);
    let output = exec(OPEN_MPI_4, 2, &provider, "mpi_path.c").env("OMPI_MCA_pml", "ob1").run();
    assert_ne!(output.code(), 0, "{output}");
    assert!(output.stderr.contains("OMPI_MCA_pml=ob1 selects another path: unset it"), "{output}");
}
