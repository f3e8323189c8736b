//! The environment variables that make each MPI library use a mode.

use crate::mode::Mode;
use crate::mpi::Mpi;

/// Largest eager message in bytes: the largest measured size, and room for headers.
const EAGER_MAX: &str = "4200000";
/// Bytes of shared memory per rank for eager messages of that size.
const EAGER_SEGMENT: &str = "536870912";

/// Names and values of environment variables.
pub type Settings = &'static [(&'static str, &'static str)];

impl Mpi {
    /// Returns the settings for a mode; `None` if the library does not have it. The space,
    /// also with protection, has the settings of CMA: a single copy by the kernel becomes one in
    /// user space.
    pub fn settings(self, mode: Mode) -> Option<Settings> {
        Some(match (self, mode) {
            (_, Mode::Limit) => return None,
            (_, Mode::Exec) => &[],
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
            // Debian builds MPICH without libfabric.
            (Mpi::Mpich4, Mode::Provider) => return None,
            (Mpi::Mpich5, Mode::Provider) => &[
                ("MPIR_CVAR_CH4_NETMOD", "ofi"),
                ("MPIR_CVAR_NOLOCAL", "1"),
                ("FI_PROVIDER", "nagaya"),
            ],
            (Mpi::Intel, Mode::Provider) => &[("I_MPI_FABRICS", "ofi"), ("FI_PROVIDER", "nagaya")],
            // Open MPI rejects an eager limit below about 100 bytes.
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
            // MPICH's own shared memory has no rendezvous. UCX has one, and MPICH uses UCX if no
            // rank counts as local.
            (Mpi::Mpich5, Mode::Eager) => &[("MPIR_CVAR_CH4_CMA_ENABLE", "0")],
            (Mpi::Mpich5, Mode::Rendezvous) => &[
                ("MPIR_CVAR_NOLOCAL", "1"),
                ("MPIR_CVAR_CH4_NETMOD", "ucx"),
                ("UCX_TLS", "posix,self"),
                ("UCX_RNDV_THRESH", "0"),
            ],
            // Large messages pass through cells of shared memory in pieces. Intel MPI has no other
            // mode with two copies.
            (Mpi::Intel, Mode::Eager) => return None,
            (Mpi::Intel, Mode::Rendezvous) => &[("I_MPI_SHM_CMA", "0")],
            // Single copy is off by default.
            (Mpi::Intel, Mode::Cma | Mode::Space | Mode::Protected | Mode::ProtectedAll) => {
                &[("I_MPI_SHM_CMA", "2"), ("I_MPI_SHM_CMA_THRESHOLD", "8192")]
            }
            (_, Mode::Cma | Mode::Space | Mode::Protected | Mode::ProtectedAll) => &[],
        })
    }
}
