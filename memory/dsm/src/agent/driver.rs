//! The threads that drive the agent: a dedicated thread, or the task of its process while it waits.
//!
//! If a task handed its request to another thread, two thread switches would be added to the round
//! trip, and each can take as long as the network. So a task drives the agent itself until its
//! request is answered, unless the agent's thread is running and has a processor of its own. The
//! thread that drives holds the lock, and releases it while it sleeps. The agent's thread serves
//! while the task computes or is stopped at a page.
//!
//! A task that drives the agent takes signals only while it sleeps. A signal handler may touch
//! shared pages, and the agent has to be free to provide them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use net::slice;
use node::driver::Driver as _;
use sync::wait::WaitPolicy;

use super::Agent;
use super::tasks::DrivingTask;
use super::watch::Watch;
use crate::request_table::Request;
use crate::signals::BlockedSignals;

/// Turns that a task with an answer spends on events of others, before it leaves them to the
/// agent's thread.
const TURNS: usize = 16;

/// An agent and the threads that drive it.
pub struct Driver {
    agent: Mutex<Agent>,
    watch: Arc<Watch>,
    /// A task waits for the lock.
    is_wanted: AtomicBool,
    /// The agent's thread has a processor of its own.
    thread_spins: bool,
}

impl Driver {
    /// Returns a driver of an agent.
    pub fn new(agent: Agent) -> Self {
        let (watch, thread_spins) = (agent.watch.clone(), agent.may_spin.agents_beside_tasks);
        Self { agent: Mutex::new(agent), watch, is_wanted: AtomicBool::new(false), thread_spins }
    }

    /// Called by the agent's thread: serves until all tasks have left.
    pub fn run(&self) {
        let _guard = EndsProcess;
        slice::shorten();
        let mut wait_policy = WaitPolicy::default();
        let mut agent = self.lock();
        loop {
            let found = agent.turn();
            if found {
                wait_policy.found();
                if let Some(task) = &mut agent.driving_task {
                    task.dozes = true;
                }
            }
            // A task that wants to drive does the remaining work.
            if !self.is_wanted.load(Ordering::Relaxed) {
                if found {
                    continue;
                }
                if agent.is_over() {
                    agent.report();
                    return agent.write_record(0);
                }
                if wait_policy.looks_again(agent.may_spin()) {
                    continue;
                }
                if !agent.may_sleep() {
                    continue;
                }
            } else {
                wait_policy.give_up();
            }
            let until = agent.deadline();
            if agent.driving_task.as_ref().is_some_and(|it| it.sleeps) {
                self.watch.task_sleeps();
            }
            drop(agent);
            let slept_out = self.watch.sleep(until);
            agent = self.lock();
            agent.engine.set_slept_out(slept_out);
            agent.table.awake();
        }
    }

    /// Called by a task with this request: drives the agent until the request is answered. Returns
    /// false if the task has to wait, because the agent's thread drives and spins.
    pub fn drive(&self, task: u32, request: Request, wait_policy: &mut WaitPolicy) -> bool {
        let signals = BlockedSignals::of_program();
        let _guard = EndsProcess;
        let (mut agent, takes_over) = match self.agent.try_lock() {
            Ok(agent) => (agent, false),
            Err(_) if self.thread_spins => return false,
            Err(_) => (self.take_over(), true),
        };
        // Other nodes may want the same lock. Their requests come first.
        let is_local = agent.can_grant_alone(request);
        if !is_local {
            agent.take_requests();
        }
        if takes_over || is_local || !agent.table.is_answered(task) {
            self.wait(agent, task, wait_policy, &signals);
        }
        true
    }

    /// Drives until the task's request is answered. Later events wake the agent's thread.
    fn wait<'a>(
        &'a self,
        mut agent: MutexGuard<'a, Agent>,
        task: u32,
        wait_policy: &mut WaitPolicy,
        signals: &BlockedSignals,
    ) {
        agent.driving_task = Some(DrivingTask { task, sleeps: false, dozes: false });
        agent.table.awake();
        while !agent.table.is_answered(task) {
            if agent.turn() {
                wait_policy.found();
            } else if wait_policy.looks_again(agent.may_spin()) {
                agent.listen(false);
            } else if agent.may_sleep() {
                assert!(
                    !agent.table.is_answered(task),
                    "a turn that answers a request returns true"
                );
                agent.driving_task = Some(DrivingTask { task, sleeps: true, dozes: false });
                let until = agent.deadline();
                self.watch.task_sleeps();
                drop(agent);
                let slept_out = self.watch.sleep_as_task(until, signals.before());
                agent = self.take_over();
                agent.engine.set_slept_out(slept_out);
                agent.driving_task = Some(DrivingTask { task, sleeps: false, dozes: false });
                agent.table.awake();
            }
        }
        agent.driving_task = None;
        for _ in 0..TURNS {
            if agent.may_sleep() {
                return;
            }
            agent.turn();
        }
        agent.doorbell.ring();
    }

    /// Takes the lock for a task. The agent's thread releases it after the present turn.
    fn take_over(&self) -> MutexGuard<'_, Agent> {
        self.is_wanted.store(true, Ordering::Relaxed);
        let agent = self.lock();
        self.is_wanted.store(false, Ordering::Relaxed);
        agent
    }

    fn lock(&self) -> MutexGuard<'_, Agent> {
        self.agent.lock().expect("a panic while the lock is held ends the process")
    }
}

/// Ends the process if a panic unwinds past this value. A failing agent must not leave its tasks
/// waiting; other nodes then lose the connection.
struct EndsProcess;

impl Drop for EndsProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // SAFETY: _exit returns never and accesses no memory of this process.
            unsafe { libc::_exit(101) }
        }
    }
}
