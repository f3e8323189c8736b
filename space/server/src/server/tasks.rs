//! The tasks of a node server, and the stubs that represent them: what the server does when one of
//! them stops, continues or ends.
//!
//! A task that stops or ends is reported to its stub. A stub that sends a signal sends it to its
//! task. A stub that disconnects takes its task with it. `stops.rs` has the rules for stops.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use pvas::placeholder::Placeholder;

use super::peers::{Lost, Peer, Peers};
use super::stops::Stops;
use crate::processes::Processes;
use crate::protocol::{Reply, Request};

/// A running task.
#[derive(Debug)]
pub(super) struct Running {
    pub id: u32,
    /// Key of the connection of its stub; `None` if `nagaya run` started the task.
    pub stub: Option<u64>,
    pub path: String,
    pub arguments: Vec<String>,
    /// Keeps the program's file from being written to.
    pub _placeholder: Option<Rc<Placeholder>>,
}

/// A child of the server that has ended.
#[derive(Debug)]
pub(super) struct Reaped {
    pub pid: u32,
    /// Wait status, as waitpid returns it.
    pub status: i32,
    /// The task, unless the child is a domain's keeper.
    pub task: Option<Running>,
}

/// The tasks, and the connected stubs and tools.
#[derive(Debug)]
pub(super) struct Tasks<P> {
    processes: P,
    pub peers: Peers,
    /// By PID.
    running: HashMap<u32, Running>,
    pub stops: Stops,
}

impl<P: Processes> Tasks<P> {
    pub fn new(processes: P, peers: Peers) -> Self {
        Self { processes, peers, running: HashMap::new(), stops: Stops::new() }
    }

    /// Returns the running tasks, by PID.
    pub fn running(&self) -> &HashMap<u32, Running> {
        &self.running
    }

    /// Adds a task that has been started.
    pub fn add(&mut self, pid: u32, task: Running) {
        self.running.insert(pid, task);
    }

    /// Lets a stub represent a task. A task that `outlives` its stub runs on if that disconnects.
    pub fn represent(&mut self, pid: u32, stub: u64, outlives: bool) {
        if let Some(task) = self.running.get_mut(&pid) {
            task.stub = Some(stub);
        }
        if let Some(peer) = self.peers.get_mut(stub) {
            (peer.task, peer.spares) = (Some(pid), outlives);
            self.stops.add(stub, peer.pid, pid);
        }
    }

    /// Handles all changes of the children's states, and reports them to the stubs. Returns the
    /// children that have ended.
    pub fn reap(&mut self) -> Vec<Reaped> {
        let mut ended = Vec::new();
        while let Some((pid, status)) = self.processes.wait() {
            let stub = self.running.get(&pid).and_then(|task| task.stub);
            if libc::WIFCONTINUED(status) {
                stub.into_iter().for_each(|it| self.stops.task_continued(&self.processes, it));
            } else if libc::WIFSTOPPED(status) {
                stub.into_iter().for_each(|it| self.report_stop(it, libc::WSTOPSIG(status)));
            } else {
                if let Some(stub) = stub {
                    self.stops.task_ended(&self.processes, stub);
                    if let Some(peer) = self.peers.get_mut(stub) {
                        peer.task = None;
                    }
                    self.reply(stub, &Reply::Ended(status));
                }
                ended.push(Reaped { pid, status, task: self.running.remove(&pid) });
            }
        }
        ended
    }

    /// Reports to a stub that its task is stopped, if it is, and if the stub is not.
    fn report_stop(&mut self, stub: u64, signal: i32) {
        if let Some(continues) = self.stops.task_stopped(&self.processes, stub) {
            self.reply(stub, &Reply::Stopped { signal, continues });
        }
    }

    /// Stops the tasks of stubs that have been stopped, if a check is due.
    pub fn check_stops(&mut self) {
        for pid in self.stops.check(&self.processes) {
            self.signal(pid, libc::SIGSTOP, None);
        }
    }

    /// Sends a reply to a peer.
    pub fn reply(&mut self, key: u64, reply: &Reply) {
        if self.peers.reply(key, reply).is_err() {
            self.disconnect(key);
        }
    }

    /// Removes a peer that has disconnected, and kills its task unless the task outlives the stub.
    pub fn disconnect(&mut self, key: u64) {
        let Some(Peer { task, spares, .. }) = self.peers.remove(key) else { return };
        self.stops.remove(key);
        if let Some(pid) = task
            && let Some(task) = self.running.get_mut(&pid)
        {
            task.stub = None;
            if !spares {
                self.signal(pid, libc::SIGKILL, None);
            }
        }
    }

    /// Sends a signal to a task, with a value if there is one.
    pub fn signal(&self, pid: u32, signal: i32, value: Option<i32>) {
        // A PID in `running` is a child that is not reaped yet.
        if self.running.contains_key(&pid) {
            self.processes.signal(pid.cast_signed(), signal, value);
        }
    }

    /// Reads the next request of a peer, and passes signals on. Returns any other request.
    /// [`Tasks::watch`] must follow.
    pub fn next(&mut self, job: &str, key: u64) -> Option<(Request, Vec<OwnedFd>)> {
        match self.peers.next(key) {
            Ok(Some((Request::Signal(signal, value), _))) => {
                if signal == libc::SIGCONT {
                    self.stops.stub_continued(key);
                }
                if let Some(pid) = self.peers.get(key).and_then(|peer| peer.task) {
                    self.signal(pid, signal, value);
                }
                // A stub that was stopped with its task, and that continues and gets such a signal
                // at once, never reads the SIGCONT. Its task stays stopped, without a new stop.
                if [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal) {
                    self.report_stop(key, signal);
                }
                None
            }
            Ok(request) => request,
            Err(Lost::Closed) => {
                self.disconnect(key);
                None
            }
            Err(Lost::Failed(error)) => {
                let message = format!("the node server of job {job}: {error}");
                if self.peers.finish(key, &Reply::Refused(message, 125)) {
                    self.disconnect(key);
                }
                None
            }
        }
    }

    /// Waits for the next events of a peer.
    pub fn watch(&mut self, key: u64) {
        if self.peers.watch(key).is_err() {
            self.disconnect(key);
        }
    }
}

#[cfg(test)]
mod tests;
