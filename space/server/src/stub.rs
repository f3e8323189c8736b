//! The stub: the process that a foreign launcher started with `nagaya exec`, and that
//! stands for its task until the task ends.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pvas::connection::Connection;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};

use crate::Failure;
use crate::identity::Identity;
use crate::inherit::{self, Inheritance};
use crate::job::Job;
use crate::mounts::Mounts;
use crate::protocol::{Reply, Request, SI_KERNEL, Start};
use crate::reach::{Place, Wanted};
use crate::settings;

/// What `nagaya exec` was asked to do.
#[derive(Debug)]
pub struct Exec {
    /// The job to join.
    pub job: Job,
    /// Program, with a path.
    pub path: PathBuf,
    /// `argv`.
    pub arguments: Vec<OsString>,
    /// ID that the task must get.
    pub id: Option<u32>,
    /// Segment size, where this stub starts the server.
    pub segment_size: Option<u64>,
    /// What `--delegatee` says, where this stub starts the server.
    pub delegatee: Option<String>,
    /// Signal mask that this process was started with.
    pub sigmask: u64,
    /// Say what happens.
    pub verbose: bool,
}

/// How a stub ends.
#[derive(Debug)]
pub enum Outcome {
    /// As its task did: a wait status.
    Ended(i32),
    /// The program cannot be a task, or there is no server for it; nothing was run.
    Refused(Failure),
}

