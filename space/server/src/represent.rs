//! The loop of a stub that represents a task. The stub forwards its signals to the task, and stops
//! and ends with it.
//!
//! It consists of steps with one system call each, because other processes may stop or continue
//! the stub between any two of them.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use pvas::connection::Connection;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

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

    /// Takes the signals that have arrived.
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
    /// Wait.
    Wait,
    /// Read the signals. A message may have arrived, too.
    Signals { message: bool },
    /// Forward one of the signals.
    Forward { message: bool },
    /// Read messages if there are any.
    Poll,
    /// Read messages.
    Fill,
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
    /// SIGCONT was among the last signals. A message about a stop that arrived before is out of
    /// date: the server has continued the task since.
    continued: bool,
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
            continued: false,
        }
    }

    /// Takes the next step. Returns news, if there are any; the last are that the task has ended or
    /// that the server is lost.
    pub fn step(&mut self) -> Option<News> {
        self.next = match self.next {
            Next::Message => match self.connection.take::<Reply>() {
                Ok(Some((reply, _))) => return self.handle(&reply),
                _ if !self.is_open => return Some(News::ServerLost),
                _ => Next::Wait,
            },
            Next::Wait => {
                self.continued = false;
                match self.system.wait(&self.connection) {
                    (message, true) => Next::Signals { message },
                    (true, false) => Next::Fill,
                    (false, false) => Next::Message,
                }
            }
            Next::Signals { message } => {
                self.signals.extend(self.system.signals());
                Next::Forward { message }
            }
            Next::Forward { message } => match self.signals.pop_front() {
                Some(signal) => {
                    self.forward(signal);
                    Next::Forward { message }
                }
                None if self.continued => Next::Poll,
                None if message => Next::Fill,
                None => Next::Message,
            },
            Next::Poll => {
                let mut fds = [PollFd::new(&self.connection, PollFlags::IN)];
                match poll(&mut fds, Some(&Timespec::default())) {
                    Ok(1..) => Next::Fill,
                    _ => Next::Message,
                }
            }
            Next::Fill => {
                self.is_open = self.connection.fill().unwrap_or(false);
                Next::Message
            }
        };
        None
    }

    fn handle(&self, reply: &Reply) -> Option<News> {
        match *reply {
            Reply::Ended(status) => return Some(News::Ended(status)),
            // The launcher must see this process stop; SIGCONT resumes it and the task.
            Reply::Stopped(_) if !self.continued => self.system.stop(),
            Reply::RanksMissing { present, expected } => {
                return Some(News::RanksMissing { present, expected });
            }
            _ => {}
        }
        None
    }

    fn forward(&mut self, Signal { number, code, value }: Signal) {
        let from_terminal = code == SI_KERNEL && self.in_group;
        self.continued |= number == libc::SIGCONT;
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
    /// A signalfd for all signals.
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
