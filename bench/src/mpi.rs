//! The MPI implementations that we measure under: what their commands are called on Debian,
//! and how two ranks are started.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::launch::{Nagaya, on_path, output_of};

/// An MPI implementation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub enum Mpi {
    /// Open MPI.
    #[value(name = "openmpi")]
    OpenMpi,
    /// MPICH.
    #[value(name = "mpich")]
    Mpich,
}

/// Whether the ranks are ordinary processes or tasks of Nagaya.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Ordinary processes: the peer.
    Plain,
    /// Tasks, by `nagaya exec`.
    Nagaya,
}

impl Side {
    /// Both, in the order in which a round runs them.
    pub const BOTH: [Side; 2] = [Side::Plain, Side::Nagaya];

    /// As it is called in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Side::Plain => "plain",
            Side::Nagaya => "nagaya",
        }
    }
}

impl Mpi {
    /// As it is called in tables and plots.
    pub fn name(self) -> &'static str {
        match self {
            Mpi::OpenMpi => "Open MPI",
            Mpi::Mpich => "MPICH",
        }
    }

    /// As it is called in file names and options.
    pub fn key(self) -> &'static str {
        match self {
            Mpi::OpenMpi => "openmpi",
            Mpi::Mpich => "mpich",
        }
    }

    /// Its compiler driver for C.
    pub fn compiler(self) -> Result<PathBuf, Failure> {
        match self {
            Mpi::OpenMpi => self.command(&["mpicc.openmpi"], "openmpi-bin libopenmpi-dev"),
            Mpi::Mpich => self.command(&["mpicc.mpich"], "mpich libmpich-dev"),
        }
    }

    /// NetPIPE's program for it.
    pub fn netpipe(self) -> Result<PathBuf, Failure> {
        match self {
            Mpi::OpenMpi => self.command(&["NPopenmpi"], "netpipe-openmpi"),
            Mpi::Mpich => self.command(&["NPmpich2", "NPmpich"], "netpipe-mpich2"),
        }
    }

    fn launcher(self) -> Result<PathBuf, Failure> {
        match self {
            Mpi::OpenMpi => self.command(&["mpirun.openmpi"], "openmpi-bin"),
            Mpi::Mpich => self.command(&["mpirun.mpich"], "mpich"),
        }
    }

    fn command(self, names: &[&str], packages: &str) -> Result<PathBuf, Failure> {
        names.iter().find_map(|name| on_path(name)).ok_or_else(|| {
            Failure::new(format!(
                "{}: not installed ({} needs it); apt-get install {packages}",
                names[0],
                self.name()
            ))
        })
    }

    /// Its version, as its own tools tell it; `None` where it is not installed.
    pub fn version(self) -> Option<String> {
        let (program, argument) = match self {
            Mpi::OpenMpi => ("mpirun.openmpi", "--version"),
            Mpi::Mpich => ("mpichversion", "-v"),
        };
        let mut command = Command::new(on_path(program)?);
        let output = output_of(allow_root(command.arg(argument)), Duration::from_secs(10)).ok()?;
        Some(output.lines().next()?.split_whitespace().last()?.to_string())
    }

    /// The command that runs two ranks of `program`, each bound to a core of its own. (Both
    /// sides are bound alike; a rank that wanders between cores adds noise, nothing else.)
    pub fn two_ranks(
        self,
        side: Side,
        nagaya: &Nagaya,
        program: &Path,
    ) -> Result<Command, Failure> {
        let mut command = Command::new(self.launcher()?);
        let bind = match self {
            Mpi::OpenMpi => "--bind-to",
            Mpi::Mpich => "-bind-to",
        };
        allow_root(&mut command).args(["-n", "2", bind, "core"]);
        if side == Side::Nagaya {
            command.arg(&nagaya.command).arg("exec");
        }
        command.arg(program);
        Ok(command)
    }
}

/// Open MPI refuses to run as root unless told twice.
fn allow_root(command: &mut Command) -> &mut Command {
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
}
