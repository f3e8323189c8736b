//! The sides of the comparison: the programs of each, and the commands that start them.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::layout::Layout;
use super::nodes::{DEVICE, Nodes};
use crate::failure::Failure;
use crate::launch::{self, Nagaya, on_path};
use crate::mpi::{Mpi, allow_root};
use crate::programs;
use crate::ranks::oversubscribed;

/// Runs a command and ignores its status. Debian's Open MPI 4.1.4 ends every program with a
/// segmentation fault in shmem_finalize. All results have been printed by then.
const IGNORING_ITS_END: &str = "\"$0\" \"$@\" || true";

/// A provider of libfabric under Sandia OpenSHMEM.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Provider {
    /// Shared memory, within a node
    Shm,
    /// Sockets, between nodes
    Sockets,
    /// Nagaya's, within a node
    Nagaya,
}

impl Provider {
    fn name(self) -> &'static str {
        match self {
            Provider::Shm => "shm",
            Provider::Sockets => "sockets",
            Provider::Nagaya => "nagaya",
        }
    }
}

/// A side of the comparison.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Plain accesses between two tasks.
    Limit,
    Nagaya,
    /// Open MPI's OSHMEM, from Debian.
    OpenMpi,
    /// Sandia OpenSHMEM with a provider of libfabric.
    Sandia(Provider),
    /// One-sided operations of an MPI.
    Mpi(Mpi),
}

impl Side {
    /// Returns its name in tables.
    pub fn name(self) -> String {
        match self {
            Side::Limit => "limit".to_owned(),
            Side::Nagaya => "nagaya".to_owned(),
            Side::OpenMpi => "Open MPI".to_owned(),
            Side::Sandia(provider) => format!("Sandia over {}", provider.name()),
            Side::Mpi(mpi) => format!("RMA of {}", mpi.name()),
        }
    }

    /// Returns true if it is measured with this layout. MPI's operations are between two ranks of a
    /// node, and sockets are measured between nodes.
    pub fn has(self, layout: Layout) -> bool {
        match self {
            Side::Mpi(_) => layout == Layout { nodes: 1, pes: 2 },
            Side::Sandia(provider) => (provider == Provider::Sockets) == (layout.nodes == 2),
            _ => true,
        }
    }

    /// Returns true if its times are compared with Nagaya's.
    pub fn is_peer(self) -> bool {
        !matches!(self, Side::Limit | Side::Nagaya)
    }
}

/// A side whose programs have been compiled.
pub struct Ready {
    pub side: Side,
    launcher: PathBuf,
    /// Single operations.
    pub operations: PathBuf,
    /// Kernels; none with MPI.
    pub kernels: Option<PathBuf>,
}

/// Compiles the programs for a side. None if the library was not asked for.
pub fn ready(
    side: Side,
    sandia: Option<&Path>,
    nagaya: &Nagaya,
    out: &Path,
) -> Result<Option<Ready>, Failure> {
    let (launcher, compiler) = match (side, sandia) {
        (Side::Mpi(mpi), _) => {
            let operations = programs::compile_with_mpi("rma", mpi, out)?;
            let launcher = mpi.launcher()?;
            return Ok(Some(Ready { side, launcher, operations, kernels: None }));
        }
        (Side::OpenMpi, _) => {
            let compiler = found("oshcc.openmpi", "libopenmpi-dev");
            let compiler = compiler.or_else(|_| found("oshcc", "libopenmpi-dev"))?;
            (found("mpirun.openmpi", "openmpi-bin")?, Some((compiler, "openmpi")))
        }
        (Side::Sandia(_), None) => return Ok(None),
        (Side::Sandia(_), Some(directory)) => {
            (directory.join("bin/oshrun"), Some((directory.join("bin/oshcc"), "sandia")))
        }
        _ => (nagaya.command.clone(), None),
    };
    let compiled = |name: &str| match &compiler {
        Some((compiler, of)) => programs::compile_by(name, &format!("{name}-{of}"), compiler, out),
        None => programs::compile_with_shmem(name, nagaya, out),
    };
    let (operations, kernels) = (compiled("shmem")?, Some(compiled("shmem_kernels")?));
    Ok(Some(Ready { side, launcher, operations, kernels }))
}

