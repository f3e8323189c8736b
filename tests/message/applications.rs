//! Applications of others, as distributions ship them, compute under `nagaya exec` what they
//! compute without it: energies, residuals, checksums, to the last digit printed.
//!
//! Each runs a small input twice under the launcher of its MPI, as ordinary processes and as
//! tasks. The large ones are installed by `scripts/deps bench` only; where they are missing,
//! their tests say so.

use std::fs;
use std::path::{Path, PathBuf};

use nagaya_tests::mpi::{MPICH_4, Mpi, OPEN_MPI_4, OPEN_MPI_5};
use nagaya_tests::program::source_dir;
use nagaya_tests::python::{interpreter, packages};
use nagaya_tests::{Cmd, TIME_LIMIT, WorkDir, machine_lacks, nagaya, tool};

/// The directory of the applications' inputs.
fn inputs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("inputs")
}

/// Runs a command line without Nagaya and with it, each time in a new directory, and compares the
/// values that `results` finds in the directory and in the output.
#[track_caller]
fn computes_the_same(
    launcher: &Cmd,
    command: &Cmd,
    prepare: impl Fn(&Path),
    results: impl Fn(&Path, &str) -> Vec<String>,
) {
    let run = |command: Cmd| {
        let dir = WorkDir::new();
        prepare(dir.path());
        // One thread a rank, on any machine.
        let launched = launcher.clone().command(command).env("OMP_NUM_THREADS", "1");
        // Ranks that wait for each other take long where others take their processors.
        let output = launched.dir(dir.path()).time_limit(5 * TIME_LIMIT).run();
        assert!(output.status.success(), "{output}");
        let found = results(dir.path(), &output.stdout);
        assert!(!found.is_empty(), "no results in what it printed\n{output}");
        found
    };
    let plain = run(command.clone());
    assert_eq!(run(nagaya("exec").command(command.clone())), plain);
}

/// The lines that `wanted` is true for.
fn lines(text: &str, mut wanted: impl FnMut(&str) -> bool) -> Vec<String> {
    text.lines().filter(|line| wanted(line)).map(str::to_owned).collect()
}

/// The lines from one that has `first` in it to one that has `end` in it, each time.
fn blocks(text: &str, first: &str, end: &str) -> Vec<String> {
    let mut inside = false;
    lines(text, |line| {
        inside = line.contains(first) || inside && !line.contains(end);
        inside
    })
}

/// Returns the path of a program that only `scripts/deps bench` installs. If it is missing,
/// reports that; the caller returns.
fn large(name: &str) -> Option<PathBuf> {
    let path = Path::new("/usr/bin").join(name);
    if !path.exists() {
        machine_lacks(&format!("{name}: scripts/deps bench installs it"));
        return None;
    }
    Some(path)
}

/// HPC Challenge: Linpack, matrix transposition, random access, FFT, latency and bandwidth.
/// It checks its own results; all but the time-dependent ones are compared as well.
fn hpcc(mpi: Mpi, ranks: usize, rows: usize) {
    let input = fs::read_to_string(inputs().join("hpccinf.txt")).expect("hpcc's input");
    let input = input.replace("1            Ps", &format!("{rows}            Ps"));
    computes_the_same(
        &mpi.launch(ranks),
        &Cmd::new(tool("hpcc")),
        |dir| fs::write(dir.join("hpccinf.txt"), &input).expect("write"),
        |dir, _| {
            let report = fs::read_to_string(dir.join("hpccoutf.txt")).expect("hpcc's report");
            let has = |line: &str, names: &[&str]| names.iter().any(|name| line.contains(name));
            assert!(report.lines().any(|line| line == "Success=1"), "{report}");
            lines(&report, |line| {
                has(line, &["||Ax-b||", "norm", "_residual=", "Errors=", "maxErr=", "Procs="])
            })
        },
    );
}

#[test]
fn hpcc_on_two_ranks() {
    hpcc(OPEN_MPI_4, 2, 1);
}

/// Compiled with Open MPI 4, whose library has the same name and interface.
#[test]
fn hpcc_over_open_mpi_5() {
    hpcc(OPEN_MPI_5, 2, 1);
}

