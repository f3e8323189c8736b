//! Queries of tools to the node servers of this user.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Failure;
use crate::job::{check_peer, directory};
use crate::maps::Mapping;
use crate::protocol::{Reply, Request, Status, connection};

/// Time limit for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the sockets of all jobs of this user on this node.
fn sockets() -> Result<Vec<PathBuf>, Failure> {
    let directory = directory()?;
    let entries = fs::read_dir(&directory)
        .map_err(|e| Failure::ours(format!("{}: {e}", directory.display())))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "sock")).collect();
    paths.sort();
    Ok(paths)
}

/// Sends a request to the server at `socket`. Returns the answer and the server's PID in this
/// namespace.
fn ask(socket: &Path, request: &Request) -> Option<(Reply, i32)> {
    let stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).ok()?;
    let pid = check_peer(&stream).ok()?;
    let mut connection = connection(stream.into());
    connection.send(request, &[]).ok()?;
    Some((connection.receive().ok()??, pid))
}

/// A job and the socket of its server.
#[derive(Debug)]
pub struct JobStatus {
    socket: PathBuf,
    /// The status that its server reported.
    pub status: Status,
    /// The job's PIDs are valid in this process's PID namespace.
    pub same_pids: bool,
}

impl JobStatus {
    /// Returns the mappings in the job's segments.
    pub fn maps(&self) -> Result<Vec<Mapping>, Failure> {
        match ask(&self.socket, &Request::Maps) {
            Some((Reply::Maps(mappings), _)) => Ok(mappings),
            _ => Err(Failure::ours(format!("job {}: its server does not answer", self.status.job))),
        }
    }
}

/// Returns all jobs of this user on this node. Skips sockets whose server does not answer.
pub fn jobs() -> Result<Vec<JobStatus>, Failure> {
    let status = |socket: PathBuf| match ask(&socket, &Request::Status) {
        Some((Reply::Status(status), pid)) => {
            let same_pids = status.server as i32 == pid;
            Some(JobStatus { socket, status, same_pids })
        }
        _ => None,
    };
    Ok(sockets()?.into_iter().filter_map(status).collect())
}

/// The tasks that a user selects by `JOB`, `JOB.ID` or `PID`.
#[derive(Debug)]
pub struct Selection {
    /// The job.
    pub job: JobStatus,
    /// One task of it, or all.
    pub id: Option<u32>,
}

/// Finds the tasks that `name` selects. It is first compared with PIDs of living tasks and stubs,
/// then with jobs, then with JOB.ID, split at the last dot.
pub fn select(name: &str) -> Result<Selection, Failure> {
    let jobs = jobs()?;
    let pid = name.parse::<u32>().ok();
    for (index, job) in jobs.iter().enumerate() {
        let of_pid = |t: &&crate::protocol::TaskStatus| Some(t.pid) == pid || t.stub == pid;
        if pid.is_some()
            && job.same_pids
            && let Some(task) = job.status.tasks.iter().find(of_pid)
        {
            let id = Some(task.id);
            let job = jobs.into_iter().nth(index).expect("the index is its own");
            return Ok(Selection { job, id });
        }
    }
    let (stem, id) = match name.rsplit_once('.') {
        Some((stem, id)) => (stem, id.parse::<u32>().ok()),
        None => (name, None),
    };
    for job in jobs {
        if job.status.job == name {
            return Ok(Selection { job, id: None });
        }
        let has = |id| job.status.tasks.iter().any(|t| t.id == id);
        if job.status.job == stem && id.is_some_and(has) {
            return Ok(Selection { job, id });
        }
    }
    Err(Failure::ours(format!("{name}: no such task or job (see nagaya ps)")))
}
