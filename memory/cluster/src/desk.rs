//! What other threads of a space's owner say to its agent, and what they learn from it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pvas::Control;
use pvas::agent::Agent;
use rustix::thread::futex;

/// How long the thread that waits for events of the space waits at most.
const NAP: Duration = Duration::from_millis(500);

/// What the agent is to do. A sender is dropped when it is done.
#[derive(Debug)]
pub enum Order {
    /// A task of ours has ended: others are told, and have heard.
    Ended(u32, Sender<()>),
    /// Its segment is to read as zeros everywhere.
    Cleared(u32, Sender<()>),
    /// Memory was mapped in its segment.
    Loaded(u32, Sender<()>),
    /// Something may have happened in the space.
    Look,
    /// A task has written this.
    Print(u8, Vec<u8>),
    /// To tasks of other machines.
    Signal(i32),
    /// Our tasks have ended with this status.
    Finish(i32),
    /// A task has failed with this status, and the others are to be killed.
    Fail(i32),
    /// The job is over.
    End(Sender<()>),
    /// So is this machine.
    Stop,
}

/// What has become of the job so far.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Tasks are to be killed: one has failed, or a machine is lost.
    pub kill: bool,
    /// On the first machine: the status of the task for which others are killed.
    pub failure: Option<i32>,
    /// The status of each machine's tasks that is known, by machine.
    pub statuses: Vec<Option<i32>>,
    /// The first machine has let us go.
    pub over: bool,
    /// A machine is lost.
    pub lost: bool,
}

/// Where they meet.
#[derive(Debug)]
pub struct Desk {
    /// None when there is no agent any more.
    orders: Mutex<Option<VecDeque<Order>>>,
    outcome: Mutex<Outcome>,
    /// The agent's thread, which SIGURG wakes: the space's watcher, who has orders for it, too, has
    /// descriptors of its own.
    pub agent: AtomicI32,
}

impl Desk {
    pub fn new() -> Self {
        let orders = Mutex::new(Some(VecDeque::new()));
        Self { orders, outcome: Mutex::default(), agent: AtomicI32::new(0) }
    }

    /// Tells the agent.
    pub fn order(&self, order: Order) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(orders) = orders.as_mut() {
            orders.push_back(order);
            let agent = self.agent.load(Ordering::Acquire);
            // SAFETY: a signal to a thread of ours, which reads it from a descriptor.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), agent, libc::SIGURG) };
        }
    }

    /// Tells the agent, and waits until it is done, or nobody does it any more.
    pub fn ask(&self, order: impl FnOnce(Sender<()>) -> Order) {
        let (done, wait) = channel();
        self.order(order(done));
        let _ = wait.recv();
    }

    /// The next order.
    pub fn take(&self) -> Option<Order> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.pop_front()
    }

    /// There is no agent any more.
    pub fn close(&self) {
        *self.orders.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub fn outcome(&self) -> Outcome {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what is known of the job; whoever waits for signals of this process looks again.
    pub fn learn(&self, what: impl FnOnce(&mut Outcome)) {
        what(&mut self.outcome.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: a signal that does nothing, to ourselves.
        unsafe { libc::kill(libc::getpid(), libc::SIGCHLD) };
    }

    /// Tells the agent whenever something happens in the space, as long as there is one.
    pub fn watch_events(&self, control: Control) {
        let nap = futex::Timespec { tv_sec: 0, tv_nsec: NAP.as_nanos() as i64 };
        let mut seen = 0;
        while self.orders.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            let _ = futex::wait(control.event(), futex::Flags::empty(), seen, Some(&nap));
            let now = control.event().load(Ordering::Acquire);
            if now != seen {
                seen = now;
                self.order(Order::Look);
            }
        }
    }
}

impl Agent for Desk {
    fn ended(&self, id: u32) {
        self.ask(|done| Order::Ended(id, done));
    }

    fn cleared(&self, id: u32) {
        self.ask(|done| Order::Cleared(id, done));
    }

    fn loaded(&self, id: u32) {
        self.ask(|done| Order::Loaded(id, done));
    }
}
