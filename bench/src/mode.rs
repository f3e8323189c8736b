//! The modes in which an MPI transfers a message between two ranks of a machine, as in Figures 9
//! and 10 of the PVAS paper. `settings` selects them, and `nagaya-bench modes` verifies them with
//! strace and `nagaya ps`.

/// A mode of message transfer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub enum Mode {
    /// Shared memory, eager for all sizes: two copies
    Eager,
    /// Shared memory, rendezvous for all sizes, single copy off: two copies
    Rendezvous,
    /// Single copy by the kernel (process_vm_readv) above the library's threshold: the default of
    /// most MPIs
    Cma,
    /// As `cma`, under `nagaya exec`, by the MPI's own calls
    Space,
    /// No MPI: one copy of data in the other core's cache, by the best loop of `copy`
    Limit,
    /// Under `nagaya exec`, by libfabric with Nagaya's provider
    Provider,
    /// As `space`, with `--protect=writes`
    Protected,
    /// As `space`, with `--protect=all`
    ProtectedAll,
    /// The default settings, under `nagaya exec` without options
    Exec,
}

impl Mode {
    /// Returns the value of `--protect`, if the mode has one.
    pub fn protection(self) -> Option<&'static str> {
        match self {
            Mode::Protected => Some("writes"),
            Mode::ProtectedAll => Some("all"),
            _ => None,
        }
    }

    /// Returns true if ranks run under `nagaya exec`.
    pub fn is_in_space(self) -> bool {
        matches!(self, Mode::Space | Mode::Provider | Mode::Exec) || self.protection().is_some()
    }

    /// Returns its name in tables and figures.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Eager => "eager",
            Mode::Rendezvous => "rendezvous",
            Mode::Cma => "CMA",
            Mode::Space => "space",
            Mode::Limit => "limit",
            Mode::Provider => "provider",
            Mode::Protected => "protected",
            Mode::ProtectedAll => "protected-all",
            Mode::Exec => "exec",
        }
    }

    /// Returns its name in files and options.
    pub fn key(self) -> &'static str {
        match self {
            Mode::Cma => "cma",
            other => other.name(),
        }
    }

    /// Returns its description in a legend.
    pub fn words(self) -> &'static str {
        match self {
            Mode::Eager => "shared memory, eager",
            Mode::Rendezvous => "shared memory, rendezvous",
            Mode::Cma => "single copy by the kernel (CMA)",
            Mode::Space => "one space, by the MPI's calls",
            Mode::Limit => "limit: one copy",
            Mode::Provider => "one space, by libfabric",
            Mode::Protected => "one space, --protect=writes",
            Mode::ProtectedAll => "one space, --protect=all",
            Mode::Exec => "nagaya exec",
        }
    }
}
