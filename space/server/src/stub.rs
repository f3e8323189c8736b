//! The stub: the process that a foreign launcher started with `nagaya exec`. It represents its task
//! until the task ends (`represent.rs`).

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pvas::Protection;
use pvas::connection::Connection;
use rustix::fs::{Mode, OFlags};

use crate::Failure;
use crate::apart;
use crate::identity::Identity;
use crate::inherit::{self, Inheritance};
use crate::interrupt::Interruptible;
use crate::job::Job;
use crate::mounts::Mounts;
use crate::protocol::{Reply, Request, Start};
use crate::reach::{Place, Wanted};
use crate::represent::{Kernel, News, Representative};

/// The options of `nagaya exec`.
#[derive(Debug)]
pub struct Exec {
    /// The job to join.
    pub job: Job,
    /// Program, with a path.
    pub path: PathBuf,
    /// `argv`.
    pub arguments: Vec<OsString>,
    /// Required ID of the task.
    pub id: Option<u32>,
    /// Segment size, if this stub starts the server.
    pub segment_size: Option<u64>,
    /// The job's addresses are the same in every run, if this stub starts the server.
    pub fixed_addresses: bool,
    /// Protection of the tasks from each other, on which all stubs of a job agree.
    pub protection: Option<Protection>,
    /// Value of `--delegatee`, if this stub starts the server.
    pub delegatee: Option<String>,
    /// Signal mask with which this process was started.
    pub sigmask: u64,
    /// Variables for the task's environment, in place of those of the same names.
    pub settings: Vec<(&'static str, OsString)>,
    /// Print the job and the task.
    pub verbose: bool,
}

/// How a stub ends.
#[derive(Debug)]
pub enum Outcome {
    /// The task ended, with this wait status.
    Ended(i32),
    /// The program cannot be a task, or has no server. Nothing was run.
    Refused(Failure),
}

/// Runs the program as a task of the job, and represents the task until it ends.
pub fn exec(exec: &Exec) -> Result<Outcome, Failure> {
    let inheritance = Inheritance::of_this_process(exec.sigmask);
    let numbers = inherit::fds()
        .map_err(|e| Failure::ours(format!("/proc/self/fd: {e} (is /proc mounted?)")))?;
    // SAFETY: the descriptors stay open until `close_all_but`, before which `fds` is dropped.
    let fds: Vec<BorrowedFd<'_>> =
        numbers.iter().map(|&fd| unsafe { BorrowedFd::borrow_raw(fd) }).collect();
    // From here on all signals are for the task; they stay pending until it exists.
    let signals = block_signals().map_err(|e| Failure::ours(format!("signalfd: {e}")))?;
    let cwd =
        rustix::fs::open(".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| Failure::ours(format!("working directory: {e}")))?;
    // Without /proc, a server with other mounts cannot start the task.
    let mounts = Mounts::of_this_thread().ok();
    let refuse = |failure| {
        unblock_signals(exec.sigmask);
        Ok(Outcome::Refused(failure))
    };
    let start = Request::Start(Box::new(Start {
        path: exec.path.as_os_str().as_bytes().to_vec(),
        arguments: exec.arguments.iter().map(|a| a.as_bytes().to_vec()).collect(),
        environment: environment_with(&exec.settings),
        fds: numbers,
        expected_tasks: exec.job.expected_tasks,
        id: exec.id,
        preferred_id: exec.job.local_rank,
        identity: Some(Identity::of_this_process()),
        mounts: mounts.is_some(),
        protection: exec.protection,
        outlives_stub: false,
        inheritance,
    }));
    let mut sent: Vec<BorrowedFd<'_>> = vec![cwd.as_fd()];
    sent.extend(mounts.iter().flat_map(Mounts::descriptors));
    sent.extend(&fds);
    // An invalid program gives false; the server reports its error.
    let is_fixed = crate::is_fixed(&exec.path);
    let wanted = Wanted {
        segment_size: exec.segment_size,
        shared: is_fixed,
        fixed_addresses: exec.fixed_addresses,
        protection: exec.protection,
        delegatee: exec.delegatee.as_deref(),
        apart_is_known: false,
    };
    let ask = |job: &Job| ask(job, wanted, &start, &sent);
    let waits = Interruptible::begin(&exec.job.name, exec.sigmask)?;
    let mut asked = ask(&exec.job)?;
    let mut job = exec.job.clone();
    // The job's space may have private memory, which cannot have domains.
    if is_fixed && asked.is_err() {
        job = job.apart();
        asked = ask(&job)?;
    }
    drop(waits);
    let Started { connection, id, pid, in_group, present, differences } = match asked {
        Ok(started) => started,
        Err(failure) => return refuse(failure),
    };
    if exec.verbose {
        let ranks = exec.job.expected_tasks.map(|expected| {
            format!("; {present} of {expected} ranks of this node are in this space so far")
        });
        let ranks = ranks.unwrap_or_default();
        proc::error_line!("nagaya: job {}: task {id}, PID {pid}{ranks}", job.name);
    }
    proc::log_line!(Info, "exec", "job {}: task {id} has started: PID {pid}", job.name);
    if let (Some(differences), Some(ranks @ 2..)) = (differences, exec.job.local_tasks) {
        let line = apart::apart(&job.name, ranks, &differences);
        proc::log_line!(Warn, "exec", "{line}");
    }
    // An open descriptor here would keep its readers waiting for the end of file. Standard error
    // stays open for a message about a lost server.
    drop(sent);
    drop((fds, cwd, mounts));
    close_all_but(&[2, connection.as_fd().as_raw_fd(), signals.as_raw_fd()]);
    represent(&job.name, id, Representative::new(connection, Kernel { signals }, in_group))
}

/// Represents the task until it ends.
fn represent(
    job: &str,
    id: u32,
    mut representative: Representative<Kernel>,
) -> Result<Outcome, Failure> {
    loop {
        match representative.step() {
            None => {}
            Some(News::RanksMissing { present, expected }) => {
                let line = apart::missing(job, present, expected);
                proc::log_line!(Warn, "exec", "{line}");
            }
            Some(News::Ended(status)) => return Ok(Outcome::Ended(status)),
            Some(News::ServerLost) => {
                let line = format!("the node server of job {job} is gone, and task {id} with it");
                return Err(Failure::ours(line));
            }
        }
    }
}

/// Returns the environment of this process with these variables.
fn environment_with(settings: &[(&str, OsString)]) -> Vec<Vec<u8>> {
    let mut environment = inherit::environment();
    for (name, value) in settings {
        let setting = [name.as_bytes(), b"=", value.as_bytes()].concat();
        environment.retain(|entry| !entry.starts_with(&setting[..=name.len()]));
        environment.push(setting);
    }
    environment
}

/// A started task, as its server reported it.
struct Started {
    connection: Connection,
    id: u32,
    pid: u32,
    in_group: bool,
    /// Number of tasks in its space that stubs have started.
    present: u32,
    /// Differences that keep it out of a space with other ranks of the job, if the user does not
    /// know yet.
    differences: Option<Vec<String>>,
}

/// Time limit for the answer of a server for another identity. It may be in a container that is
/// stopped.
const OTHERS_ANSWER: Duration = Duration::from_secs(60);

/// The reason why no server for another identity has started the task.
enum Elsewhere {
    /// One of them has another protection than this stub requests; has a line to print.
    Disagrees(String),
    /// There is none, or their identities differ too much.
    Nowhere {
        /// The differences, unless the user knows them.
        differences: Option<Vec<String>>,
        /// The user knows them, or is informed now.
        is_known: bool,
    },
}

/// Asks the job's servers for other identities to start the task.
fn ask_others(
    place: &Place,
    start: &Request,
    fds: &[BorrowedFd<'_>],
) -> Result<Started, Elsewhere> {
    let mut unknown = None;
    let (mut is_apart, mut is_known) = (false, false);
    for mut connection in place.others() {
        if connection.send(start, fds).is_err() {
            continue;
        }
        match connection.receive_until::<Reply>(Instant::now() + OTHERS_ANSWER) {
            Ok(Some(Reply::Started { id, pid, in_group, present })) => {
                return Ok(Started { connection, id, pid, in_group, present, differences: None });
            }
            Ok(Some(Reply::Apart { differences, is_known: known })) => {
                is_apart = true;
                is_known |= known;
                unknown.get_or_insert(differences);
            }
            Ok(Some(Reply::Disagrees(message))) => return Err(Elsewhere::Disagrees(message)),
            // The server cannot run the program, or is about to end. The server for this identity
            // reports the cause.
            _ => {}
        }
    }
    Err(Elsewhere::Nowhere { differences: unknown.filter(|_| !is_known), is_known: is_apart })
}

/// Asks the job's server to start the task. The inner result is the server's reply; the outer error
/// means that there is no reply, or that the stub disagrees with its job.
fn ask(
    job: &Job,
    wanted: Wanted<'_>,
    start: &Request,
    fds: &[BorrowedFd<'_>],
) -> Result<Result<Started, Failure>, Failure> {
    /// Time that the end of a killed server may take: the kernel frees its memory before it closes
    /// its socket.
    const DYING: Duration = Duration::from_secs(5);
    const NAP: Duration = Duration::from_millis(1);
    let until = Instant::now() + DYING;
    let mut apart = None;
    loop {
        // The lock is held until the server has answered.
        let (_place, mut connection, started) = match find(job, wanted, start, fds, &mut apart) {
            Ok(Found::Server(place, connection, started)) => (place, connection, started),
            Ok(Found::Task(started)) => return Ok(Ok(started)),
            Ok(Found::Disagreement(failure)) => return Err(failure),
            Err(failure) => return Ok(Err(failure)),
        };
        // A server that refuses may not have read the whole request. Its reply is available all the
        // same.
        if connection.send(start, fds).is_err() {
            let _ = rustix::net::shutdown(&connection, rustix::net::Shutdown::Write);
        }
        match connection.receive::<Reply>() {
            Ok(Some(Reply::Started { id, pid, in_group, present })) => {
                let differences = apart;
                return Ok(Ok(Started { connection, id, pid, in_group, present, differences }));
            }
            Ok(Some(Reply::Apart { differences, .. })) => {
                let what = differences.join(" and ");
                let message = format!("the node server of job {} has other {what}", job.name);
                return Ok(Err(Failure::ours(message)));
            }
            Ok(Some(Reply::Disagrees(message))) => return Err(Failure::ours(message)),
            Ok(Some(Reply::Refused(message, status))) => {
                return Ok(Err(Failure { message, status }));
            }
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => {
                return Err(Failure::ours(format!("the node server of job {}: {error}", job.name)));
            }
            // A server that was running before may have been killed.
            Ok(None) | Err(_) if !started && Instant::now() < until => {
                std::thread::sleep(NAP);
            }
            Ok(_) | Err(_) => {
                return Err(Failure::ours(format!("the node server of job {} is gone", job.name)));
            }
        }
    }
}

/// The result of [`find`].
enum Found {
    /// The job's server, and true if it was started by this call.
    Server(Place, Connection, bool),
    /// The task, started by a server for another identity.
    Task(Started),
    /// Another server of the job has another protection.
    Disagreement(Failure),
}

/// Finds the job's server for this identity, or a server for another identity that starts the task,
/// or starts a new one. Sets `apart` to the differences from other servers if the user does not
/// know yet.
fn find(
    job: &Job,
    wanted: Wanted<'_>,
    start: &Request,
    fds: &[BorrowedFd<'_>],
    apart: &mut Option<Vec<String>>,
) -> Result<Found, Failure> {
    let place = Place::new(job)?;
    if let Some(connection) = place.connect()? {
        return Ok(Found::Server(place, connection, false));
    }
    let apart_is_known = match ask_others(&place, start, fds) {
        Ok(started) => return Ok(Found::Task(started)),
        Err(Elsewhere::Disagrees(message)) => {
            return Ok(Found::Disagreement(Failure::ours(message)));
        }
        Err(Elsewhere::Nowhere { differences, is_known }) => {
            *apart = differences.or(apart.take());
            is_known
        }
    };
    let (connection, _) = place.start(Wanted { apart_is_known, ..wanted })?;
    Ok(Found::Server(place, connection, true))
}

fn block_signals() -> io::Result<OwnedFd> {
    let all = u64::MAX;
    // SAFETY: `all` is a u64, and the kernel's sigset has eight bytes. signalfd ignores SIGKILL and
    // SIGSTOP.
    let fd = unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, 0, 8);
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        libc::syscall(libc::SYS_signalfd4, -1, &raw const all, 8, flags)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: signalfd4 returned this new descriptor, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn unblock_signals(mask: u64) {
    // SAFETY: `mask` is a u64, and the kernel's sigset has eight bytes.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, 0, 8);
    }
}

fn close_all_but(keep: &[i32]) {
    let mut keep = keep.to_vec();
    keep.sort_unstable();
    let mut from = 0;
    for &fd in keep.iter().chain(&[i32::MAX]) {
        if fd > from {
            // SAFETY: `exec` has dropped all owners of other descriptors; only owners of those in
            // `keep` remain.
            unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, 0) };
        }
        from = fd.saturating_add(1);
    }
}
