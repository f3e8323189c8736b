//! Who drives the agent: a thread of its own, or the task of its process, while that waits.
//!
//! A task that asks another thread, which then waits for the network, is woken by it when the
//! answer is there: two hand-overs between threads, each of which may take as long as the
//! network does. So a task drives the agent itself until it is answered, unless the agent's
//! thread is at it and has a processor to itself. Who drives has the lock, and gives it away
//! while it sleeps. The thread does what nobody else can: it serves while the task computes, or
//! is stopped at a page.
//!
//! A task that drives takes no signals but while it sleeps: their handlers may touch pages,
//! which somebody has to provide.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use net::slice;
use node::driver::Driver as _;
use sync::wait::WaitPolicy;

use super::Agent;
use super::watch::Watch;
use crate::desk::Request;
use crate::signals::Deaf;

/// How often a task that is answered looks after what has come for others, before it leaves
/// that to the agent's thread.
const TURNS: usize = 16;

/// An agent, for whoever drives it.
pub struct Driver {
    agent: Mutex<Agent>,
    watch: Arc<Watch>,
    /// A task waits for the lock.
    is_wanted: AtomicBool,
    /// The thread has a processor to itself.
    thread_looks: bool,
}

impl Driver {
    /// Of an agent.
    pub fn new(agent: Agent) -> Self {
        let (watch, thread_looks) = (agent.watch.clone(), agent.looks.beside);
        Self { agent: Mutex::new(agent), watch, is_wanted: AtomicBool::new(false), thread_looks }
    }

    /// To the agent's thread: serves until all tasks have left.
    pub fn run(&self) {
        let _guard = EndsProcess;
        slice::shorten();
        let mut wait_policy = WaitPolicy::default();
        let mut agent = self.lock();
        let mut begin = Instant::now();
        loop {
            let found = agent.turn();
            if found {
                wait_policy.learn(true, begin.elapsed());
                begin = Instant::now();
                if let Some(driven) = &mut agent.driven {
                    driven.dozes = true;
                }
            }
            // A task that wants to drive does what there is left to do.
            if !self.is_wanted.load(Ordering::Relaxed) {
                if found {
                    continue;
                }
                if agent.is_over() {
                    agent.report();
                    return agent.write_record(0);
                }
                if agent.may_look() && wait_policy.spins(begin.elapsed()) {
                    std::hint::spin_loop();
                    continue;
                }
                if !agent.may_sleep() {
                    continue;
                }
            }
            let until = agent.deadline();
            if agent.driven.as_ref().is_some_and(|it| it.sleeps) {
                self.watch.task_sleeps();
            }
            drop(agent);
            self.watch.sleep(until);
            agent = self.lock();
            agent.desk.wakes();
        }
    }

    /// To a task that has asked for this: drives until it is answered. If it must not, since
    /// the thread does, and may look, it has to wait.
    pub fn drive(&self, task: u32, request: Request, wait_policy: &mut WaitPolicy) -> bool {
        let signals = Deaf::to_others();
        let _guard = EndsProcess;
        let (mut agent, takes_over) = match self.agent.try_lock() {
            Ok(agent) => (agent, false),
            Err(_) if self.thread_looks => return false,
            Err(_) => (self.take_over(), true),
        };
        // Others may want it, too: they are heard first.
        let is_ours = agent.is_ours_to_give(request);
        if !is_ours {
            agent.take_requests();
        }
        if takes_over || is_ours || !agent.desk.is_answered(task) {
            self.wait(agent, task, wait_policy, &signals);
        }
        true
    }

    /// Drives until the task is answered. All that comes will wake the thread then.
    fn wait<'a>(
        &'a self,
        mut agent: MutexGuard<'a, Agent>,
        task: u32,
        wait_policy: &mut WaitPolicy,
        signals: &Deaf,
    ) {
        agent.driven = Some(Driven { task, sleeps: false, dozes: false });
        agent.desk.wakes();
        let mut begin = Instant::now();
        while !agent.desk.is_answered(task) {
            if agent.turn() {
                wait_policy.learn(true, begin.elapsed());
                begin = Instant::now();
            } else if agent.may_look() && wait_policy.spins(begin.elapsed()) {
                agent.listen(false);
            } else if agent.may_sleep() {
                assert!(!agent.desk.is_answered(task), "a turn that answers has found something");
                agent.driven = Some(Driven { task, sleeps: true, dozes: false });
                let until = agent.deadline();
                self.watch.task_sleeps();
                drop(agent);
                self.watch.sleep_as_task(until, signals.before());
                agent = self.take_over();
                agent.driven = Some(Driven { task, sleeps: false, dozes: false });
                agent.desk.wakes();
            }
        }
        agent.driven = None;
        for _ in 0..TURNS {
            if agent.may_sleep() {
                return;
            }
            agent.turn();
        }
        agent.bell.ring();
    }

    /// The lock for the task, which the thread leaves to it after the present turn.
    fn take_over(&self) -> MutexGuard<'_, Agent> {
        self.is_wanted.store(true, Ordering::Relaxed);
        let agent = self.lock();
        self.is_wanted.store(false, Ordering::Relaxed);
        agent
    }

    fn lock(&self) -> MutexGuard<'_, Agent> {
        self.agent.lock().expect("who panics ends the process")
    }
}

/// The task that drives an agent, and waits.
pub struct Driven {
    pub(super) task: u32,
    /// It does not hold the lock: whoever answers it wakes it.
    pub(super) sleeps: bool,
    /// It has left to the thread what came: perhaps it runs a signal's handler.
    pub(super) dozes: bool,
}

/// A panic while it lives ends the process: an agent that fails must not leave its tasks
/// waiting. Other nodes lose it then.
struct EndsProcess;

impl Drop for EndsProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // SAFETY: ends the process.
            unsafe { libc::_exit(101) }
        }
    }
}
