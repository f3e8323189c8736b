//! The node server itself: one thread with one event loop.
//!
//! It owns the space, listens for stubs and tools, starts tasks, reaps them, and reports each
//! task's state to its stub. When a stub disconnects, its task is killed, unless the stub has
//! requested otherwise. When the server ends, all tasks end (PR_SET_PDEATHSIG).
//!
//! The tasks share the server's address space, and may use up its mappings, memory or descriptors.
//! So the server allocates from a reserve (`reserve.rs`), and waits for no peer (`peers.rs`).

mod peers;
mod programs;
mod ranks;
mod status;
mod stops;
mod tasks;

use std::ffi::{CString, OsStr};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nagaya_layout::{
    CONTROL_SIZE, REGION_END, REGION_START, SEGMENT_SIZE_DEFAULT, SEGMENT_SIZE_MAX,
};
use pvas::{Attributes, Protection, Space, SpaceOptions};

use crate::identity::Identity;
use crate::job::Job;
use crate::maps::Mapping;
use crate::mounts::{Mounts, Visit};
use crate::processes::Kernel;
use crate::protocol::{Reply, Request, SI_KERNEL, Start, Status};
use crate::{Failure, block, inherit, reserve};

use peers::{Event, Peers};
use programs::Programs;
use ranks::Ranks;
use status::{Described, Known};
use tasks::{Reaped, Running, Tasks};

/// A task that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// ID.
    pub id: u32,
    /// PID.
    pub pid: u32,
    /// Wait status, as waitpid returns it.
    pub status: i32,
}

/// Events that the caller of [`Server::turn`] may have to handle.
#[derive(Debug, Default)]
pub struct Turn {
    /// Tasks that have ended.
    pub ended: Vec<Ended>,
    /// Signals that this process received: the number, and true if the terminal sent it.
    pub signals: Vec<(i32, bool)>,
}

/// A job's space on this node, with its tasks and the connected stubs and tools.
#[derive(Debug)]
pub struct Server {
    job: String,
    space: Space,
    signals: OwnedFd,
    tasks: Tasks<Kernel>,
    /// PID of the server's own delegatee among the tasks. The server does not wait for its end.
    delegatee: Option<u32>,
    session: i32,
    cgroup: Option<Vec<u8>>,
    blocks: block::Reader,
    programs: Programs,
    /// Limit of the mappings that one reply describes.
    mappings_max: usize,
    identity: Identity,
    /// Hash of the identity of the stub that started this server.
    starter: Option<u64>,
    ranks: Ranks,
}

/// Length of the listener's queue; the kernel also limits it by net.core.somaxconn.
const BACKLOG: i32 = 4096;

/// Returns the segment size if the user gives none. It is at least the default, and on a big node
/// as large as its memory. Four times the expected tasks always find room.
pub fn segment_size_for(tasks: Option<u32>) -> u64 {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let tasks = tasks.map_or(2 * cores, u64::from).max(16);
    let info = rustix::system::sysinfo();
    let memory = info.totalram * u64::from(info.mem_unit);
    let room = (REGION_END - REGION_START - CONTROL_SIZE) / (4 * tasks);
    let fits = 1 << (63 - room.leading_zeros());
    memory.next_power_of_two().clamp(SEGMENT_SIZE_DEFAULT, SEGMENT_SIZE_MAX).min(fits)
}

