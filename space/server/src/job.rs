//! Jobs: the processes that form a job on this node, and the path of their node server's socket.
//!
//! The launcher defines a job. Several jobs and users on a node stay separate. Processes of one job
//! that differ in rights or namespaces have separate servers ([`Identity`]), with sockets in one
//! directory: `NAME-JOB-IDENTITY.sock`. JOB and IDENTITY are numbers. One lock file,
//! `NAME-JOB.lock`, serves all servers of a job.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use control::{fnv1a, peer};
use proc::process::Stat;
use rustix::io::Errno;

use crate::Failure;
use crate::identity::Identity;

/// The job of the calling process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Name of the job in messages and in the names of its tasks.
    pub name: String,
    /// Number of tasks that the launcher will start on this node, or an upper limit, if it reports
    /// one.
    pub local_tasks: Option<u32>,
    /// Index of this process among them.
    pub local_rank: Option<u32>,
    /// Exact number of processes of the job on this node, if known.
    pub expected_tasks: Option<u32>,
}

/// Variables with the number of processes on this node: Open MPI's, MPICH's and Intel MPI's,
/// MVAPICH's, PMIx's.
const LOCAL_SIZE: &[&str] = &[
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "PMIX_LOCAL_SIZE",
];
/// Slurm's list of tasks for each node, such as `2(x3),1`, and this node's index in it.
const SLURM_SIZES: &str = "SLURM_STEP_TASKS_PER_NODE";
const SLURM_NODE: &str = "SLURM_NODEID";
/// Slurm's upper limit of tasks on a node.
const LOCAL_SIZE_MAX: &str = "SLURM_NTASKS_PER_NODE";
/// Variables with the local rank of a process.
const LOCAL_RANK: &[&str] = &[
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
    "PMIX_LOCAL_RANK",
];

impl Job {
    /// Returns the job of the given name, or the launcher's job according to its environment.
    /// Without either, returns a new job for this process alone.
    pub fn of_environment(name: Option<&str>, variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let given = |key: &str| variable(key).filter(|value| !value.is_empty());
        let number = |keys: &[&str]| keys.iter().find_map(|key| given(key)?.parse::<u32>().ok());
        let name = if let Some(name) = name {
            name.to_string()
        } else if let Some(name) = given("NAGAYA_JOB") {
            name
        } else if let Some(launcher) = given("PMI_FD").and_then(|fd| peer_pid(fd.parse().ok()?)) {
            // Launchers with PMIx close this socket. If it is open, its launcher is the inner of
            // two.
            of_process(launcher)
        } else if let Some(namespace) = given("PMIX_NAMESPACE") {
            format!("pmix:{namespace}")
        } else if let (Some(job), Some(step)) = (given("SLURM_JOB_ID"), given("SLURM_STEP_ID")) {
            format!("slurm:{job}.{step}")
        } else if let Some(port) = given("PMI_PORT") {
            format!("pmi:{port}")
        } else if given("PMI_FD").or(given("PMI_RANK")).is_some() {
            of_process(parent_pid())
        } else {
            format!("exec:{}", std::process::id())
        };
        let slurm = || nth_of_slurms(&given(SLURM_SIZES)?, number(&[SLURM_NODE])?);
        let expected_tasks = number(LOCAL_SIZE).or_else(slurm);
        Self {
            name,
            local_tasks: expected_tasks.or_else(|| number(&[LOCAL_SIZE_MAX])),
            expected_tasks,
            local_rank: number(LOCAL_RANK),
        }
    }

    /// Returns the job for programs linked to fixed addresses, if this job's space cannot have
    /// domains.
    pub fn apart(&self) -> Self {
        Self { name: format!("{}.fixed", self.name), ..self.clone() }
    }

    /// Returns true if the name was made by [`Job::apart`]. Such a job has only some of the ranks.
    pub fn is_apart(name: &str) -> bool {
        name.ends_with(".fixed")
    }

    /// Returns the path in `directory` of the job's socket for programs of this identity.
    pub fn socket(&self, directory: &Path, identity: &Identity) -> PathBuf {
        directory.join(format!("{}-{:016x}.sock", self.stem(), identity.number()))
    }

    /// Returns the path in `directory` of the job's lock file.
    pub fn lock(&self, directory: &Path) -> PathBuf {
        directory.join(format!("{}.lock", self.stem()))
    }

    /// Returns the paths in `directory` of all sockets of the job, for all identities.
    pub fn sockets(&self, directory: &Path) -> Vec<PathBuf> {
        let prefix = format!("{}-", self.stem());
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let is_ours = |name: &str| name.starts_with(&prefix) && name.ends_with(".sock");
        let names = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_ours));
        let mut paths: Vec<PathBuf> = names.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    }

    /// Returns the common part of file names: a readable part and a hash of the job's name.
    fn stem(&self) -> String {
        let readable: String = self
            .name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "-_.@".contains(c) { c } else { '_' })
            .take(24)
            .collect();
        format!("{readable}-{:012x}", fnv1a(self.name.as_bytes()) >> 16)
    }
}

/// Returns the name of a job whose launcher on this node is this process.
fn of_process(launcher: i32) -> String {
    format!("pmi:{launcher}.{}", start_time(launcher).unwrap_or(0))
}

