//! The processes of this host's tasks, both those that the daemon started and those that
//! enrolled by themselves. Each has a PID descriptor, so a signal cannot reach a reused PID.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;

use pvm::error::Error;
use pvm::tid::Tid;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::poll::Poll;
use crate::source::Source;
use crate::tasks::{Link, Usage};

/// Bytes of output read at a time, as in stock PVM.
const OUTPUT_SIZE: usize = 4096;
/// Most reads of one source before the others get their turn.
const READS_MAX: usize = 64;

/// A task's processes. Numbers are those of their poll sources.
#[derive(Debug, Default)]
struct TaskProcesses {
    link: Option<Link>,
    /// The process that has enrolled.
    process: Option<u64>,
    /// The program that the daemon started, or had the node server start.
    child: Option<(u64, Program)>,
    output: Option<u64>,
    /// The task has ended; its program or output may not have.
    ended: bool,
}

/// A program that was started for a task.
#[derive(Debug)]
enum Program {
    /// A child of the daemon.
    Process(Child),
    /// In the space, started by the node server. Its source is a stub.
    InSpace,
}

/// The processes of all tasks of this host.
#[derive(Debug, Default)]
pub(crate) struct Processes(BTreeMap<Tid, TaskProcesses>);

/// Reads the available output. Returns true with it if more may come.
pub(crate) fn read_output(fd: &OwnedFd) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    let mut bytes = [0; OUTPUT_SIZE];
    for _ in 0..READS_MAX {
        match rustix::io::read(fd, &mut bytes) {
            Ok(0) => return (all, false),
            Ok(count) => all.extend_from_slice(&bytes[..count]),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(_) => return (all, false),
        }
    }
    (all, true)
}

/// Reaps a child that has ended.
fn wait(child: &Child) -> Usage {
    let mut status = 0;
    let mut used = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    let pid = child.id() as libc::pid_t;
    // SAFETY: `status` and `used` are live locals that `wait4` may write. `used` is zeroed, and
    // every bit pattern of `rusage` is valid. Only this function reaps the child.
    let used = unsafe {
        libc::wait4(pid, &raw mut status, 0, used.as_mut_ptr());
        used.assume_init()
    };
    let time = |time: libc::timeval| (time.tv_sec as i32, time.tv_usec as i32);
    Usage { status, user: time(used.ru_utime), system: time(used.ru_stime) }
}

