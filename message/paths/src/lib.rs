//! The path that the data of an MPI job takes within a node: the transport of messages, and the
//! executor of collective operations.
//!
//! | module | topic |
//! |---|---|
//! | [`launched`] | the MPI and the shape of a job, from its launcher's environment |
//! | [`command_line`] | the programs in a launcher's command line |
//! | [`measured`] | the faster transports, as `nagaya tune --mpi` has measured them |
//! | [`transport`] | the transports |
//! | [`choice`] | the choice, and the settings that make the MPI follow it |

pub mod choice;
pub mod command_line;
pub mod launched;
pub mod measured;
pub mod transport;
