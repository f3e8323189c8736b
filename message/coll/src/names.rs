//! The table of the functions that this library exports. A program sees those that its MPI has
//! (`loaded::names`).

use loaded::names::Name;

use crate::calls::*;
use crate::messages::*;

macro_rules! names {
    ($($function:ident $profiled:ident),* $(,)?) => {
        [$(names!(@one $function, $profiled), names!(@one $profiled, $profiled)),*]
    };
    (@one $name:ident, $profiled:ident) => {
        loaded::name!(stringify!($name), stringify!($profiled), $name)
    };
}

/// All functions that the library exports.
pub static NAMES: [Name; 36] = names! {
    MPI_Init PMPI_Init, MPI_Init_thread PMPI_Init_thread, MPI_Finalize PMPI_Finalize,
    MPI_Barrier PMPI_Barrier,
    MPI_Bcast PMPI_Bcast, MPI_Reduce PMPI_Reduce, MPI_Allreduce PMPI_Allreduce,
    MPI_Allgather PMPI_Allgather, MPI_Alltoall PMPI_Alltoall,
    MPI_Bcast_c PMPI_Bcast_c, MPI_Reduce_c PMPI_Reduce_c, MPI_Allreduce_c PMPI_Allreduce_c,
    MPI_Allgather_c PMPI_Allgather_c, MPI_Alltoall_c PMPI_Alltoall_c,
    MPI_Send PMPI_Send, MPI_Isend PMPI_Isend, MPI_Wait PMPI_Wait, MPI_Waitall PMPI_Waitall,
};