/// Runs the program as a task of the job and stands for it until it ends.
pub fn exec(exec: &Exec) -> Result<Outcome, Failure> {
    let inheritance = Inheritance::of_this_process(exec.sigmask);
    let numbers = inherit::fds()
        .map_err(|e| Failure::ours(format!("/proc/self/fd: {e} (is /proc mounted?)")))?;
    // SAFETY: they stay open until `close_all_but`.
    let fds: Vec<BorrowedFd<'_>> =
        numbers.iter().map(|&fd| unsafe { BorrowedFd::borrow_raw(fd) }).collect();
    // All signals from here on are the task's; they wait until there is one.
    let signals = block_signals().map_err(|e| Failure::ours(format!("signalfd: {e}")))?;
    let cwd =
        rustix::fs::open(".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| Failure::ours(format!("working directory: {e}")))?;
    // Without /proc, a server with other mounts cannot have the task.
    let mounts = Mounts::of_this_thread().ok();
    let refuse = |failure| {
        unblock_signals(exec.sigmask);
        Ok(Outcome::Refused(failure))
    };
    let mut environment = inherit::environment();
    environment.extend(settings::missing(&environment));
    let start = Request::Start(Box::new(Start {
        path: exec.path.as_os_str().as_bytes().to_vec(),
        arguments: exec.arguments.iter().map(|a| a.as_bytes().to_vec()).collect(),
        environment,
        fds: numbers,
        expected_tasks: exec.job.expected_tasks,
        id: exec.id,
        preferred_id: exec.job.local_rank,
        identity: Some(Identity::of_this_process()),
        mounts: mounts.is_some(),
        outlives_stub: false,
        inheritance,
    }));
    let mut sent: Vec<BorrowedFd<'_>> = vec![cwd.as_fd()];
    sent.extend(mounts.iter().flat_map(Mounts::descriptors));
    sent.extend(&fds);
    // What is wrong with it the server says.
    let is_fixed = crate::is_fixed(&exec.path);
    let wanted = Wanted {
        segment_size: exec.segment_size,
        shared: is_fixed,
        delegatee: exec.delegatee.as_deref(),
        apart_is_known: false,
    };
    let ask = |job: &Job| ask(job, wanted, &start, &sent);
    let mut asked = ask(&exec.job)?;
    let mut job = exec.job.clone();
    // The job's space may have been made for programs that share page tables.
    if is_fixed && asked.is_err() {
        job = job.apart();
        asked = ask(&job)?;
    }
    let Started { mut connection, id, pid, in_group, present, differences } = match asked {
        Ok(started) => started,
        Err(failure) => return refuse(failure),
    };
    if exec.verbose {
        let ranks = exec.job.expected_tasks.map(|expected| {
            format!("; {present} of {expected} ranks of this node are in this space so far")
        });
        let ranks = ranks.unwrap_or_default();
        let _ = writeln!(io::stderr(), "nagaya: job {}: task {id}, PID {pid}{ranks}", job.name);
    }
    if let (Some(differences), Some(ranks @ 2..)) = (differences, exec.job.local_tasks) {
        let _ = writeln!(io::stderr(), "nagaya: {}", apart_warning(&job.name, ranks, &differences));
    }
    // What we keep open, its readers would wait for: all but standard error, which the
    // last line of a lost server needs.
    drop(sent);
    drop((fds, cwd, mounts));
    close_all_but(&[2, connection.as_fd().as_raw_fd(), signals.as_raw_fd()]);
    stand_for(&job.name, &mut connection, &signals, in_group).ok_or_else(|| {
        Failure::ours(format!("the node server of job {} is gone, and task {id} with it", job.name))
    })
}

/// A task, as its server told of it.
struct Started {
    connection: Connection,
    id: u32,
    pid: u32,
    in_group: bool,
    /// Tasks in its space that stubs have started.
    present: u32,
    /// What keeps it from being in a space with other ranks of the job, if the user does not know
    /// yet.
    differences: Option<Vec<String>>,
}

/// What to do where ranks are in containers of their own.
const ONE_CONTAINER: &str = "start mpirun inside one container, or one container instance a node \
                             (apptainer exec instance://NAME)";

/// What to tell the user of a job of which some ranks have not come to the space of rank 0.
fn missing_warning(job: &str, present: u32, expected: u32) -> String {
    format!(
        "job {job}: only {present} of its {expected} ranks on this node are in this space, so not \
         all messages go through it: start all ranks by nagaya exec; if they are in containers, \
         {ONE_CONTAINER}; see nagaya-exec(1)"
    )
}

/// What to tell the user of a job whose ranks on this node are in several spaces.
fn apart_warning(job: &str, ranks: u32, differences: &[String]) -> String {
    let what = if differences.is_empty() { "rights".into() } else { differences.join(" and ") };
    let is_container = |it: &String| it.contains("namespaces") || it.contains("root");
    let advice = match differences.iter().any(is_container) {
        true => ONE_CONTAINER,
        false => "start all ranks with the same rights",
    };
    format!(
        "job {job}: its {ranks} ranks on this node have different {what}, so not all messages go \
         through one space: {advice}; see nagaya-exec(1)"
    )
}

/// Asks the job's servers for other identities whether one takes the task. If none does: what
/// differs, if the user does not know yet, and whether the user knows of it or is told now.
fn ask_others(
    place: &Place,
    start: &Request,
    fds: &[BorrowedFd<'_>],
) -> Result<Started, (Option<Vec<String>>, bool)> {
    let mut unknown = None;
    let (mut is_apart, mut is_known) = (false, false);
    for mut connection in place.others() {
        if connection.send(start, fds).is_err() {
            continue;
        }
        match connection.receive::<Reply>() {
            Ok(Some(Reply::Started { id, pid, in_group, present })) => {
                return Ok(Started { connection, id, pid, in_group, present, differences: None });
            }
            Ok(Some(Reply::Apart { differences, is_known: known })) => {
                is_apart = true;
                is_known |= known;
                unknown.get_or_insert(differences);
            }
            // It cannot run the program, or is about to end: our own server says what is wrong.
            _ => {}
        }
    }
    Err((unknown.filter(|_| !is_known), is_apart))
}

/// Asks the job's server to start the task: what it says, or why not.
fn ask(
    job: &Job,
    wanted: Wanted<'_>,
    start: &Request,
    fds: &[BorrowedFd<'_>],
) -> Result<Result<Started, Failure>, Failure> {
    /// How long the end of a server that was killed may take: its socket goes after its memory.
    const DYING: Duration = Duration::from_secs(5);
    const NAP: Duration = Duration::from_millis(1);
    let until = Instant::now() + DYING;
    let mut apart = None;
    loop {
        // Its lock is held until the server has answered.
        let (_place, mut connection, started) = match find(job, wanted, start, fds, &mut apart) {
            Ok(Found::Server(place, connection, started)) => (place, connection, started),
            Ok(Found::Task(started)) => return Ok(Ok(started)),
            Err(failure) => return Ok(Err(failure)),
        };
        // A server that refuses may not have read it all: its reply is there all the same.
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
            Ok(Some(Reply::Refused(message, status))) => {
                return Ok(Err(Failure { message, status }));
            }
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => {
                return Err(Failure::ours(format!("the node server of job {}: {error}", job.name)));
            }
            // One that was there before us may have been killed.
            Ok(None) | Err(_) if !started && Instant::now() < until => {
                std::thread::sleep(NAP);
            }
            Ok(_) | Err(_) => {
                return Err(Failure::ours(format!("the node server of job {} is gone", job.name)));
            }
        }
    }
}

/// What [`find`] has found.
enum Found {
    /// The job's server, and whether it was started now.
    Server(Place, Connection, bool),
    /// The task: a server for another identity has started it.
    Task(Started),
}

/// Finds the job's server for our identity, else one for another that takes the task, else starts
/// one. `apart` becomes what differs from others, if the user does not know yet.
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
        Err((differences, is_known)) => {
            *apart = differences.or(apart.take());
            is_known
        }
    };
    let (connection, _) = place.start(Wanted { apart_is_known, ..wanted })?;
    Ok(Found::Server(place, connection, true))
}

