//! Finds the MPI of a launcher or a program, from the launcher's answer and from the library's
//! file. No program of the user is run.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nagaya_loader::Program;
use nagaya_server::Failure;
use paths::launched::Kind;

use super::obstacle::Obstacle;
use crate::program;

/// The families, which differ in how they copy within a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    OpenMpi,
    Mpich,
    Intel,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::OpenMpi => "Open MPI",
            Family::Mpich => "MPICH",
            Family::Intel => "Intel MPI",
        })
    }
}

/// An MPI, by its launcher.
#[derive(Debug)]
pub struct Library {
    pub family: Family,
    pub version: String,
    /// With a path.
    pub launcher: PathBuf,
    /// The launcher's description of itself.
    pub about: String,
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family, self.version)
    }
}

/// The dynamic linker, which lists a program's libraries without running it.
const LINKER: &str = "/lib64/ld-linux-x86-64.so.2";

impl Library {
    /// Asks the launcher for its MPI. Errors: 127 if the launcher does not exist, 126 if it cannot
    /// be run, 125 if its MPI is unknown.
    pub fn of_launcher(name: &OsString) -> Result<Self, Failure> {
        let launcher = program::find(name).map_err(|failure| Failure {
            message: format!("{failure} (give --mpi=/path/to/mpirun)"),
            ..failure
        })?;
        let shown = launcher.display();
        let output =
            beside(&launcher, Command::new(&launcher)).arg("--version").output().map_err(|e| {
                Failure {
                    message: format!("{shown}: {e} (give --mpi=/path/to/mpirun)"),
                    status: if e.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 },
                }
            })?;
        let about = String::from_utf8_lossy(&output.stdout).into_owned();
        let first = about.lines().next().unwrap_or_default();
        let (family, version) = if about.contains("Intel(R) MPI Library") {
            (Family::Intel, word_after(&about, "Version "))
        } else if first.contains("(Open MPI)") || first.contains("(OpenRTE)") {
            (Family::OpenMpi, word_after(&about, ") "))
        } else if first.contains("HYDRA") {
            (Family::Mpich, word_after(&about, "Version:"))
        } else {
            return Err(Failure::ours(format!(
                "{shown}: not the launcher of an MPI that nagaya knows \
                 (Open MPI, MPICH, Intel MPI: give --mpi=/path/to/its/mpirun)"
            )));
        };
        Ok(Self { family, version, launcher, about })
    }

    /// Returns the kind of MPI, as far as its settings differ.
    pub fn kind(&self) -> Kind {
        let release = self.version.split('.').next().and_then(|text| text.parse::<u32>().ok());
        match self.family {
            Family::OpenMpi if release.is_some_and(|release| release < 5) => Kind::OpenMpi4,
            Family::OpenMpi => Kind::OpenMpi5,
            Family::Mpich => Kind::Mpich,
            Family::Intel => Kind::Intel,
        }
    }

    /// A tool of this MPI's beside its launcher, with the same ending: `mpicc.mpich` beside
    /// `mpirun.mpich`.
    pub fn tool(&self, name: &str) -> Option<PathBuf> {
        let launcher = self.launcher.file_name()?.to_string_lossy().into_owned();
        let ending = launcher.split_once('.').map_or("", |(_, ending)| ending);
        let directory = self.launcher.parent()?;
        let candidates = [format!("{name}.{ending}"), name.to_string()];
        candidates.into_iter().map(|name| directory.join(name)).find(|path| path.is_file())
    }

    /// Returns the output of a tool of this MPI.
    pub fn ask(&self, tool: &str, arguments: &[&str]) -> Option<String> {
        let output =
            beside(&self.launcher, Command::new(self.tool(tool)?)).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Checks that the program can be a task and is linked with this MPI. Returns the library's
    /// name.
    pub fn check_program(&self, name: &Path) -> Result<String, Obstacle> {
        let path = program::find(name.as_os_str())
            .map_err(|failure| Obstacle::new(failure.message, "give the program's path"))?;
        let shown = path.display();
        let opened = Program::open_fixed(&path, Vec::new());
        let opened = opened
            .map_err(|error| Obstacle::new(error.to_string(), "such a program cannot be a task"))?;
        let kind = match opened.executable.headers.is_fixed {
            true => "linked to fixed addresses (each task has page tables of its own)",
            false => "position-independent",
        };
        let listed = Command::new(LINKER).arg("--list").arg(&path).output();
        let listed = listed.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
        let Some(file) = listed.ok().and_then(|text| mpi_library(&text)) else {
            return Err(Obstacle::new(
                format!("{shown} is not linked with an MPI library"),
                "a script's interpreter may load one later: leave the program out",
            ));
        };
        match family_of_file(&file) {
            Some(family) if family == self.family || self.abi_compatible(family) => {
                Ok(format!("{shown}, {kind}, linked with {}", file.display()))
            }
            Some(family) => Err(Obstacle::new(
                format!(
                    "{shown} is linked with {family} ({}), and the launcher is {self}'s: each \
                     rank would be alone",
                    file.display()
                ),
                format!("start it with the launcher of {family} (--mpi=/path/to/its/mpirun)"),
            )),
            None => Err(Obstacle::new(
                format!("{} is no MPI that nagaya knows", file.display()),
                "run the program with nagaya info --mpi=LAUNCHER of its MPI",
            )),
        }
    }

    /// MPICH and Intel MPI share an ABI and a process-management interface.
    fn abi_compatible(&self, family: Family) -> bool {
        self.family != Family::OpenMpi && family != Family::OpenMpi
    }
}

/// Returns the command with its launcher's directory first in PATH: Intel's is a script that looks
/// up its other half there.
pub fn beside(launcher: &Path, mut command: Command) -> Command {
    let directory = launcher.parent().map(Path::to_path_buf).unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(directory).chain(std::env::split_paths(&path));
    if let Ok(path) = std::env::join_paths(path) {
        command.env("PATH", path);
    }
    command
}

fn word_after(text: &str, prefix: &str) -> String {
    let rest = text.split_once(prefix).map_or("", |(_, rest)| rest);
    rest.split_whitespace().next().unwrap_or("of unknown version").to_string()
}

/// The MPI among the lines `NAME => PATH (ADDRESS)` of the dynamic linker.
fn mpi_library(listed: &str) -> Option<PathBuf> {
    let is_mpi = |name: &str| {
        ["libmpi.so", "libmpich.so", "libmpi_abi.so"].iter().any(|soname| name.starts_with(soname))
    };
    listed.lines().find_map(|line| {
        let (name, rest) = line.trim().split_once(" => ")?;
        is_mpi(name).then(|| PathBuf::from(rest.rsplit_once(" (").map_or(rest, |(path, _)| path)))
    })
}

/// Finds the family by the strings in the library's file.
fn family_of_file(path: &Path) -> Option<Family> {
    let bytes = std::fs::read(path).ok()?;
    let says = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    if says("Intel(R) MPI Library") {
        Some(Family::Intel)
    } else if says("Open MPI v") {
        Some(Family::OpenMpi)
    } else if says("MPICH Version:") {
        Some(Family::Mpich)
    } else {
        None
    }
}