impl Processes {
    /// Watches a started program: its output and its end. Returns its PID.
    ///
    /// # Errors
    ///
    /// `OutOfRes`; the program has been killed then.
    pub fn started(
        &mut self,
        tid: Tid,
        mut child: Child,
        output: OwnedFd,
        poll: &mut Poll<Source>,
    ) -> Result<u32, Error> {
        let pid = child.id();
        let watch = |poll: &mut Poll<Source>| {
            rustix::fs::fcntl_setfl(&output, OFlags::NONBLOCK)?;
            let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
            let process = poll.add(Source::Child(tid, process))?;
            let output = poll.add(Source::Output(tid, output)).inspect_err(|_| {
                poll.remove(process);
            })?;
            Ok::<_, Errno>((process, output))
        };
        match watch(poll) {
            Ok((process, output)) => {
                let known = self.0.entry(tid).or_default();
                known.child = Some((process, Program::Process(child)));
                known.output = Some(output);
                Ok(pid)
            }
            Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(Error::OutOfRes)
            }
        }
    }

    /// Records that the node server was asked to start the task's program, through this stub.
    pub fn started_in_space(&mut self, tid: Tid, stub: u64) {
        self.0.entry(tid).or_default().child = Some((stub, Program::InSpace));
    }

    /// Watches the output of a program that the node server started.
    pub fn has_output(&mut self, tid: Tid, output: OwnedFd, poll: &mut Poll<Source>) {
        let Some(known) = self.0.get_mut(&tid) else { return };
        if rustix::fs::fcntl_setfl(&output, OFlags::NONBLOCK).is_ok() {
            known.output = poll.add(Source::Output(tid, output)).ok();
        }
    }

    /// Records that the node server did not start the program.
    pub fn refused(&mut self, tid: Tid) {
        self.0.remove(&tid);
    }

    /// Records that a process has enrolled as this task, and watches its end.
    pub fn enrolled(&mut self, tid: Tid, link: Link, pid: u32, poll: &mut Poll<Source>) {
        proc::log_line!(Info, "pvmd", "task {tid} has enrolled: PID {pid}");
        let known = self.0.entry(tid).or_default();
        known.link = Some(link);
        // A process of another PID namespace has no PID here; its connection shows its end.
        let process = Pid::from_raw(pid as i32).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        if let Some(Ok(process)) = process {
            known.process = poll.add(Source::Process(tid, process)).ok();
        }
    }

    /// Returns the task of this connection.
    pub fn at(&self, link: Link) -> Option<Tid> {
        let mut all = self.0.iter();
        all.find(|(_, known)| known.link == Some(link)).map(|(tid, _)| *tid)
    }

    /// Returns true if a process has enrolled as this task.
    pub fn has_enrolled(&self, tid: Tid) -> bool {
        self.0.get(&tid).is_some_and(|known| known.link.is_some())
    }

    /// Returns a task's connection and output.
    pub fn sources(&self, tid: Tid) -> (Option<Link>, Option<u64>) {
        self.0.get(&tid).map_or((None, None), |known| (known.link, known.output))
    }

    /// Records the end of the process that had enrolled as this task.
    pub fn process_ended(&mut self, tid: Tid) {
        self.change(tid, |known| known.process = None);
    }

    /// Records the end of the task's output.
    pub fn output_ended(&mut self, tid: Tid) {
        self.change(tid, |known| known.output = None);
    }

    /// Reaps the program that the daemon started. `status` is the wait status of one in the
    /// space.
    pub fn reap(&mut self, tid: Tid, status: i32) -> Usage {
        let mut usage = Usage { status, ..Usage::default() };
        self.change(tid, |known| {
            if let Some((_, Program::Process(child))) = known.child.take() {
                usage = wait(&child);
            }
        });
        usage
    }

    /// Forgets the connection of a task that has ended; its program may still run. Returns the
    /// source of the process that had enrolled, which needs no watching now.
    pub fn forget(&mut self, tid: Tid) -> Option<u64> {
        proc::log_line!(Info, "pvmd", "task {tid} has ended");
        let process = self.0.get_mut(&tid).and_then(|known| known.process.take());
        self.change(tid, |known| {
            known.link = None;
            known.ended = true;
        });
        process
    }

    fn change(&mut self, tid: Tid, change: impl FnOnce(&mut TaskProcesses)) {
        let Some(known) = self.0.get_mut(&tid) else { return };
        change(known);
        if known.ended && known.child.is_none() && known.output.is_none() {
            self.0.remove(&tid);
        }
    }

    /// Sends a signal to the process that has enrolled as the task, or to its program.
    pub fn signal(&self, tid: Tid, signal: i32, poll: &mut Poll<Source>) {
        let Some(known) = self.0.get(&tid) else { return };
        let process = known.process.or(known.child.as_ref().map(|(number, _)| *number));
        // SAFETY: `signal` lies in 1..=64, checked here, and the kernel validates it. The daemon
        // depends on no signal that libc reserves.
        let signal =
            (1..=64).contains(&signal).then(|| unsafe { Signal::from_raw_unchecked(signal) });
        let (Some(number), Some(signal)) = (process, signal) else { return };
        match poll.get(number) {
            Some(Source::Stub(_, stub)) => stub.signal(signal.as_raw()),
            Some(source) => drop(pidfd_send_signal(source.as_fd(), signal)),
            None => {}
        }
    }

    /// Sends a signal to all tasks but one, and to programs whose tasks have ended.
    pub fn signal_all(&self, but: Option<Tid>, signal: i32, poll: &mut Poll<Source>) {
        let all = self.0.keys().filter(|tid| Some(**tid) != but);
        all.for_each(|tid| self.signal(*tid, signal, poll));
    }

    /// Returns true if a program that the daemon started has not ended.
    pub fn are_there(&self) -> bool {
        self.0.values().any(|known| known.child.is_some())
    }

    /// Kills all programs that the daemon started.
    pub fn kill_all(&mut self, poll: &mut Poll<Source>) {
        for (number, child) in self.0.values_mut().filter_map(|known| known.child.as_mut()) {
            match child {
                Program::Process(child) => {
                    let _ = child.kill();
                    let _ = child.wait();
                }
                Program::InSpace => {
                    if let Some(Source::Stub(_, stub)) = poll.get(*number) {
                        stub.signal(libc::SIGKILL);
                    }
                }
            }
        }
    }
}