/// Returns entry `node` of a list of Slurm, such as `2(x3),1`: 2 for the first three nodes, 1 for
/// the fourth.
fn nth_of_slurms(list: &str, node: u32) -> Option<u32> {
    let mut nodes = 0;
    for entry in list.split(',') {
        let (tasks, times) = match entry.split_once("(x") {
            Some((tasks, times)) => (tasks, times.strip_suffix(')')?.parse::<u32>().ok()?),
            None => (entry, 1),
        };
        nodes += u64::from(times);
        if u64::from(node) < nodes {
            return tasks.trim().parse().ok();
        }
    }
    None
}

/// Returns the PID of the process at the other end of a launcher's PMI socket.
fn peer_pid(fd: i32) -> Option<i32> {
    if fd < 0 {
        return None;
    }
    // SAFETY: the borrow only queries the socket's peer. A number that is not open gives EBADF.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    peer::credentials(fd).ok().map(|peer| peer.pid).filter(|&pid| pid > 0)
}

fn parent_pid() -> i32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get())
}

/// Returns the start time of a process in clock ticks since boot. It distinguishes the process from
/// a later one with the same PID.
fn start_time(pid: i32) -> Option<u64> {
    Stat::read(&format!("/proc/{pid}")).ok()?.field(22)
}

/// Returns the user's directory for sockets (`control::directory`).
pub fn directory() -> Result<PathBuf, Failure> {
    control::directory().map_err(Failure::ours)
}

/// Connects to the socket at `path`. A server that is stopped accepts nobody, and the kernel keeps
/// clients waiting once its queue is full.
///
/// # Errors
/// ECONNREFUSED if no process listens, or TimedOut.
pub fn connect(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(timeout))?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => {}
        Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
        Err(errno) => return Err(errno.into()),
    }
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, None)?;
    Ok(socket.into())
}

/// Listens on `path`, accessible to this user only. Replaces the socket of a server that was
/// killed.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let _ = fs::remove_file(path);
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    listener
}

/// Returns the peer's PID, or an error if the peer is another user. The PID is 0 if the peer is in
/// another PID namespace.
pub fn check_peer(socket: impl AsFd) -> Result<i32, Failure> {
    let peer = peer::credentials(socket)
        .map_err(|error| Failure::ours(format!("cannot tell who is at the socket: {error}")))?;
    if peer.uid != rustix::process::geteuid().as_raw() {
        return Err(Failure::ours(format!("user {} is at the socket, not we", peer.uid)));
    }
    Ok(peer.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(variables: &[(&str, &str)]) -> Job {
        Job::of_environment(None, &|key| {
            variables.iter().find(|v| v.0 == key).map(|v| v.1.to_string())
        })
    }

    #[test]
    fn launchers_name_their_jobs() {
        assert_eq!(job(&[("PMIX_NAMESPACE", "123")]).name, "pmix:123");
        assert_eq!(job(&[("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0")]).name, "slurm:7.0");
        assert!(job(&[("PMI_RANK", "0")]).name.starts_with("pmi:"));
        assert_eq!(job(&[("PMI_PORT", "a:7"), ("PMI_ID", "1")]).name, "pmi:a:7");
        assert_eq!(job(&[]).name, format!("exec:{}", std::process::id()));
        assert_eq!(job(&[("NAGAYA_JOB", "mine"), ("PMIX_NAMESPACE", "1")]).name, "mine");
        assert_eq!(job(&[("MPI_LOCALNRANKS", "8")]).local_tasks, Some(8));
        let slurm = |node| {
            let step = [("SLURM_STEP_TASKS_PER_NODE", "2(x3),1"), ("SLURM_NODEID", node)];
            job(&step).expected_tasks
        };
        assert_eq!([slurm("0"), slurm("2"), slurm("3")], [Some(2), Some(2), Some(1)]);
        assert_eq!([slurm("4"), slurm("")], [None, None]);
        assert_eq!(nth_of_slurms("2(x", 0), None);
    }

    #[test]
    fn the_inner_of_two_launchers_names_the_job() {
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let fd = std::os::fd::AsRawFd::as_raw_fd(&socket).to_string();
        let own = of_process(std::process::id() as i32);
        let outer = [("PMIX_NAMESPACE", "1"), ("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0")];
        assert_eq!(job(&[&outer[..], &[("PMI_FD", &fd)]].concat()).name, own);
        assert_eq!(job(&[&outer[..], &[("PMI_FD", "-1")]].concat()).name, "pmix:1");
        assert_eq!(job(&[&outer[1..], &[("PMI_FD", "-1")]].concat()).name, "slurm:7.0");
    }

    #[test]
    fn jobs_and_identities_have_sockets_of_their_own() {
        let directory = std::env::temp_dir().join(format!("nagaya-job-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let identity = Identity::of_this_process();
        let (one, two) = (job(&[("NAGAYA_JOB", "a/b")]), job(&[("NAGAYA_JOB", "a_b")]));
        let path = one.socket(&directory, &identity);
        assert_ne!(path, two.socket(&directory, &identity));
        assert_eq!(path, one.socket(&directory, &identity));
        assert_eq!(path.parent(), Some(&*directory));
        fs::write(&path, "").unwrap();
        assert_eq!(one.sockets(&directory), [path]);
        assert!(two.sockets(&directory).is_empty());
        assert_ne!(one.lock(&directory), two.lock(&directory));
        fs::remove_dir_all(&directory).unwrap();
    }
}
