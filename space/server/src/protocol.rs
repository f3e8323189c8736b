//! The messages between stubs, tools and the node server, over a Unix socket ([`Connection`]).

use std::os::fd::OwnedFd;

use pvas::Protection;
pub use pvas::connection::Connection;
use serde::{Deserialize, Serialize};

use crate::identity::Identity;
use crate::inherit::Inheritance;
use crate::maps::Mapping;

/// Version of the protocol; changes with every change of a message.
const VERSION: u32 = 6;

/// Limit of a request's body in bytes. The kernel passes at most 6 MiB of arguments and environment
/// to a stub.
pub const REQUEST_SIZE_MAX: usize = 8 << 20;

/// `si_code` of signals that the terminal sends.
pub const SI_KERNEL: i32 = 0x80;

/// A request to the server.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Start a program as a task. Descriptors: its working directory; with [`Start::mounts`] also
    /// the mount namespace and the root directory; then the descriptors of [`Start::fds`].
    Start(Box<Start>),
    /// Send the task a signal: the number, and the value of sigqueue if there was one.
    Signal(i32, Option<i32>),
    /// Describe the job.
    Status,
    /// Describe the memory of the job's tasks.
    Maps,
}

/// The program to start, and its attributes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    /// Path of the program, absolute or relative to the working directory.
    pub path: Vec<u8>,
    /// `argv`.
    pub arguments: Vec<Vec<u8>>,
    /// `environ`.
    pub environment: Vec<Vec<u8>>,
    /// Numbers of the descriptors in the task, in the order in which the stub sends them.
    pub fds: Vec<i32>,
    /// Number of processes that the launcher starts on this node, if it reports that.
    pub expected_tasks: Option<u32>,
    /// Required ID of the task.
    pub id: Option<u32>,
    /// Preferred ID of the task, used if it is free.
    pub preferred_id: Option<u32>,
    /// Rights and namespaces of the stub. `None` means those of the server, which is the stub's
    /// child.
    pub identity: Option<Identity>,
    /// The stub sends its mounts too.
    pub mounts: bool,
    /// The protection that the stub requests.
    pub protection: Option<Protection>,
    /// The task lives on when the stub disconnects.
    pub outlives_stub: bool,
    /// All other inherited attributes.
    pub inheritance: Inheritance,
}

/// A reply from the server.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The task runs.
    Started {
        /// ID in the space.
        id: u32,
        /// PID.
        pid: u32,
        /// The task is in the stub's process group, so it gets the terminal's signals directly.
        in_group: bool,
        /// Number of tasks that stubs have started in this space, including this one.
        present: u32,
    },
    /// The program cannot be a task of this server, since rights or namespaces differ.
    Apart {
        /// Names of the differences, for messages.
        differences: Vec<String>,
        /// The user already knows: the server has sent this reply before, or its starter has got
        /// one.
        is_known: bool,
    },
    /// The stub requests another protection than the job has; has a line to print. Nothing was run.
    Disagrees(String),
    /// The task could not be started; has a line to print and the status to exit with.
    Refused(String, i32),
    /// Some of the job's ranks on this node have not started; sent to the stub of local rank 0.
    RanksMissing {
        /// Number of tasks that stubs have started in this space.
        present: u32,
        /// Number of processes that the launcher starts on this node.
        expected: u32,
    },
    /// The task was stopped.
    Stopped {
        /// The signal that stopped it.
        signal: i32,
        /// Number of SIGCONT that the server had received from this stub. If the stub has sent
        /// more, the server has continued the task meanwhile.
        continues: u64,
    },
    /// The task has ended, with this wait status.
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
    /// Number of tasks that stubs have started in this space.
    pub present: u32,
    /// Number of processes that the launcher starts on this node, if it reports that.
    pub expected: Option<u32>,
    /// Address of segment 0.
    pub base: u64,
    /// Size of a segment in bytes.
    pub segment_size: u64,
    /// Number of IDs; every ID is lower.
    pub tasks_max: u32,
    /// The protection of the tasks from each other.
    pub protection: Option<Protection>,
    /// The living tasks.
    pub tasks: Vec<TaskStatus>,
    /// Domains, each with separate page tables; the first is the server's own mm.
    pub domains: Vec<DomainStatus>,
}

/// A domain.
#[derive(Debug, Serialize, Deserialize)]
pub struct DomainStatus {
    /// PID of a process in its mm: the server, or the domain's keeper.
    pub pid: u32,
    /// First ID, and the ID behind the last. The server's domain has all IDs that no other domain
    /// has.
    pub ids: (u32, u32),
    /// Its processors; empty if they are the server's.
    pub processors: Vec<u32>,
    /// Resident bytes of views of other domains' segments.
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
    /// PID of the stub that represents it, if any.
    pub stub: Option<u32>,
    /// Messages copied in user space.
    pub copies: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// System-call sites that the gate patched.
    pub sites_patched: u64,
    /// System-call sites whose number the gate could not determine.
    pub sites_unreached: u64,
    /// Resident bytes of the segment.
    pub resident: u64,
    /// The program.
    pub path: String,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// Returns a connection of this protocol over `socket`.
pub fn connection(socket: OwnedFd) -> Connection {
    Connection::new(socket, VERSION)
}
