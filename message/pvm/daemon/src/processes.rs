//! The processes of this host's tasks: those that the daemon has started, and those that
//! have come by themselves. All are known by descriptors, so no signal goes astray.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;

use pvm::error::Error;
use pvm::tid::Tid;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::event::Usage;
use crate::poll::Poll;
use crate::run::Source;
use crate::tasks::Link;

/// Bytes of output read at a time, as in stock PVM.
const OUTPUT_SIZE: usize = 4096;
/// Most reads before others get their turn.
const READS_MAX: usize = 64;

/// What is known of a task's processes; numbers are those of their sources.
#[derive(Debug, Default)]
struct Known {
    link: Option<Link>,
    /// The process that has enrolled.
    process: Option<u64>,
    /// The process that the daemon has started, or had started.
    child: Option<(u64, Program)>,
    output: Option<u64>,
    /// The task is one no longer.
    ended: bool,
}

/// A program that was started for a task.
#[derive(Debug)]
enum Program {
    /// As a child of the daemon.
    Process(Child),
    /// In the space, by its server; the source is a stub.
    InSpace,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Processes(BTreeMap<Tid, Known>);

/// What has been written, and whether more may come.
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

/// Waits for a child that has ended.
fn wait(child: &Child) -> Usage {
    let mut status = 0;
    let mut used = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    let pid = child.id() as libc::pid_t;
    // SAFETY: both can be written; nobody else waits for this child.
    let used = unsafe {
        libc::wait4(pid, &raw mut status, 0, used.as_mut_ptr());
        used.assume_init()
    };
    let time = |time: libc::timeval| (time.tv_sec as i32, time.tv_usec as i32);
    Usage { status, user: time(used.ru_utime), system: time(used.ru_stime) }
}

impl Processes {
    /// A program was started: waits for its output and its end. Its PID.
    ///
    /// Errors: OutOfRes, and the program is gone.
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

    /// The space's server is to start the task's program; this is its stub.
    pub fn lodged(&mut self, tid: Tid, stub: u64) {
        self.0.entry(tid).or_default().child = Some((stub, Program::InSpace));
    }

    /// The task's program, which the space's server was to start, writes to this.
    pub fn has_output(&mut self, tid: Tid, output: OwnedFd, poll: &mut Poll<Source>) {
        let Some(known) = self.0.get_mut(&tid) else { return };
        if rustix::fs::fcntl_setfl(&output, OFlags::NONBLOCK).is_ok() {
            known.output = poll.add(Source::Output(tid, output)).ok();
        }
    }

    /// The space's server has not started it.
    pub fn refused(&mut self, tid: Tid) {
        self.0.remove(&tid);
    }

    /// A process has enrolled as this task.
    pub fn enrolled(&mut self, tid: Tid, link: Link, pid: u32, poll: &mut Poll<Source>) {
        let known = self.0.entry(tid).or_default();
        known.link = Some(link);
        // One of another PID namespace has no number here; its connection tells of its end.
        let process = Pid::from_raw(pid as i32).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        if let Some(Ok(process)) = process {
            known.process = poll.add(Source::Process(tid, process)).ok();
        }
    }

    /// Who speaks by this connection.
    pub fn at(&self, link: Link) -> Option<Tid> {
        let mut all = self.0.iter();
        all.find(|(_, known)| known.link == Some(link)).map(|(tid, _)| *tid)
    }

    /// Whether a process has enrolled as this task.
    pub fn has_enrolled(&self, tid: Tid) -> bool {
        self.0.get(&tid).is_some_and(|known| known.link.is_some())
    }

    /// Connection and output of a task.
    pub fn sources(&self, tid: Tid) -> (Option<Link>, Option<u64>) {
        self.0.get(&tid).map_or((None, None), |known| (known.link, known.output))
    }

    /// The process that had enrolled as this task has ended.
    pub fn left(&mut self, tid: Tid) {
        self.change(tid, |known| known.process = None);
    }

    /// The task's output has ended.
    pub fn output_ended(&mut self, tid: Tid) {
        self.change(tid, |known| known.output = None);
    }

    /// The program that the daemon started has ended: one in the space with this status.
    pub fn reap(&mut self, tid: Tid, status: i32) -> Usage {
        let mut usage = Usage { status, ..Usage::default() };
        self.change(tid, |known| {
            if let Some((_, Program::Process(child))) = known.child.take() {
                usage = wait(&child);
            }
        });
        usage
    }

    /// The task is one no longer; its program may run on. The source of the process that had
    /// enrolled, which is of no interest now.
    pub fn forget(&mut self, tid: Tid) -> Option<u64> {
        let process = self.0.get_mut(&tid).and_then(|known| known.process.take());
        self.change(tid, |known| {
            known.link = None;
            known.ended = true;
        });
        process
    }

    fn change(&mut self, tid: Tid, change: impl FnOnce(&mut Known)) {
        let Some(known) = self.0.get_mut(&tid) else { return };
        change(known);
        if known.ended && known.child.is_none() && known.output.is_none() {
            self.0.remove(&tid);
        }
    }

    /// Sends a task a signal: to the process that has enrolled, or will.
    pub fn signal(&self, tid: Tid, signal: i32, poll: &mut Poll<Source>) {
        let Some(known) = self.0.get(&tid) else { return };
        let process = known.process.or(known.child.as_ref().map(|(number, _)| *number));
        // SAFETY: the kernel checks the number; nobody here depends on any signal.
        let signal =
            (1..=64).contains(&signal).then(|| unsafe { Signal::from_raw_unchecked(signal) });
        let (Some(number), Some(signal)) = (process, signal) else { return };
        match poll.get(number) {
            Some(Source::Stub(_, stub)) => stub.signal(signal.as_raw()),
            Some(source) => drop(pidfd_send_signal(source.as_fd(), signal)),
            None => {}
        }
    }

    /// Sends all a signal, but one; also to programs whose tasks have ended.
    pub fn signal_all(&self, but: Option<Tid>, signal: i32, poll: &mut Poll<Source>) {
        let all = self.0.keys().filter(|tid| Some(**tid) != but);
        all.for_each(|tid| self.signal(*tid, signal, poll));
    }

    /// Whether some program that the daemon started has not ended.
    pub fn are_there(&self) -> bool {
        self.0.values().any(|known| known.child.is_some())
    }

    /// Ends all programs that the daemon started.
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
