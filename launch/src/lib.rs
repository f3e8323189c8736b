//! Starts the nodes of a job: processes on this host and, by ssh, on others. Each node receives its
//! part and the addresses of the others, and ends with the process that started it.
//!
//! [`hosts`] reads lists of hosts and host files. [`placement`] assigns tasks to processors and
//! machines, and [`processors`] divides the processors of one machine. [`nodes`] starts the node
//! processes, connects them and waits for the program. [`meeting`] decides if they begin, and
//! [`system`] has the system calls for that. [`ssh`] runs a command on another host. [`messages`]
//! are the messages between the starter and a node over the control channel, and [`control`] is the
//! node's end of that channel. [`signals`] are forwarded to programs. [`status`] describes how a
//! program ended.

pub mod control;
mod error;
pub mod hosts;
pub mod meeting;
pub mod messages;
pub mod nodes;
pub mod placement;
pub mod processors;
pub mod signals;
pub mod ssh;
pub mod status;
pub mod system;

pub use error::Error;