/// Forwards signals and waits for the end. `None` if the server has gone.
fn stand_for(
    job: &str,
    connection: &mut Connection,
    signals: &OwnedFd,
    in_group: bool,
) -> Option<Outcome> {
    let mut open = true;
    loop {
        // What has arrived comes first: the end may have come with the start.
        while let Ok(Some((reply, _))) = connection.take::<Reply>() {
            match reply {
                Reply::Ended(status) => return Some(Outcome::Ended(status)),
                // The launcher is to see us stopped; SIGCONT lets both go on.
                // SAFETY: stops this process.
                Reply::Stopped(_) => unsafe {
                    libc::kill(libc::getpid(), libc::SIGSTOP);
                },
                Reply::RanksMissing { present, expected } => {
                    let line = missing_warning(job, present, expected);
                    let _ = writeln!(io::stderr(), "nagaya: {line}");
                }
                _ => {}
            }
        }
        if !open {
            return None;
        }
        let mut fds = [PollFd::new(connection, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        let _ = poll(&mut fds, None); // EINTR cannot be: all signals are blocked
        let (server, signal) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
        if signal {
            forward_signals(connection, signals, in_group);
        }
        if server {
            open = connection.fill().unwrap_or(false);
        }
    }
}

fn forward_signals(connection: &Connection, signals: &OwnedFd, in_group: bool) {
    let mut buffer = [0u8; 128 * 8];
    let Ok(size) = rustix::io::read(signals, &mut buffer) else { return };
    for entry in buffer[..size].chunks_exact(128) {
        let word =
            |n: usize| i32::from_le_bytes(entry[n * 4..n * 4 + 4].try_into().expect("four bytes"));
        // struct signalfd_siginfo: signo, errno, code, …, and ssi_int at 44 bytes.
        let (signal, code, value) = (word(0), word(2), word(11));
        let from_terminal = code == SI_KERNEL && in_group;
        if signal == libc::SIGCHLD || (from_terminal && signal != libc::SIGCONT) {
            continue;
        }
        let value = (code == libc::SI_QUEUE).then_some(value);
        // A server that has gone shows as the end of the connection.
        let _ = connection.send(&Request::Signal(signal, value), &[]);
    }
}

fn block_signals() -> io::Result<OwnedFd> {
    let all = u64::MAX;
    // SAFETY: eight-byte sets, as the kernel's are. signalfd passes over KILL and STOP.
    let fd = unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, 0, 8);
        libc::syscall(libc::SYS_signalfd4, -1, &raw const all, 8, libc::SFD_CLOEXEC)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn unblock_signals(mask: u64) {
    // SAFETY: an eight-byte set.
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
            // SAFETY: closes what belongs to the task now; owners of the descriptors in
            // `keep` are the only ones left.
            unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, 0) };
        }
        from = fd.saturating_add(1);
    }
}
