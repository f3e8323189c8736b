//! What stubs, tools and the node server say to each other over a Unix socket
//! ([`Connection`]).

use std::os::fd::OwnedFd;

pub use pvas::connection::Connection;
use serde::{Deserialize, Serialize};

use crate::identity::Identity;
use crate::inherit::Inheritance;
use crate::maps::Mapping;

/// Changes with every change of a message.
const VERSION: u32 = 4;

/// `si_code` of signals that the terminal sends.
pub const SI_KERNEL: i32 = 0x80;

/// To the server.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Start a program as a task. Descriptors: its working directory; with [`Start::mounts`] the
    /// mount namespace and the root directory; then those of [`Start::fds`].
    Start(Box<Start>),
    /// Send the task a signal: number, and the value of sigqueue if it had one.
    Signal(i32, Option<i32>),
    /// Describe the job.
    Status,
    /// Describe the memory of the job's tasks.
    Maps,
}

/// What to start.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    /// Absolute, or relative to the working directory.
    pub path: Vec<u8>,
    /// `argv`.
    pub arguments: Vec<Vec<u8>>,
    /// `environ`.
    pub environment: Vec<Vec<u8>>,
    /// Numbers of the descriptors in the task, in the order in which they are sent.
    pub fds: Vec<i32>,
    /// Processes that the launcher starts on this node, as far as it tells.
    pub expected_tasks: Option<u32>,
    /// The ID that it must get.
    pub id: Option<u32>,
    /// The ID that it gets if that is free.
    pub preferred_id: Option<u32>,
    /// Rights and namespaces of the stub. `None`: those of the server, which is its child.
    pub identity: Option<Identity>,
    /// The stub sends its mounts.
    pub mounts: bool,
    /// It lives on when the stub goes away.
    pub outlives_stub: bool,
    /// Everything else.
    pub inheritance: Inheritance,
}

/// From the server.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The task runs.
    Started {
        /// ID in the space.
        id: u32,
        /// PID.
        pid: u32,
        /// It is in the stub's process group, and so gets the terminal's signals itself.
        in_group: bool,
        /// Tasks that stubs have started here, with this one.
        present: u32,
    },
    /// It cannot be a task of this server, since rights or namespaces differ.
    Apart {
        /// In what, for people.
        differences: Vec<String>,
        /// The server has sent this reply before, or its starter has got one: the user knows.
        is_known: bool,
    },
    /// It could not be started: one line, and the status to exit with.
    Refused(String, i32),
    /// To the stub of local rank 0: some of the job's ranks on this node have not come.
    RanksMissing {
        /// Tasks that stubs have started here.
        present: u32,
        /// Processes that the launcher starts on this node.
        expected: u32,
    },
    /// It was stopped by this signal.
    Stopped(i32),
    /// It has ended, with this wait status.
    Ended(i32),
    /// Answer to [`Request::Status`].
    Status(Status),
    /// Answer to [`Request::Maps`].
    Maps(Vec<Mapping>),
}

/// A job on this node.
#[derive(Debug, Serialize, Deserialize)]
pub struct Status {
    /// Name of the job.
    pub job: String,
    /// PID of the server.
    pub server: u32,
    /// Tasks that stubs have started here.
    pub present: u32,
    /// Processes that the launcher starts on this node, as far as it tells.
    pub expected: Option<u32>,
    /// Address of segment 0.
    pub base: u64,
    /// Bytes.
    pub segment_size: u64,
    /// IDs are below this.
    pub tasks_max: u32,
    /// Those that live.
    pub tasks: Vec<TaskStatus>,
    /// Parts with page tables of their own; the server's own mm is the first.
    pub domains: Vec<DomainStatus>,
}

/// A domain.
#[derive(Debug, Serialize, Deserialize)]
pub struct DomainStatus {
    /// PID of a process that has its mm: the server, or the domain's keeper.
    pub pid: u32,
    /// Its IDs: the first, and the first behind them. Those of the server's are all others.
    pub ids: (u32, u32),
    /// Its processors, if it has any of its own.
    pub processors: Vec<u32>,
    /// Resident bytes of other domains' segments.
    pub far: u64,
}

/// A living task.
#[derive(Debug, Serialize, Deserialize)]
pub struct TaskStatus {
    /// ID.
    pub id: u32,
    /// PID.
    pub pid: u32,
    /// Its domain.
    pub domain: u32,
    /// The stub that stands for it, if any.
    pub stub: Option<u32>,
    /// Messages copied in user space.
    pub copies: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// System-call sites led through the gate.
    pub sites_patched: u64,
    /// Sites whose number is not known to the patcher.
    pub sites_unreached: u64,
    /// Resident bytes of the segment.
    pub resident: u64,
    /// The program.
    pub path: String,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// A connection that speaks this protocol.
pub fn connection(socket: OwnedFd) -> Connection {
    Connection::new(socket, VERSION)
}
