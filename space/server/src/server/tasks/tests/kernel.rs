//! A model of the kernel's job control: signals, stops, wait statuses and the death of a parent.

use std::cell::{RefCell, RefMut};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use pvas::connection::Connection;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::processes::Processes;
use crate::represent::{Signal, System};

/// PID of the first process.
const FIRST: i32 = 1000;
/// Signals by which a process stops.
const STOPS: [i32; 2] = [libc::SIGSTOP, libc::SIGTSTP];
/// The signals that a signalfd does not return.
const UNREADABLE: u64 = 1 << libc::SIGKILL | 1 << libc::SIGSTOP;

/// An event of a run. Each must happen in some run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Path {
    /// SIGCONT discarded a stop signal that was not delivered yet.
    StopDiscarded,
    /// A stop signal discarded a SIGCONT that the stub had not read yet.
    ContinueDiscarded,
    /// The server missed a stop or a continuation, since it read the next one.
    Coalesced,
    /// The launcher or another process stopped, continued or ended a process.
    StubStopped,
    StubContinued,
    StubKilled,
    StubSignalled,
    TaskStopped,
    TaskContinued,
    TaskKilled,
    TaskEnded,
    GroupStopped,
    GroupContinued,
    ServerStopped,
    ServerKilled,
    /// The server could not start a task.
    Refused,
    /// A task died with its server.
    ParentDied,
    /// A stub stopped itself for its task.
    StoppedForTask,
    /// The server continued a stub that had stopped for its task.
    ContinuedForTask,
    /// The server stopped a task, since its stub was stopped.
    StoppedForStub,
    /// The server killed a task, since its stub was dead.
    KilledForStub,
    /// A task outlived its stub.
    Outlived,
    /// A stub reported the end of its task.
    EndReported,
    /// A stub lost its server.
    ServerLost,
    /// A process took long for a step.
    Slow,
}

impl Path {
    pub const ALL: [Self; 25] = [
        Self::StopDiscarded,
        Self::ContinueDiscarded,
        Self::Coalesced,
        Self::StubStopped,
        Self::StubContinued,
        Self::StubKilled,
        Self::StubSignalled,
        Self::TaskStopped,
        Self::TaskContinued,
        Self::TaskKilled,
        Self::TaskEnded,
        Self::GroupStopped,
        Self::GroupContinued,
        Self::ServerStopped,
        Self::ServerKilled,
        Self::Refused,
        Self::ParentDied,
        Self::StoppedForTask,
        Self::ContinuedForTask,
        Self::StoppedForStub,
        Self::KilledForStub,
        Self::Outlived,
        Self::EndReported,
        Self::ServerLost,
        Self::Slow,
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    Stopped,
    /// It has ended, with this wait status.
    Dead(i32),
}

#[derive(Debug)]
struct Process {
    state: State,
    /// A task: a child of the server. Otherwise it is a stub, which blocks all signals.
    is_task: bool,
    /// Bit n for signal n.
    pending: u64,
    /// Wait status that the server has not read.
    report: Option<i32>,
}

/// The processes of a node, and the events so far.
#[derive(Debug)]
pub struct Model {
    processes: Vec<Process>,
    /// An eventfd in place of the server's signalfd: SIGCHLD.
    children: OwnedFd,
    server_is_dead: bool,
    pub paths: [u64; Path::ALL.len()],
}

impl Model {
    pub fn count(&mut self, path: Path) {
        self.paths[path as usize] += 1;
    }

    pub fn add(&mut self, is_task: bool) -> i32 {
        let process = Process { state: State::Running, is_task, pending: 0, report: None };
        self.processes.push(process);
        FIRST + self.processes.len() as i32 - 1
    }

    fn process(&mut self, pid: i32) -> &mut Process {
        &mut self.processes[(pid - FIRST) as usize]
    }

    pub fn state(&self, pid: i32) -> State {
        self.processes[(pid - FIRST) as usize].state
    }

    /// Sends a signal. The process stops or ends in [`Model::deliver`], but continues at once.
    pub fn kill(&mut self, pid: i32, signal: i32) {
        let stops = STOPS.iter().fold(0, |stops, it| stops | 1u64 << it);
        let process = self.process(pid);
        if matches!(process.state, State::Dead(_)) {
            return;
        }
        let mut discarded = None;
        if STOPS.contains(&signal) && process.pending & 1 << libc::SIGCONT != 0 {
            process.pending &= !(1 << libc::SIGCONT);
            discarded = Some(Path::ContinueDiscarded);
        }
        // The default action of a task is to ignore SIGCONT.
        if signal != libc::SIGCONT || !process.is_task {
            process.pending |= 1 << signal;
        }
        if signal == libc::SIGCONT {
            if process.pending & stops != 0 {
                process.pending &= !stops;
                discarded = Some(Path::StopDiscarded);
            }
            if process.state == State::Stopped {
                process.state = State::Running;
                self.report(pid, 0xffff);
            }
        }
        discarded.into_iter().for_each(|path| self.count(path));
    }

