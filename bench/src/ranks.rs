//! Command lines that start MPI ranks.

use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

use crate::failure::Failure;
use crate::launch::{Nagaya, Side};
use crate::mode::Mode;
use crate::mpi::{Mpi, allow_root};
use crate::settings::Settings;

impl Mpi {
    /// Returns the command that runs `program` with the library's default settings.
    pub fn by_default(
        self,
        ranks: usize,
        side: Side,
        nagaya: &Nagaya,
        program: &Path,
    ) -> Result<Command, Failure> {
        let mut command = self.ranks_with(ranks, &[])?;
        if side == Side::Nagaya {
            command.arg(&nagaya.command).arg("exec");
        }
        command.arg(program);
        Ok(command)
    }

    /// Returns the command that runs `program` on `nodes` nodes of shared memory. If there are
    /// enough cores, each node is bound to its own one, with all its threads, as on a cluster.
    /// Threads that migrate between cores take two to three times as long. Only for Open MPI.
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

    /// Returns the command that runs `ranks` ranks of `program` without binding them. Each rank may
    /// be several processes. Only for Open MPI 4.
    pub fn unbound(self, ranks: usize, program: &Path) -> Result<Command, Failure> {
        let mut command = Command::new(self.launcher()?);
        allow_root(&mut command).args(["-n", &ranks.to_string(), "--oversubscribe"]);
        command.args(["--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]).arg(program);
        Ok(command)
    }

    /// Returns the command that runs `ranks` ranks of `program` in this mode; `None` if the library
    /// does not have the mode. If there are enough cores, each rank is bound to its own one, in all
    /// modes alike, since migration adds noise.
    pub fn ranks(
        self,
        ranks: usize,
        mode: Mode,
        nagaya: &Nagaya,
        program: &Path,
    ) -> Result<Option<Command>, Failure> {
        let Some(settings) = self.settings(mode) else { return Ok(None) };
        let mut command = self.ranks_with(ranks, settings)?;
        if mode == Mode::Provider {
            command.env("FI_PROVIDER_PATH", nagaya.provider()?);
        }
        if mode.is_in_space() {
            command.arg(&nagaya.command).arg("exec");
            if mode != Mode::Exec {
                command.args(["--collectives", "mpi"]);
            }
        }
        if let Some(protection) = mode.protection() {
            command.arg(format!("--protect={protection}"));
        }
        command.arg(program);
        Ok(Some(command))
    }

    /// Returns the launcher for `ranks` ranks with these settings. The program is still missing.
    fn ranks_with(self, ranks: usize, settings: Settings) -> Result<Command, Failure> {
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
        Ok(command)
    }
}

/// Returns true if each rank can have its own core.
fn is_a_core_each(ranks: usize) -> bool {
    available_parallelism().is_ok_and(|cores| ranks <= cores.get())
}

/// Returns a remark for tables if there are more ranks than cores.
pub fn oversubscribed(ranks: usize) -> &'static str {
    if is_a_core_each(ranks) { "" } else { ", oversubscribed" }
}