impl Server {
    /// Creates the job's space and serves it on `listener`. Blocks the signals in `signals` (bit
    /// n-1 for signal n) and SIGCHLD, which [`Server::turn`] handles.
    pub fn new(
        job: &str,
        listener: OwnedFd,
        options: SpaceOptions,
        signals: u64,
    ) -> Result<Self, Failure> {
        let mappings_max = reserve::reserve();
        // A program file that shrinks while it is loaded must not end all tasks.
        nagaya_loader::shrink::install();
        // Before Linux 5.16 a task that dumps core kills all processes that share its mm.
        if crate::kernel_version() < (5, 16) {
            // SAFETY: PR_SET_DUMPABLE has no arguments in memory.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
        }
        // The watcher's thread inherits the signal mask, so the signals are blocked first.
        let set = signals | 1 << (libc::SIGCHLD - 1);
        let fail = |what: &str, e: std::io::Error| Failure::ours(format!("{what}: {e}"));
        // SAFETY: `set` is a u64, and the kernel's sigset has eight bytes; signalfd4 returns a new
        // descriptor. The inherited action of SIGCHLD may be to ignore it, which would reap tasks
        // unseen.
        let signals = unsafe {
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const set, 0, 8);
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            let fd = libc::syscall(libc::SYS_signalfd4, -1, &raw const set, 8, flags);
            if fd < 0 {
                return Err(fail("signalfd", std::io::Error::last_os_error()));
            }
            OwnedFd::from_raw_fd(fd as i32)
        };
        let space = Space::create(options).map_err(|e| Failure::from(&e))?;
        // The stub may have called listen so far. A client sees the PID of the last process that
        // called listen.
        rustix::net::listen(&listener, BACKLOG).map_err(|e| fail("socket", e.into()))?;
        let peers = Peers::new(listener, &signals).map_err(|e| fail("epoll", e.into()))?;
        pvas::own_memory::keep_from_forks();
        proc::log_line!(
            Info,
            "server",
            "job {job}: its space is ready; PID {}",
            std::process::id()
        );
        Ok(Self {
            job: job.to_string(),
            space,
            signals,
            tasks: Tasks::new(Kernel, peers),
            delegatee: None,
            // SAFETY: getsid reads no memory.
            session: unsafe { libc::getsid(0) },
            cgroup: inherit::cgroup_procs(),
            blocks: block::Reader::new().map_err(|e| fail("pipe", e.into()))?,
            mappings_max,
            programs: Programs::default(),
            identity: Identity::of_this_process(),
            starter: None,
            // By the documentation the user knows that the ranks of such a job are in several
            // spaces.
            ranks: Ranks { apart_is_known: Job::is_apart(job), ..Ranks::default() },
        })
    }

    /// Returns true if no stub is connected and no task lives.
    pub fn is_idle(&self) -> bool {
        self.tasks.peers.is_empty() && self.pids().is_empty()
    }

    /// Sets the hash of another identity whose programs can be tasks here: that of the stub that
    /// started this server. The server may differ from its parent, as after unshare(CLONE_NEWPID).
    pub fn set_identity(&mut self, number: Option<u64>) {
        self.starter = number;
    }

    /// Records that the user already knows of ranks in other spaces.
    pub fn set_apart_known(&mut self) {
        self.ranks.apart_is_known = true;
    }

    /// Returns the time until [`Server::miss_ranks`] may report missing ranks.
    pub fn ranks_timeout(&self) -> Option<Duration> {
        let deadline = self.ranks.deadline()?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    /// Reports ranks that have not started in time to the user, through the stub of local rank 0.
    /// They may run where they cannot find this server.
    pub fn miss_ranks(&mut self) {
        let is_late = self.ranks.deadline().is_some_and(|deadline| deadline <= Instant::now());
        let Ranks { present, expected: Some(expected), teller: Some(teller), .. } = self.ranks
        else {
            return;
        };
        if is_late {
            self.ranks.apart_is_known = true;
            self.tasks.reply(teller, &Reply::RanksMissing { present, expected });
        }
    }

    /// Returns the job's space.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Returns the PIDs of the living tasks of the job.
    pub fn pids(&self) -> Vec<u32> {
        self.tasks.running().keys().copied().filter(|&pid| Some(pid) != self.delegatee).collect()
    }

    /// Creates a domain of the IDs, on the processors of a CPU mask as for sched_setaffinity.
    pub fn add_domain(&mut self, ids: Range<u32>, processors: Vec<u8>) -> Result<(), Failure> {
        self.space.add_domain(ids, processors).map(drop).map_err(|e| Failure::from(&e))
    }

    /// Starts the delegatee of this server: a task of Nagaya's own program, with the last ID. Its
    /// `threads` threads do the I/O of other tasks, on the processors of a CPU mask. In a space of
    /// shared memory it has a separate domain.
    pub fn start_delegatee(&mut self, processors: Vec<u8>, threads: u32) -> Result<(), Failure> {
        let failed = |e: std::io::Error| Failure::ours(format!("the node server's delegatee: {e}"));
        let id = self.space.layout().tasks_max() - 1;
        if self.space.control().is_shared() {
            self.add_domain(id..id + 1, processors.clone())?;
        }
        let program = std::env::current_exe().map_err(failed)?;
        let null = std::fs::File::options().read(true).write(true).open("/dev/null");
        let null = null.map_err(failed)?;
        let fds = [(null.as_raw_fd(), 0), (null.as_raw_fd(), 1), (2, 2)];
        let arguments = ["nagaya", "delegatee", "--threads", &threads.to_string()]
            .map(|word| CString::new(word).expect("no zero byte"));
        let attributes = Attributes {
            fds: Some(fds.to_vec()),
            cwd: Some(c"/".into()),
            affinity: processors,
            sigmask: Some(0),
            // Signals from the terminal are for tasks, so the delegatee has another process group.
            process_group: Some(0),
            parent_death_signal: Some(libc::SIGKILL),
            ..Attributes::default()
        };
        let (_, pid) = self.spawn(Some(id), &program, arguments.to_vec(), &[], &attributes)?;
        self.delegatee = Some(pid);
        Ok(())
    }

    /// Starts a task that no stub represents.
    pub fn spawn(
        &mut self,
        id: Option<u32>,
        path: &Path,
        arguments: Vec<CString>,
        environment: &[CString],
        attributes: &Attributes,
    ) -> Result<(u32, u32), Failure> {
        let shown = arguments.iter().map(|a| a.to_string_lossy().into_owned()).collect();
        let placeholder = self.programs.protect(path)?;
        let (id, pid) = self
            .space
            .spawn(id, path, arguments, environment, attributes)
            .map_err(|e| Failure::from(&e))?;
        let path = path.display().to_string();
        let task = Running { id, stub: None, path, arguments: shown, _placeholder: placeholder };
        self.tasks.add(pid, task);
        Ok((id, pid))
    }

    /// Waits at most `timeout` for events and handles them. May return earlier, without an event.
    pub fn turn(&mut self, timeout: Option<Duration>) -> Turn {
        let mut turn = Turn::default();
        let timeout = timeout.into_iter().chain(self.tasks.stops.timeout()).min();
        let (events, lost) = self.tasks.peers.wait(timeout);
        for key in lost {
            self.tasks.disconnect(key);
        }
        for event in events {
            match event {
                Event::Signals => self.read_signals(&mut turn),
                Event::Peer(key) => {
                    if let Some((request, fds)) = self.tasks.next(&self.job, key) {
                        self.handle(key, request, fds);
                    }
                    self.tasks.watch(key);
                }
            }
        }
        self.tasks.check_stops();
        turn
    }

    fn read_signals(&mut self, turn: &mut Turn) {
        let mut buffer = [0u8; 128 * 16];
        while let Ok(size) = rustix::io::read(&self.signals, &mut buffer) {
            if size == 0 {
                break;
            }
            for entry in buffer[..size].chunks_exact(128) {
                let word = |n: usize| {
                    i32::from_le_bytes(entry[n * 4..n * 4 + 4].try_into().expect("four bytes"))
                };
                let (signal, code) = (word(0), word(2));
                if signal != libc::SIGCHLD {
                    turn.signals.push((signal, code == SI_KERNEL));
                }
            }
        }
        self.reap(turn);
    }

    fn reap(&mut self, turn: &mut Turn) {
        for Reaped { pid, status, task } in self.tasks.reap() {
            match task {
                None => self.end_domain(pid),
                Some(_) if self.delegatee == Some(pid) => proc::error_line!(
                    "nagaya: the node server's delegatee (PID {pid}) has ended: nobody asks it now"
                ),
                Some(task) => {
                    let (job, how) = (&self.job, how_ended(status));
                    proc::log_line!(
                        Info,
                        "server",
                        "job {job}: task {} (PID {pid}) {how}",
                        task.id
                    );
                    turn.ended.push(Ended { id: task.id, pid, status });
                }
            }
        }
    }

    /// Kills the tasks of a domain whose keeper has ended. The domain can start no new tasks, and
    /// its views no longer detect holes.
    fn end_domain(&self, keeper: u32) {
        let domains = self.space.domains();
        let Some(number) = domains.iter().position(|domain| domain.pid == keeper) else { return };
        proc::error_line!(
            "nagaya: domain {number} has lost its keeper (PID {keeper}): its tasks end"
        );
        for (&pid, task) in self.tasks.running() {
            if self.space.domain_of(task.id) == number as u32 {
                self.signal(pid, libc::SIGKILL, None);
            }
        }
    }

    /// Sends a signal to a task of this server, with a value if there is one.
    pub fn signal(&self, pid: u32, signal: i32, value: Option<i32>) {
        self.tasks.signal(pid, signal, value);
    }

    fn handle(&mut self, key: u64, request: Request, fds: Vec<OwnedFd>) {
        match request {
            Request::Start(start) => match self.start(key, &start, fds) {
                Ok(reply) => self.tasks.reply(key, &reply),
                Err(failure) => {
                    self.tasks.reply(key, &Reply::Refused(failure.message, failure.status));
                }
            },
            Request::Signal(..) => {} // `Tasks::next` passes it on
            Request::Status | Request::Maps if !self.tasks.peers.have_room() => {
                let message = format!(
                    "the node server of job {} has too many answers that nobody reads (end the \
                     tools that are stopped)",
                    self.job
                );
                self.tasks.reply(key, &Reply::Refused(message, 125));
            }
            Request::Status => {
                let status = self.status();
                self.tasks.reply(key, &Reply::Status(status));
            }
            Request::Maps => {
                let reply = match self.mappings() {
                    Some(mappings) => Reply::Maps(mappings),
                    None => Reply::Refused(
                        format!(
                            "job {}: more than {} mappings, too many to list (see \
                             /proc/PID/smaps)",
                            self.job, self.mappings_max
                        ),
                        125,
                    ),
                };
                self.tasks.reply(key, &reply);
            }
        }
    }

    fn start(&mut self, key: u64, start: &Start, mut fds: Vec<OwnedFd>) -> Result<Reply, Failure> {
        let peer = self.tasks.peers.get(key).ok_or_else(|| Failure::ours("no such peer"))?;
        if peer.task.is_some() {
            return Err(Failure::ours("a stub stands for one task only"));
        }
        if self.identity.has_rights(peer.pid) == Some(false) {
            return Ok(self.apart(start));
        }
        if let Some(message) = self.disagreement(start) {
            return Ok(Reply::Disagrees(message));
        }
        let mounts = take_mounts(start, &mut fds);
        let Some((cwd, fds)) = fds.split_first().filter(|(_, f)| f.len() == start.fds.len()) else {
            return Err(Failure::ours("descriptors and their numbers disagree"));
        };
        // Until the task runs, this thread has the stub's view of files.
        let is_ours = |it: &Identity| *it == self.identity || Some(it.number()) == self.starter;
        let visit = match &start.identity {
            Some(identity) if !is_ours(identity) => match self.visit(identity, mounts) {
                Some(visit) => Some(visit),
                None => return Ok(self.apart(start)),
            },
            _ => None,
        };
        if start.fds.iter().any(|&fd| fd < 0) {
            return Err(Failure::ours("negative descriptor"));
        }
        let strings = |list: &[Vec<u8>]| -> Result<Vec<CString>, Failure> {
            let invalid = |_| Failure::ours("a string contains a zero byte");
            list.iter().map(|bytes| CString::new(bytes.clone()).map_err(invalid)).collect()
        };
        let arguments = strings(&start.arguments)?;
        let environment = strings(&start.environment)?;
        // Relative paths are relative to the stub's directory, which may differ from the server's.
        let mut path = PathBuf::from(OsStr::from_bytes(&start.path));
        if path.is_relative() {
            let link = format!("/proc/self/fd/{}", cwd.as_raw_fd());
            let directory = std::fs::read_link(link)
                .map_err(|e| Failure::ours(format!("working directory: {e}")))?;
            path = directory.join(path);
        }
        // Such a program is started by its domain's keeper, which has other mounts.
        if visit.is_some() && crate::is_fixed(&path) {
            return Ok(self.apart(start));
        }
        let mut attributes = start.inheritance.attributes(self.session, self.cgroup.as_deref());
        attributes.cwd_fd = Some(cwd.as_raw_fd());
        attributes.fds =
            Some(fds.iter().zip(&start.fds).map(|(from, &to)| (from.as_raw_fd(), to)).collect());
        if let Some(tasks) = start.expected_tasks {
            self.space.control().expect_tasks(tasks);
            self.ranks.expected = self.ranks.expected.max(Some(tasks));
        }
        let preferred = start.id.or(start.preferred_id.filter(|&id| {
            id < self.space.layout().tasks_max()
                && !self.tasks.running().values().any(|t| t.id == id)
        }));
        let (id, pid) = self.spawn(preferred, &path, arguments, &environment, &attributes)?;
        drop(visit);
        let job = &self.job;
        let program = path.display();
        proc::log_line!(Info, "server", "job {job}: task {id} has started: PID {pid}, {program}");
        self.ranks.come(key, start.preferred_id);
        self.tasks.represent(pid, key, start.outlives_stub);
        // SAFETY: getpgid reads no memory.
        let group = unsafe { libc::getpgid(pid as i32) };
        let in_group = group == start.inheritance.group();
        Ok(Reply::Started { id, pid, in_group, present: self.ranks.present })
    }

    /// Enters a stub's mounts if only the mounts of its identity differ and the kernel permits it.
    fn visit(&self, identity: &Identity, mounts: Option<Mounts>) -> Option<Visit> {
        // Keepers start the tasks of other domains, so the space may have one domain only.
        let is_possible = self.identity.differs_in_mounts_only(identity)
            && self.space.domains().len() == 1
            && self.space.protection().is_none();
        if is_possible { Visit::new(&mounts?).ok() } else { None }
    }

    /// Returns a line for a stub that requests another protection than this job has.
    fn disagreement(&self, start: &Start) -> Option<String> {
        let (ours, theirs) = (self.space.protection(), start.protection);
        let option = |it: Option<Protection>| {
            it.map_or("no --protect".to_owned(), |it| format!("--protect={}", it.name()))
        };
        (ours != theirs).then(|| {
            format!(
                "job {} runs with {}, and this task was started with {}: start all tasks of a job \
                 with the same --protect",
                self.job,
                option(ours),
                option(theirs)
            )
        })
    }

    /// Returns the reply to a stub whose program cannot be a task here.
    fn apart(&mut self, start: &Start) -> Reply {
        let differences = start.identity.as_ref().map(|it| self.identity.differences(it));
        let is_known = std::mem::replace(&mut self.ranks.apart_is_known, true);
        Reply::Apart { differences: differences.unwrap_or_default(), is_known }
    }

    /// Returns the space to describe.
    fn described(&self) -> Described<'_> {
        Described { space: &self.space, blocks: &self.blocks }
    }

    /// Describes the job.
    fn status(&self) -> Status {
        let mut known = Vec::with_capacity(self.tasks.running().len());
        for (&pid, Running { id, stub, path, arguments, .. }) in self.tasks.running() {
            let stub = stub.and_then(|key| Some(self.tasks.peers.get(key)?.pid as u32));
            known.push(Known { id: *id, pid, stub, path, arguments });
        }
        let (tasks, domains) = self.described().status(&known);
        let layout = self.space.layout();
        Status {
            job: self.job.clone(),
            server: std::process::id(),
            present: self.ranks.present,
            expected: self.ranks.expected,
            base: layout.base(),
            segment_size: layout.segment_size(),
            tasks_max: layout.tasks_max(),
            protection: self.space.protection(),
            tasks,
            domains,
        }
    }

    /// Returns the mappings of the tasks, or `None` if there are too many to describe.
    fn mappings(&self) -> Option<Vec<Mapping>> {
        let ids = self.tasks.running().values().map(|task| task.id);
        self.described().mappings(ids, self.mappings_max)
    }

    /// Ends the job: kills the remaining tasks and frees all memory.
    pub fn close(self) {
        proc::log_line!(Info, "server", "job {}: ends", self.job);
        // The process ends next, and an error here would mean that the space is already gone.
        let _ = self.space.destroy();
    }
}

/// Describes a wait status.
fn how_ended(status: i32) -> String {
    match libc::WIFSIGNALED(status) {
        true => format!("was killed by signal {}", libc::WTERMSIG(status)),
        false => format!("has ended with status {}", libc::WEXITSTATUS(status)),
    }
}

/// Takes the mounts out of the descriptors that a stub has sent.
fn take_mounts(start: &Start, fds: &mut Vec<OwnedFd>) -> Option<Mounts> {
    if !start.mounts || fds.len() < 3 {
        return None;
    }
    let mut taken = fds.drain(1..3);
    Some(Mounts::from_descriptors(taken.next()?, taken.next()?))
}
