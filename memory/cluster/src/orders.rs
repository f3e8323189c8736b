//! Orders of the owner's other threads to the agent, and the outcome of the job, which the agent
//! reports to them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pvas::Control;
use pvas::agent::Agent;
use rustix::thread::futex;

/// Longest sleep of the thread that waits for events of the space.
const EVENT_WAIT_MAX: Duration = Duration::from_millis(500);

/// An order. Its sender is dropped when the agent has carried it out.
#[derive(Debug)]
pub enum Order {
    /// A task of this machine has ended. All other machines have to acknowledge it.
    Ended(u32, Sender<()>),
    /// The segment of this task is to be reset everywhere.
    Cleared(u32, Sender<()>),
    /// Memory was mapped in the segment of this task.
    Loaded(u32, Sender<()>),
    /// Tasks may have started, or something else may have happened in the space.
    CheckTasks,
    /// A task has written this to its standard output (1) or error (2).
    Print(u8, Vec<u8>),
    /// The tasks of other machines get this signal.
    Signal(i32),
    /// The tasks of this machine have ended with this status.
    Finish(i32),
    /// A task has failed with this status, and the others are to be killed.
    Fail(i32),
    /// The job is over on all machines.
    End(Sender<()>),
    /// The agent stops.
    Stop,
}

/// The state of the job as far as it is known.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Tasks are to be killed: one has failed, or a machine is lost.
    pub kill: bool,
    /// On the first machine: the status of the task for which others are killed.
    pub failure: Option<i32>,
    /// The status of each machine's tasks, if it is known.
    pub statuses: Vec<Option<i32>>,
    /// The first machine has ended the job.
    pub over: bool,
    /// A machine is lost.
    pub lost: bool,
}

/// The orders that the agent has not taken yet, and the outcome.
#[derive(Debug)]
pub struct Orders {
    /// `None` when the agent has stopped.
    queue: Mutex<Option<VecDeque<Order>>>,
    outcome: Mutex<Outcome>,
    /// The agent's thread, which SIGURG wakes.
    pub agent_tid: AtomicI32,
}

impl Orders {
    /// Returns an empty queue.
    pub fn new() -> Self {
        let queue = Mutex::new(Some(VecDeque::new()));
        Self { queue, outcome: Mutex::default(), agent_tid: AtomicI32::new(0) }
    }

    /// Gives an order to the agent, and wakes it.
    pub fn send(&self, order: Order) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queue.as_mut() {
            queue.push_back(order);
            let agent = self.agent_tid.load(Ordering::Acquire);
            // SAFETY: `agent_tid` is a thread of this process, and tgkill accesses no memory. The
            // agent blocks SIGURG and reads it from a signalfd: see `Agent::new`.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), agent, libc::SIGURG) };
        }
    }

    /// Gives an order, and waits until it is carried out or the agent has stopped.
    pub fn send_and_wait(&self, order: impl FnOnce(Sender<()>) -> Order) {
        let (done, wait) = channel();
        self.send(order(done));
        let _ = wait.recv();
    }

    /// Takes the next order.
    pub fn take(&self) -> Option<Order> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.pop_front()
    }

    /// Called when the agent has stopped: drops all orders, so that no thread waits for them.
    pub fn close(&self) {
        *self.queue.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the outcome so far.
    pub fn outcome(&self) -> Outcome {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the outcome, and wakes the thread that waits for signals of this process.
    pub fn update(&self, what: impl FnOnce(&mut Outcome)) {
        what(&mut self.outcome.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: kill accesses no memory. This process blocks SIGCHLD and waits for it.
        unsafe { libc::kill(libc::getpid(), libc::SIGCHLD) };
    }

    /// Wakes the agent at each event of the space, until the agent stops.
    pub fn watch_events(&self, control: Control) {
        let limit = futex::Timespec { tv_sec: 0, tv_nsec: EVENT_WAIT_MAX.as_nanos() as i64 };
        let mut seen = 0;
        while self.queue.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            let _ = futex::wait(control.event(), futex::Flags::empty(), seen, Some(&limit));
            let now = control.event().load(Ordering::Acquire);
            if now != seen {
                seen = now;
                self.send(Order::CheckTasks);
            }
        }
    }
}

impl Agent for Orders {
    fn ended(&self, id: u32) {
        self.send_and_wait(|done| Order::Ended(id, done));
    }

    fn cleared(&self, id: u32) {
        self.send_and_wait(|done| Order::Cleared(id, done));
    }

    fn loaded(&self, id: u32) {
        self.send_and_wait(|done| Order::Loaded(id, done));
    }
}