#[test]
fn hpcc_on_four_ranks() {
    hpcc(OPEN_MPI_4, 4, 2);
}

/// Molecular dynamics: C++, its own halo exchange, FFTW for the second input.
fn lammps(example: &str, files: &[&str]) {
    let directory = Path::new("/usr/share/lammps/examples").join(example);
    let input = format!("in.{example}");
    assert!(directory.join(&input).exists(), "lammps-examples: run scripts/deps");
    computes_the_same(
        &OPEN_MPI_4.launch(2),
        &Cmd::new(tool("lmp")).args(["-in", &input]),
        |dir| {
            for file in files.iter().chain([&input.as_str()]) {
                fs::copy(directory.join(file), dir.join(file)).expect("copy an input");
            }
        },
        |_, printed| {
            let block = blocks(printed, "Step", "Loop time");
            let before_time = |line: &String| line.split("CPU").next().map(str::to_owned);
            block.iter().filter_map(before_time).collect()
        },
    );
}

#[test]
fn lammps_melts_a_crystal() {
    lammps("melt", &[]);
}

#[test]
fn lammps_moves_a_peptide_in_water() {
    lammps("peptide", &["data.peptide"]);
}

/// ScaLAPACK's own test programs (Fortran, BLACS): factorize, solve, check the residuals.
fn scalapack(mpi: Mpi, tests: &str) {
    let directory = Path::new("/usr/lib/x86_64-linux-gnu/scalapack").join(tests);
    assert!(directory.exists(), "scalapack-mpi-test: run scripts/deps");
    let programs = [
        ("xdlu", "LU.dat"),
        ("xzllt", "LLT.dat"),
        ("xdqr", "QR.dat"),
        ("xcls", "LS.dat"),
        ("xdinv", "INV.dat"),
        ("xshrd", "HRD.dat"),
    ];
    for (program, input) in programs {
        computes_the_same(
            &mpi.launch(2),
            &Cmd::new(directory.join(program)),
            |dir| {
                let text = fs::read_to_string(directory.join(input)).expect("an input");
                fs::write(dir.join(input), enlarged(&text)).expect("write");
            },
            |_, printed| {
                let summary = lines(printed, |line| line.contains("tests"));
                let failed = summary.iter().find(|line| line.contains("failed residual"));
                assert!(failed.is_some_and(|line| line.trim().starts_with("0 ")), "{printed}");
                summary
            },
        );
    }
}

/// An input whose messages are large enough to be copied singly; the shipped ones are not.
fn enlarged(input: &str) -> String {
    let larger = |word: &str| word.parse().map_or(word.into(), |n: u32| (16 * n).to_string());
    let line = |line: &str| {
        let is_size = ["values of M", "values of N"].iter().any(|what| line.ends_with(what));
        let words: Vec<_> = line.split_whitespace().map(larger).collect();
        if is_size { words.join(" ") } else { line.to_owned() }
    };
    input.lines().map(|text| line(text.trim_end()) + "\n").collect()
}

#[test]
fn scalapack_over_open_mpi() {
    scalapack(OPEN_MPI_4, "openmpi-tests");
}

#[test]
fn scalapack_over_mpich() {
    scalapack(MPICH_4, "mpich-tests");
}

#[test]
fn mpi4pys_own_benchmarks_run() {
    let benchmark = |arguments: &[&str]| {
        let module = ["-m", "mpi4py.bench"];
        let command = Cmd::new(interpreter()).args(module).args(arguments);
        computes_the_same(
            &OPEN_MPI_4.launch(2),
            &command.env("PYTHONPATH", packages()),
            |_| {},
            // Times stand behind `=` and in all but the first column.
            |_, printed| {
                let before_times =
                    |line: &str| line.split('=').next().map(|text| text.trim().to_owned());
                let mut said: Vec<_> = printed.lines().filter_map(before_times).collect();
                if arguments[0] == "pingpong" {
                    for line in &mut said {
                        *line = line.split_whitespace().next().unwrap_or_default().to_owned();
                    }
                }
                said.sort(); // the ranks print when they like
                said
            },
        );
    };
    benchmark(&["helloworld"]);
    benchmark(&["ringtest", "-n", "1000000", "-l", "20"]);
    benchmark(&["pingpong", "-n", "4194304", "-l", "5", "--loop-large", "5", "-a", "numpy"]);
    benchmark(&["pingpong", "-n", "1048576", "-l", "5", "--loop-large", "5", "--pickle"]);
}