fn found(name: &str, package: &str) -> Result<PathBuf, Failure> {
    on_path(name)
        .ok_or_else(|| Failure::new(format!("{name}: not installed; apt-get install {package}")))
}

/// Returns the command that starts the PEs of a program.
pub fn launch(
    ready: &Ready,
    layout: Layout,
    nodes: Option<&Nodes>,
    nagaya: &Nagaya,
    program: &Path,
) -> Result<Command, Failure> {
    let number = layout.pes.to_string();
    let mut command = match (ready.side, nodes) {
        (Side::Mpi(mpi), _) => {
            return mpi.by_default(layout.pes as usize, launch::Side::Plain, nagaya, program);
        }
        (Side::OpenMpi, _) => {
            let mut command = by_open_mpi(&ready.launcher, nodes, layout);
            if !oversubscribed(layout.pes as usize).is_empty() {
                command.args(["--mca", "mpi_yield_when_idle", "1"]);
            }
            command.args(["-n", &number]);
            command
        }
        (_, Some(nodes)) => by_hydra(nodes, layout)?,
        (Side::Sandia(_), None) => {
            let mut command = Command::new(&ready.launcher);
            // Without this variable it takes any mpiexec, such as Open MPI's.
            command.env("OSHRUN_LAUNCHER", hydra()?).args(["-n", &number]);
            command
        }
        (_, None) => {
            let mut command = Command::new(&ready.launcher);
            command.args(["run", "-n", &number]);
            command
        }
    };
    if let Side::Sandia(provider) = ready.side {
        command.env("FI_PROVIDER", provider.name());
        if provider == Provider::Nagaya {
            // The provider is for tasks.
            command.env("FI_PROVIDER_PATH", nagaya.provider()?);
            command.arg(&nagaya.command).arg("exec");
        }
    }
    command.arg(program);
    Ok(command)
}

/// Returns mpirun with the options for its PEs. Consecutive PEs are on different nodes, so that
/// PE 0 and PE 1 measure the network.
fn by_open_mpi(launcher: &Path, nodes: Option<&Nodes>, layout: Layout) -> Command {
    let mut command = match nodes {
        None => Command::new("sh"),
        Some(nodes) => {
            let mut first = nodes.first();
            first.arg("sh");
            first
        }
    };
    command.args(["-c", IGNORING_ITS_END]).arg(launcher);
    allow_root(&mut command).args(["--oversubscribe", "--bind-to", "none"]);
    let Some(nodes) = nodes else { return command };
    command.args(["--map-by", "node", "-H", &nodes.hosts(layout.pes.div_ceil(2))]);
    command.args(["--mca", "plm_rsh_agent"]).arg(nodes.agent());
    // UCX over TCP between nodes, and over shared memory within each.
    for (parameter, value) in
        [("pml", "ucx"), ("pml_ucx_tls", "any"), ("pml_ucx_devices", "any"), ("spml", "ucx")]
    {
        command.args(["--mca", parameter, value]);
    }
    command.args(["-x", &format!("UCX_NET_DEVICES={DEVICE}")]);
    command
}

/// Returns MPICH's launcher with the options for PEs on two nodes: Nagaya's command and Sandia's
/// launcher start PEs on one node. Consecutive PEs are on different nodes.
fn by_hydra(nodes: &Nodes, layout: Layout) -> Result<Command, Failure> {
    let mut command = nodes.first();
    command.arg(hydra()?);
    command.args(["-hosts", &nodes.hosts(1), "-launcher", "ssh", "-launcher-exec"]);
    command.arg(nodes.agent()).args(["-n", &layout.pes.to_string()]);
    Ok(command)
}

/// Returns MPICH's launcher.
fn hydra() -> Result<PathBuf, Failure> {
    found("mpiexec.hydra", "mpich")
}
