//! The ways in which an MPI moves a message between two ranks of a machine, as in Figures 9
//! and 10 of the PVAS paper, and the settings that make each library take them.
//!
//! `nagaya-bench modes` checks with strace and `nagaya ps` that they do what they say.

use crate::mpi::Mpi;

/// A way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub enum Mode {
    /// Shared memory, always at once, whatever the size: two copies
    Eager,
    /// Shared memory, always after agreement with the receiver, single copy off: two copies
    Rendezvous,
    /// Single copy by the kernel (process_vm_readv) from the library's own threshold on:
    /// what users of this MPI have today
    Cma,
    /// The same under `nagaya exec`
    Space,
    /// No MPI: one copy of what the other core holds, by the best loop of `copy`
    Limit,
    /// Under `nagaya exec`, by libfabric and our provider for it
    Provider,
}

/// Eager messages up to this size: what we measure, and room for headers.
const EAGER_MAX: &str = "4200000";
/// Shared memory a rank for eager messages of that size.
const EAGER_SEGMENT: &str = "536870912";

/// Names and values of environment variables.
pub type Settings = &'static [(&'static str, &'static str)];

impl Mode {
    /// As it is called in tables and figures.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Eager => "eager",
            Mode::Rendezvous => "rendezvous",
            Mode::Cma => "CMA",
            Mode::Space => "space",
            Mode::Limit => "limit",
            Mode::Provider => "provider",
        }
    }

    /// As it is called in files and options.
    pub fn key(self) -> &'static str {
        match self {
            Mode::Cma => "cma",
            other => other.name(),
        }
    }

    /// As it is called in a legend.
    pub fn words(self) -> &'static str {
        match self {
            Mode::Eager => "shared memory, eager",
            Mode::Rendezvous => "shared memory, rendezvous",
            Mode::Cma => "single copy by the kernel (CMA)",
            Mode::Space => "one space (nagaya exec)",
            Mode::Limit => "limit: one copy",
            Mode::Provider => "one space, by libfabric",
        }
    }

    /// What takes `mpi` this way; `None` where it has none. The space has the settings of
    /// CMA: whatever single copy the library makes by the kernel ends in one of ours.
    pub fn settings(self, mpi: Mpi) -> Option<Settings> {
        Some(match (mpi, self) {
            (_, Mode::Limit) => return None,
            (Mpi::Ompi4, Mode::Provider) => &[
                ("OMPI_MCA_pml", "cm"),
                ("OMPI_MCA_mtl", "ofi"),
                ("OMPI_MCA_mtl_ofi_provider_include", "nagaya"),
            ],
            (Mpi::Ompi5, Mode::Provider) => &[
                ("OMPI_MCA_pml", "cm"),
                ("OMPI_MCA_mtl", "ofi"),
                ("OMPI_MCA_opal_common_ofi_provider_include", "nagaya"),
            ],
            // Debian's is built without libfabric.
            (Mpi::Mpich4, Mode::Provider) => return None,
            (Mpi::Mpich5, Mode::Provider) => &[
                ("MPIR_CVAR_CH4_NETMOD", "ofi"),
                ("MPIR_CVAR_NOLOCAL", "1"),
                ("FI_PROVIDER", "nagaya"),
            ],
            (Mpi::Intel, Mode::Provider) => &[("I_MPI_FABRICS", "ofi"), ("FI_PROVIDER", "nagaya")],
            // An eager limit below some 100 bytes is refused.
            (Mpi::Ompi4, Mode::Eager) => &[
                ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
                ("OMPI_MCA_btl_vader_eager_limit", EAGER_MAX),
                ("OMPI_MCA_btl_vader_max_send_size", EAGER_MAX),
                ("OMPI_MCA_btl_vader_segment_size", EAGER_SEGMENT),
            ],
            (Mpi::Ompi4, Mode::Rendezvous) => &[
                ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
                ("OMPI_MCA_btl_vader_eager_limit", "128"),
            ],
            (Mpi::Ompi5, Mode::Eager) => &[
                ("OMPI_MCA_smsc", "^cma,xpmem,knem"),
                ("OMPI_MCA_btl_sm_eager_limit", EAGER_MAX),
                ("OMPI_MCA_btl_sm_max_send_size", EAGER_MAX),
                ("OMPI_MCA_btl_sm_segment_size", EAGER_SEGMENT),
            ],
            (Mpi::Ompi5, Mode::Rendezvous) => {
                &[("OMPI_MCA_smsc", "^cma,xpmem,knem"), ("OMPI_MCA_btl_sm_eager_limit", "128")]
            }
            (Mpi::Mpich4, Mode::Eager) => &[("UCX_TLS", "posix,self"), ("UCX_RNDV_THRESH", "inf")],
            (Mpi::Mpich4, Mode::Rendezvous) => {
                &[("UCX_TLS", "posix,self"), ("UCX_RNDV_THRESH", "0")]
            }
            // Its own shared memory knows no rendezvous; UCX's does, where it is told that
            // nobody is near.
            (Mpi::Mpich5, Mode::Eager) => &[("MPIR_CVAR_CH4_CMA_ENABLE", "0")],
            (Mpi::Mpich5, Mode::Rendezvous) => &[
                ("MPIR_CVAR_NOLOCAL", "1"),
                ("MPIR_CVAR_CH4_NETMOD", "ucx"),
                ("UCX_TLS", "posix,self"),
                ("UCX_RNDV_THRESH", "0"),
            ],
            // Large messages pass through cells of shared memory, piece by piece. There is
            // no other way that copies twice.
            (Mpi::Intel, Mode::Eager) => return None,
            (Mpi::Intel, Mode::Rendezvous) => &[("I_MPI_SHM_CMA", "0")],
            // Off unless asked for.
            (Mpi::Intel, Mode::Cma | Mode::Space) => {
                &[("I_MPI_SHM_CMA", "2"), ("I_MPI_SHM_CMA_THRESHOLD", "8192")]
            }
            (_, Mode::Cma | Mode::Space) => &[],
        })
    }
}
