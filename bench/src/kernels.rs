//! Programs that spend much of their time in messages: a 3D FFT, a bucket sort, conjugate gradients
//! and a training step, under each MPI with its defaults, without and with `nagaya exec`.
//!
//! They do the communication of well-known benchmarks (NAS FT and IS, HPCG, data-parallel training)
//! in little code (`programs/kernel_*`). Each checks its result, and fails if that is wrong. The
//! time is that of the program's main loop; it also reports the time in MPI calls, with waits.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;

use crate::failure::Failure;
use crate::gains::{self, Gain};
use crate::launch::{Nagaya, Side};
use crate::mpi::Mpi;
use crate::programs;
use crate::progress::progress;
use crate::ranks::oversubscribed;
use crate::spread::Spread;
use crate::turns::{Job, by_turns};

/// The selection and the number of runs.
#[derive(Parser)]
pub struct Options {
    /// MPI implementations to use
    #[arg(long, value_delimiter = ',', default_value = Mpi::ALL)]
    mpi: Vec<Mpi>,
    /// Numbers of ranks: 2, 4 or 8
    #[arg(long, value_delimiter = ',', default_value = "2,4,8",
          value_parser = clap::value_parser!(u32).range(2..=8))]
    ranks: Vec<u32>,
    /// Kernels to run
    #[arg(long, value_delimiter = ',', default_value = "fft,sort,cg,train")]
    kernel: Vec<Kernel>,
    /// Number of rounds; in each round both sides run once. Two if ranks share cores
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Run small problems.
    #[arg(skip)]
    quick: bool,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["kernels"])
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        self.quick = true;
        self.rounds = 1;
        self.ranks.truncate(1);
        self
    }

    fn rounds_of(&self, ranks: usize) -> u32 {
        if oversubscribed(ranks).is_empty() { self.rounds } else { self.rounds.min(2) }
    }
}

/// A kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Kernel {
    /// 3D FFT: MPI_Alltoall, as NAS FT
    Fft,
    /// Bucket sort: MPI_Alltoallv and MPI_Allreduce, as NAS IS
    Sort,
    /// Conjugate gradients: neighbours and MPI_Allreduce of 8 bytes, as HPCG
    Cg,
    /// Data-parallel training in Python with mpi4py: MPI_Allreduce of 4 MB
    Train,
}

impl Kernel {
    fn name(self) -> &'static str {
        match self {
            Kernel::Fft => "3D FFT",
            Kernel::Sort => "bucket sort",
            Kernel::Cg => "CG",
            Kernel::Train => "training step",
        }
    }

    /// Returns the arguments. The whole problem is the same for each number of ranks.
    fn arguments(self, ranks: usize, quick: bool) -> Vec<String> {
        let numbers = match (self, quick) {
            (Kernel::Fft, false) => vec![128, 12],
            (Kernel::Fft, true) => vec![32, 2],
            (Kernel::Sort, false) => vec![(1 << 22) / ranks, 10],
            (Kernel::Sort, true) => vec![(1 << 16) / ranks, 2],
            (Kernel::Cg, false) => vec![96, 64 / ranks, 80],
            (Kernel::Cg, true) => vec![16, 16 / ranks, 40],
            (Kernel::Train, false) => vec![1024, 128 / ranks, 30],
            (Kernel::Train, true) => vec![64, 32 / ranks, 3],
        };
        numbers.iter().map(usize::to_string).collect()
    }

    /// Compiles the kernel for an MPI.
    fn job(self, mpi: Mpi, ranks: usize, quick: bool, out: &Path) -> Result<Job, Failure> {
        let mut arguments = self.arguments(ranks, quick);
        let mut environment = Vec::new();
        let program = match self {
            Kernel::Fft => programs::compile_with_fftw("kernel_fft", mpi, out)?,
            Kernel::Sort => programs::compile_with_mpi("kernel_sort", mpi, out)?,
            Kernel::Cg => programs::compile_with_mpi("kernel_cg", mpi, out)?,
            Kernel::Train => {
                let python = programs::compile_python(out)?;
                arguments.insert(0, programs::source("kernel_train.py", out).display().to_string());
                environment = python_environment(mpi, out)?;
                python
            }
        };
        Ok(Job { mpi, ranks, program, arguments, environment, time_limit: TIME_LIMIT })
    }
}

const TIME_LIMIT: Duration = Duration::from_secs(90);

/// Returns the variables by which Python finds mpi4py and NumPy, and mpi4py the MPI. Each rank has
/// one thread.
fn python_environment(mpi: Mpi, out: &Path) -> Result<Vec<(&'static str, OsString)>, Failure> {
    let packages = mpi.python_packages()?;
    let abi = if matches!(mpi, Mpi::Ompi4 | Mpi::Ompi5) { "openmpi" } else { "mpich" };
    let mut environment = vec![
        ("PYTHONPATH", packages.into_os_string()),
        ("MPI4PY_MPIABI", abi.into()),
        ("OMP_NUM_THREADS", "1".into()),
        ("OPENBLAS_NUM_THREADS", "1".into()),
    ];
    let libraries = match mpi {
        Mpi::Ompi4 => None,
        Mpi::Mpich4 => Some(mpich_links(out)?),
        Mpi::Ompi5 | Mpi::Mpich5 | Mpi::Intel => Some(mpi.environment().join("lib")),
    };
    environment.extend(libraries.map(|place| ("LD_LIBRARY_PATH", place.into_os_string())));
    Ok(environment)
}