#[test]
fn mpi4pys_pool_spawns_workers_that_are_tasks() {
    computes_the_same(
        &OPEN_MPI_4.launch(1),
        &Cmd::new(interpreter())
            .arg(source_dir().join("futures_work.py"))
            .env("PYTHONPATH", packages()),
        |_| {},
        |_, printed| lines(printed, |_| true),
    );
}

#[test]
fn parallel_hdf5_writes_the_same_file() {
    // The distribution's own mpi4py and h5py belong together.
    computes_the_same(
        &OPEN_MPI_4.launch(3),
        &Cmd::new(interpreter()).arg(source_dir().join("h5_work.py")).arg("file.h5"),
        |_| {},
        |dir, printed| {
            let file = fs::read(dir.join("file.h5")).expect("the file");
            let sum = file.iter().fold(0u64, |sum, &byte| sum.rotate_left(5) ^ u64::from(byte));
            let mut found = lines(printed, |_| true);
            found.push(format!("{} bytes, {sum:x}", file.len()));
            found
        },
    );
}

#[test]
fn quantum_espresso_finds_the_same_energy() {
    let Some(program) = large("pw.x") else { return };
    // Four ranks: two groups, each with a part of the k points.
    for (ranks, groups) in [(2, "1"), (4, "2")] {
        computes_the_same(
            &OPEN_MPI_4.launch(ranks),
            &Cmd::new(&program).args(["-nk", groups, "-in"]).arg(inputs().join("silicon.in")),
            |_| {},
            |_, printed| lines(printed, |line| line.contains("Ry") || line.contains("force =")),
        );
    }
}

#[test]
fn gromacs_follows_the_same_path() {
    let Some(program) = large("gmx_mpi") else { return };
    let prepare = |dir: &Path| {
        for name in ["water.mdp", "water.top"] {
            fs::copy(inputs().join(name), dir.join(name)).expect("copy an input");
        }
        let gmx = |arguments: &str| {
            Cmd::new("gmx").args(arguments.split(' ')).dir(dir).run().ok();
        };
        gmx("genconf -f /usr/share/gromacs/top/spc216.gro -nbox 2 2 2 -o water.gro");
        gmx("grompp -f water.mdp -c water.gro -p water.top -o water.tpr -maxwarn 2");
    };
    // Four ranks: one of them does the long-range part only.
    for (ranks, long_range) in [(2, "0"), (4, "1")] {
        let arguments = ["mdrun", "-s", "water.tpr", "-reprod", "-ntomp", "1", "-npme", long_range];
        computes_the_same(
            &OPEN_MPI_4.launch(ranks),
            &Cmd::new(&program).args(arguments),
            prepare,
            |dir, _| {
                let log = fs::read_to_string(dir.join("md.log")).expect("GROMACS's log");
                lines(&log, |line| line.contains("e+04")) // the rows of energies
            },
        );
    }
}

#[test]
fn nwchem_finds_the_same_energies() {
    let Some(program) = large("nwchem") else { return };
    computes_the_same(
        &OPEN_MPI_4.launch(2),
        &Cmd::new(program).arg(inputs().join("water.nw")),
        |_| {},
        // It hands out work as ranks ask for it, so sums differ in the last digits by chance.
        |_, printed| {
            let total = lines(printed, |line| line.trim().starts_with("Total DFT energy"));
            let correlated = lines(printed, |line| line.trim().starts_with("Total MP2 energy"));
            let energy = |line: &String| line.split_whitespace().last()?.parse::<f64>().ok();
            let energies = total.iter().chain(&correlated).filter_map(energy);
            energies.map(|hartree| format!("{hartree:.8}")).collect()
        },
    );
}
