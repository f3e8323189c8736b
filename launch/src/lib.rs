//! Starting the nodes of a job: processes on this host and, by ssh, on others, which are told
//! their part and of each other, and end with the process that started them.
//!
//! [`hosts`] reads lists of hosts and host files; [`placement`] which tasks run on which
//! processors of which machine; [`processors`] shares processors out. [`nodes`] starts the node
//! processes, lets them meet and waits for the program; a [`conversation`] with each leads there.
//! [`ssh`] runs a command on another host. [`messages`] are what starter and node say to each
//! other over the control channel, and [`control`] is the node's end of that channel.
//! [`signals`] are those that are passed on to programs, [`status`] how a program ended.

pub mod control;
pub mod conversation;
mod error;
pub mod hosts;
pub mod messages;
pub mod nodes;
pub mod placement;
pub mod processors;
pub mod signals;
pub mod ssh;
pub mod status;

pub use error::Error;