/// Makes a directory in which Debian's MPICH has the name that all other packages of MPICH use.
fn mpich_links(out: &Path) -> Result<PathBuf, Failure> {
    let library = Path::new("/usr/lib/x86_64-linux-gnu/libmpich.so.12");
    let place = out.join("mpich4");
    let link = place.join("libmpi.so.12");
    let _ = fs::remove_file(&link); // from an earlier run
    fs::create_dir_all(&place)
        .and_then(|()| symlink(library, &link))
        .map_err(|error| Failure::new(format!("{}: {error}", link.display())))?;
    Ok(place)
}

/// The figures of a run.
struct Figures {
    seconds: f64,
    in_messages: f64,
    whole_seconds: f64,
    result: String,
}

/// Parses the report of a kernel.
fn figures(output: &str, whole_seconds: f64) -> Option<Figures> {
    let value = |name: &str| output.lines().find_map(|line| line.strip_prefix(name));
    Some(Figures {
        seconds: value("seconds ")?.parse().ok()?,
        in_messages: value("messages ")?.parse().ok()?,
        whole_seconds,
        result: value("result ")?.to_string(),
    })
}

/// Measures, prints two tables, writes `kernels.csv`. Fails if a run fails or results differ.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let mut gains = [Vec::new(), Vec::new()];
    let mut failures = Vec::new();
    for &mpi in &options.mpi {
        for ranks in options.ranks.iter().map(|&ranks| ranks as usize) {
            for &kernel in &options.kernel {
                match measure(kernel, mpi, ranks, options, nagaya, out) {
                    Ok([loops, wholes]) => {
                        gains[0].push(loops);
                        gains[1].push(wholes);
                    }
                    Err(failure) => failures.push(Failure::new(format!(
                        "{}, {} with {ranks} ranks: {failure}",
                        mpi.name(),
                        kernel.name()
                    ))),
                }
            }
        }
    }
    progress("");
    let [loops, wholes] = gains;
    gains::print("Kernels: the main loop, and its part in MPI calls with waits", &loops);
    gains::print("Kernels: the whole mpirun", &wholes);
    let all: Vec<Gain> = loops.into_iter().chain(wholes).collect();
    gains::write(&all, &out.join("kernels.csv"))?;
    Failure::of_all(failures)
}

/// Runs a kernel on both sides by turns. Returns its main loop and the whole `mpirun`.
fn measure(
    kernel: Kernel,
    mpi: Mpi,
    ranks: usize,
    options: &Options,
    nagaya: &Nagaya,
    out: &Path,
) -> Result<[Gain; 2], Failure> {
    let job = kernel.job(mpi, ranks, options.quick, out)?;
    progress(&format!("kernels: {}, {ranks} ranks, {}", mpi.name(), kernel.name()));
    let rounds = by_turns(options.rounds_of(ranks), |side| {
        let run = job.run(side, nagaya)?;
        figures(&run.output, run.seconds)
            .ok_or_else(|| Failure::new(format!("unexpected output: {}", run.output)))
    })?;
    let first = &rounds[0][0].result;
    if let Some(other) = rounds.iter().flatten().find(|run| run.result != *first) {
        return Err(Failure::new(format!("different results: {first} and {}", other.result)));
    }
    let share = |side: Side| {
        let of = |round: &[Figures; 2]| {
            let run = &round[side as usize];
            100.0 * run.in_messages / run.seconds
        };
        Spread::of(&rounds.iter().map(of).collect::<Vec<_>>()).median
    };
    let [plain, tasks] = Side::BOTH.map(share);
    let gain = |what: &str, value: fn(&Figures) -> f64, remark: String| Gain {
        mpi,
        ranks,
        what: format!("{}{what}", kernel.name()),
        is_rate: false,
        rounds: rounds.iter().map(|[plain, tasks]| [value(plain), value(tasks)]).collect(),
        remark,
    };
    Ok([
        gain(", ms", |run| 1e3 * run.seconds, format!("{plain:.0} % → {tasks:.0} % in MPI")),
        gain(", mpirun, ms", |run| 1e3 * run.whole_seconds, String::new()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_without_a_result_is_refused() {
        let report = "seconds 1.5\nmessages 0.5\nresult as expected\n";
        let read = figures(report, 2.0).unwrap();
        assert_eq!((read.seconds, read.in_messages), (1.5, 0.5));
        assert_eq!(read.result, "as expected");
        assert!(figures("seconds 1.5\nmessages 0.5\n", 2.0).is_none());
    }
}