    fn report(&mut self, pid: i32, status: i32) {
        let process = self.process(pid);
        if process.is_task {
            let before = process.report.replace(status);
            before.into_iter().for_each(|_| self.count(Path::Coalesced));
            let _ = rustix::io::write(&self.children, &1u64.to_ne_bytes());
        }
    }

    /// Returns the processes that a pending signal stops or ends.
    pub fn deliverable(&self) -> impl Iterator<Item = i32> + '_ {
        let pids = (FIRST..).zip(&self.processes);
        pids.filter(|(_, it)| it.deliverable().is_some()).map(|(pid, _)| pid)
    }

    /// Delivers the next signal.
    pub fn deliver(&mut self, pid: i32) {
        let process = self.process(pid);
        let Some(signal) = process.deliverable() else { return };
        process.pending &= !(1 << signal);
        if !STOPS.contains(&signal) {
            return self.end(pid, signal);
        }
        process.state = State::Stopped;
        self.report(pid, signal << 8 | 0x7f);
    }

    /// Ends a process.
    pub fn end(&mut self, pid: i32, status: i32) {
        self.process(pid).state = State::Dead(status);
        self.report(pid, status);
    }

    /// The server is dead: its children get their parent-death signal, and init reaps them.
    pub fn end_server(&mut self) {
        self.server_is_dead = true;
        for pid in (FIRST..).take(self.processes.len()) {
            if self.process(pid).is_task && !matches!(self.state(pid), State::Dead(_)) {
                self.count(Path::ParentDied);
                self.kill(pid, libc::SIGKILL);
            }
        }
    }

    /// Returns true if a stub has signals to read.
    pub fn has_signals(&self, pid: i32) -> bool {
        self.processes[(pid - FIRST) as usize].pending & !UNREADABLE != 0
    }
}

impl Process {
    fn deliverable(&self) -> Option<i32> {
        let is_pending = |signal: &i32| self.pending >> signal & 1 != 0;
        match self.state {
            State::Dead(_) => None,
            _ if is_pending(&libc::SIGKILL) => Some(libc::SIGKILL),
            State::Stopped => None,
            // A stub blocks all signals, except SIGKILL and SIGSTOP.
            State::Running if !self.is_task => Some(libc::SIGSTOP).filter(is_pending),
            State::Running => (1..64).find(is_pending),
        }
    }
}

/// The system calls of the server, or of the stub with this PID.
#[derive(Clone, Debug)]
pub struct Calls {
    model: Rc<RefCell<Model>>,
    pid: i32,
}

impl Calls {
    pub fn of_server(children: OwnedFd) -> Self {
        let paths = [0; Path::ALL.len()];
        let model = Model { processes: Vec::new(), children, server_is_dead: false, paths };
        Self { model: Rc::new(RefCell::new(model)), pid: 0 }
    }

    pub fn of_stub(&self, pid: i32) -> Self {
        Self { model: self.model.clone(), pid }
    }

    pub fn model(&self) -> RefMut<'_, Model> {
        self.model.borrow_mut()
    }
}

impl Processes for Calls {
    fn wait(&self) -> Option<(u32, i32)> {
        let mut model = self.model();
        let at = model.processes.iter().position(|it| it.report.is_some())?;
        let status = model.processes[at].report.take()?;
        Some(((FIRST + at as i32).cast_unsigned(), status))
    }

    fn is_stopped(&self, pid: i32) -> bool {
        self.model().state(pid) == State::Stopped
    }

    fn signal(&self, pid: i32, signal: i32, _: Option<i32>) {
        let mut model = self.model();
        let is_task = model.process(pid).is_task;
        match signal {
            libc::SIGCONT if !is_task => model.count(Path::ContinuedForTask),
            libc::SIGSTOP if is_task => model.count(Path::StoppedForStub),
            libc::SIGKILL if is_task => model.count(Path::KilledForStub),
            _ => {}
        }
        model.kill(pid, signal);
    }
}

impl System for Calls {
    /// Does not wait: the simulation gives a stub that waits another turn.
    fn wait(&self, connection: &Connection) -> (bool, bool) {
        (is_readable(connection), self.model().has_signals(self.pid))
    }

    fn signals(&self) -> Vec<Signal> {
        let mut model = self.model();
        let pending = &mut model.process(self.pid).pending;
        let read = std::mem::replace(pending, *pending & UNREADABLE) & !UNREADABLE;
        let numbers = (1..64).filter(|number| read >> number & 1 != 0);
        numbers.map(|number| Signal { number, code: libc::SI_USER, value: 0 }).collect()
    }

    fn stop(&self) {
        let mut model = self.model();
        model.count(Path::StoppedForTask);
        // A process gets a signal that it sends itself before the call returns.
        model.kill(self.pid, libc::SIGSTOP);
        model.deliver(self.pid);
    }
}

/// Returns true if bytes have arrived, or if the peer has disconnected.
pub fn is_readable(connection: &Connection) -> bool {
    let mut fds = [PollFd::new(connection, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
