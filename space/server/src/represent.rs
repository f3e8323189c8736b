//! The loop of a stub that represents a task. The stub forwards its signals to the task, and stops
//! and ends with it.
//!
//! It consists of steps with one system call each, because other processes may stop or continue
//! the stub between any two of them. A SIGCONT that arrives between the last read of the signals
//! and the stop of the stub is lost. The launcher sees a stop after its SIGCONT then.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use pvas::connection::Connection;
use rustix::event::{PollFd, PollFlags, poll};

use crate::protocol::{Reply, Request, SI_KERNEL};

/// A signal that the stub has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    pub number: i32,
    /// `si_code`.
    pub code: i32,
    /// The value of sigqueue.
    pub value: i32,
}

/// The system calls of a stub about its own process.
pub trait System {
    /// Waits for a message and for signals. Returns true for those that have arrived.
    fn wait(&self, connection: &Connection) -> (bool, bool);

    /// Takes the signals that have arrived, without waiting.
    fn signals(&self) -> Vec<Signal>;

    /// Stops this process by SIGSTOP. Returns when it continues.
    fn stop(&self);
}

/// An event that ends the stub, or that it reports to the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// Some of the job's ranks on this node have not started.
    RanksMissing { present: u32, expected: u32 },
    /// The task has ended, with this wait status.
    Ended(i32),
    /// The server has disconnected.
    ServerLost,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Handle a message that has been read.
    Message,
    Wait,
    /// Read messages.
    Fill,
    /// Read the signals.
    Signals,
    /// Forward one of the signals.
    Forward,
    /// Stop this process.
    Stop,
}

/// A stub whose task runs.
#[derive(Debug)]
pub struct Representative<S> {
    connection: Connection,
    system: S,
    /// The task is in the stub's process group, so it gets the terminal's signals directly.
    in_group: bool,
    next: Next,
    is_open: bool,
    /// Signals to forward.
    signals: VecDeque<Signal>,
    /// Number of SIGCONT that this stub has forwarded.
    continues: u64,
    /// The task has stopped: the number of SIGCONT that the server had received by then.
    stopped: Option<u64>,
}

impl<S: System> Representative<S> {
    pub fn new(connection: Connection, system: S, in_group: bool) -> Self {
        Self {
            connection,
            system,
            in_group,
            // Messages that have already arrived come first: the task may end at its start.
            next: Next::Message,
            is_open: true,
            signals: VecDeque::new(),
            continues: 0,
            stopped: None,
        }
    }

    /// Returns true if the stub would sleep in its next step.
    #[cfg(test)]
    pub fn sleeps(&self) -> bool {
        self.next == Next::Wait && self.system.wait(&self.connection) == (false, false)
    }

    /// Takes the next step. Returns news, if there are any; the last are that the task has ended or
    /// that the server is lost.
    pub fn step(&mut self) -> Option<News> {
        self.next = match self.next {
            Next::Message => match self.connection.take::<Reply>() {
                Ok(Some((Reply::Ended(status), _))) => return Some(News::Ended(status)),
                Ok(Some((Reply::RanksMissing { present, expected }, _))) => {
                    return Some(News::RanksMissing { present, expected });
                }
                // A stop would discard a SIGCONT that has arrived, so the signals come first.
                Ok(Some((Reply::Stopped { continues, .. }, _))) => {
                    self.stopped = Some(continues);
                    Next::Signals
                }
                Ok(Some(_)) => Next::Message,
                _ if !self.is_open => return Some(News::ServerLost),
                _ => Next::Wait,
            },
            Next::Wait => match self.system.wait(&self.connection) {
                (true, _) => Next::Fill,
                (false, true) => Next::Signals,
                (false, false) => Next::Message,
            },
            Next::Fill => {
                self.is_open = self.connection.fill().unwrap_or(false);
                Next::Message
            }
            Next::Signals => {
                self.signals.extend(self.system.signals());
                Next::Forward
            }
            Next::Forward => match (self.signals.pop_front(), self.stopped.take()) {
                (Some(signal), stopped) => {
                    self.forward(signal);
                    self.stopped = stopped;
                    Next::Forward
                }
                // The server continues the task after the stop if a SIGCONT is still on its way.
                (None, Some(continues)) if continues == self.continues => Next::Stop,
                (None, _) => Next::Message,
            },
            // The launcher must see this process stop; SIGCONT resumes it and the task.
            Next::Stop => {
                self.system.stop();
                Next::Message
            }
        };
        None
    }

    fn forward(&mut self, Signal { number, code, value }: Signal) {
        let from_terminal = code == SI_KERNEL && self.in_group;
        self.continues += u64::from(number == libc::SIGCONT);
        if number == libc::SIGCHLD || (from_terminal && number != libc::SIGCONT) {
            return;
        }
        let value = (code == libc::SI_QUEUE).then_some(value);
        // If the server has gone, the closed connection reports that.
        let _ = self.connection.send(&Request::Signal(number, value), &[]);
    }
}

/// The system calls of this process, which has blocked all signals.
#[derive(Debug)]
pub struct Kernel {
    /// A signalfd for all signals, non-blocking.
    pub signals: OwnedFd,
}

impl System for Kernel {
    fn wait(&self, connection: &Connection) -> (bool, bool) {
        let mut fds =
            [PollFd::new(connection, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
        let _ = poll(&mut fds, None); // no EINTR: all signals are blocked
        (!fds[0].revents().is_empty(), !fds[1].revents().is_empty())
    }

    fn signals(&self) -> Vec<Signal> {
        let mut buffer = [0u8; 128 * 8];
        let size = rustix::io::read(&self.signals, &mut buffer).unwrap_or(0);
        let signal = |entry: &[u8]| {
            let word =
                |n: usize| i32::from_le_bytes(entry[n * 4..n * 4 + 4].try_into().expect("4 bytes"));
            // struct signalfd_siginfo: signo, errno, code, …, and ssi_int at 44 bytes.
            Signal { number: word(0), code: word(2), value: word(11) }
        };
        buffer[..size].chunks_exact(128).map(signal).collect()
    }

    fn stop(&self) {
        // SAFETY: kill touches no memory.
        unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
    }
}
