//! Queries of tools to the node servers of this user.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::job::{Job, check_peer, connect, directory};
use crate::maps::Mapping;
use crate::protocol::{Connection, Reply, Request, Status, connection};

/// Time limit for an answer. A server answers between two starts of tasks.
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

/// A request that was sent to a server.
struct Asked {
    connection: Connection,
    /// PID of the server in this namespace.
    pid: i32,
}

/// The answer of a server.
enum Answer {
    Reply(Reply, i32),
    /// It has ended, or does not run.
    Gone,
    /// It did not answer in time; has its PID, or 0 if that is unknown.
    Late(i32),
}

/// Sends a request to the server at `socket`.
fn ask(socket: &Path, request: &Request, deadline: Instant) -> Result<Asked, Answer> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let stream = connect(socket, left).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => Answer::Late(0),
        _ => Answer::Gone,
    })?;
    let pid = check_peer(&stream).map_err(|_| Answer::Gone)?;
    let connection = connection(stream.into());
    // The request fits into the socket.
    connection.send(request, &[]).map_err(|_| Answer::Gone)?;
    Ok(Asked { connection, pid })
}

impl Asked {
    /// Waits for the answer.
    fn answer(mut self, deadline: Instant) -> Answer {
        match self.connection.receive_until(deadline) {
            Ok(Some(reply)) => Answer::Reply(reply, self.pid),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Answer::Late(self.pid),
            Ok(None) | Err(_) => Answer::Gone,
        }
    }
}

/// Returns the message about a server that did not answer.
fn late(name: &str, pid: i32) -> String {
    let (server, remedy) = match pid {
        0 => ("node server".into(), "resume it".into()),
        pid => (format!("node server (PID {pid})"), format!("kill -CONT {pid}")),
    };
    let seconds = ANSWER_TIMEOUT.as_secs();
    format!("{name}: its {server} does not answer within {seconds} s; is it stopped ({remedy})?")
}

/// A job and the socket of its server.
#[derive(Debug)]
pub struct JobStatus {
    socket: PathBuf,
    /// The status that its server reported.
    pub status: Status,
    /// PID of the server in this process's PID namespace, or 0 if it is in none of that.
    pub server_pid: i32,
    /// The job's PIDs are valid in this process's PID namespace.
    pub same_pids: bool,
}

impl JobStatus {
    /// Returns the mappings in the job's segments.
    pub fn maps(&self) -> Result<Vec<Mapping>, Failure> {
        let ended = || Failure::ours(format!("job {} has ended", self.status.job));
        self.maps_while_it_runs()?.ok_or_else(ended)
    }

    /// Returns the mappings in the job's segments. None if the job has ended meanwhile.
    pub fn maps_while_it_runs(&self) -> Result<Option<Vec<Mapping>>, Failure> {
        let name = format!("job {}", self.status.job);
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let asked = ask(&self.socket, &Request::Maps, deadline);
        match asked.map_or_else(|answer| answer, |asked| asked.answer(deadline)) {
            Answer::Reply(Reply::Maps(mappings), _) => Ok(Some(mappings)),
            Answer::Reply(Reply::Refused(message, _), _) => Err(Failure::ours(message)),
            Answer::Late(pid) => Err(Failure::ours(late(&name, pid))),
            Answer::Gone => Ok(None),
            Answer::Reply(..) => Err(Failure::ours(format!("{name}: its server does not answer"))),
        }
    }
}

/// The jobs of this user on this node.
#[derive(Debug, Default)]
pub struct Jobs {
    /// Those whose servers have answered.
    pub jobs: Vec<JobStatus>,
    /// A line for each server that runs and has not answered.
    pub silent: Vec<String>,
}

/// Asks all jobs of this user on this node. All servers together have one time limit. Skips sockets
/// that no server listens on.
pub fn jobs() -> Result<Jobs, Failure> {
    Ok(ask_all(sockets()?))
}

/// Asks the servers of this user's job of a name only, so that no other server delays the answer.
pub fn jobs_named(name: &str) -> Result<Jobs, Failure> {
    let job = Job::of_environment(Some(name), &|_| None);
    Ok(ask_all(job.sockets(&directory()?)))
}

fn ask_all(sockets: Vec<PathBuf>) -> Jobs {
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    let ask = |socket: PathBuf| (ask(&socket, &Request::Status, deadline), socket);
    // All requests are sent before the wait for the first answer.
    let asked: Vec<_> = sockets.into_iter().map(ask).collect();
    let mut found = Jobs::default();
    for (asked, socket) in asked {
        match asked.map_or_else(|answer| answer, |asked| asked.answer(deadline)) {
            Answer::Reply(Reply::Status(status), pid) => {
                let same_pids = status.server as i32 == pid;
                found.jobs.push(JobStatus { socket, status, server_pid: pid, same_pids });
            }
            Answer::Reply(Reply::Refused(message, _), _) => found.silent.push(message),
            Answer::Late(pid) => found.silent.push(late(&socket.display().to_string(), pid)),
            Answer::Reply(..) | Answer::Gone => {}
        }
    }
    found
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
    let Jobs { jobs, silent } = jobs()?;
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
    // The task may be that of a silent server.
    let silent = silent.into_iter().next();
    let missing = || format!("{name}: no such task or job (see nagaya ps)");
    Err(Failure::ours(silent.unwrap_or_else(missing)))
}
