//! The reason why a call failed, in words and as an errno.

use std::fmt;

use rustix::io::Errno;

/// An error of this crate. `Display` is one line: what failed, and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// The caller is no task.
    NotATask,
    /// The tasks of the job are protected from each other.
    Protected,
    /// This argument is invalid.
    Invalid(&'static str),
    /// This pointer is NULL.
    Null(&'static str),
    /// No task with this ID lives, or the known one has ended.
    NoTask(u32),
    /// The task serves no requests.
    NoDelegatee(u32),
    /// The delegatee ended before it answered. It may have done the work.
    Died(u32),
    /// The request was not started: it was cancelled, or the delegatee has closed its queue.
    Cancelled,
    /// The payload is longer than the maximum, which this is.
    TooLong(usize),
    /// The delegatee takes no descriptors, or is on another machine.
    TakesNone,
    /// The job's node server has no delegatee.
    NoServer,
    /// The queue is full, or the caller has used its share of it.
    Full,
    /// The time limit has passed.
    TimedOut,
    /// The calling task already serves requests.
    Open,
    /// The calling task serves no requests.
    Closed,
    /// A task has overwritten the queue.
    Corrupt,
    /// There is no memory.
    NoMemory,
    /// Another call failed.
    System(Errno),
}

impl Error {
    /// Returns the errno for a C caller.
    pub fn errno(self) -> Errno {
        match self {
            Self::NotATask | Self::NoTask(_) | Self::NoServer => Errno::SRCH,
            Self::Invalid(_) => Errno::INVAL,
            Self::Null(_) => Errno::FAULT,
            Self::NoDelegatee(_) => Errno::CONNREFUSED,
            Self::Died(_) => Errno::CONNRESET,
            Self::Cancelled => Errno::CANCELED,
            Self::TooLong(_) => Errno::MSGSIZE,
            Self::TakesNone | Self::Protected => Errno::OPNOTSUPP,
            Self::Full => Errno::AGAIN,
            Self::TimedOut => Errno::TIMEDOUT,
            Self::Open => Errno::BUSY,
            Self::Closed => Errno::BADF,
            Self::Corrupt => Errno::IO,
            Self::NoMemory => Errno::NOMEM,
            Self::System(errno) => errno,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotATask => write!(f, "the caller is no task; start it by nagaya run"),
            Self::Protected => {
                write!(f, "tasks cannot delegate in a protected job; start it without --protect")
            }
            Self::Invalid(what) => write!(f, "{what} is invalid"),
            Self::Null(what) => write!(f, "{what} is NULL"),
            Self::NoTask(id) => write!(f, "task {id} has ended; find its successor"),
            Self::NoDelegatee(id) => write!(f, "task {id} serves no requests, or no longer"),
            Self::Died(id) => {
                write!(f, "task {id} ended before it answered; it may have done the work")
            }
            Self::Cancelled => write!(f, "the request was cancelled before it started"),
            Self::TooLong(most) => {
                write!(f, "a request carries at most {most} bytes; pass an address instead")
            }
            Self::TakesNone => {
                write!(
                    f,
                    "the delegatee takes no descriptors from this task; open it with PVAS_DELEGATE_PASSED"
                )
            }
            Self::NoServer => {
                write!(
                    f,
                    "the node server of this job is no delegatee; start the job with --delegatee"
                )
            }
            Self::Full => write!(f, "too many requests are in progress; wait for one of them"),
            Self::TimedOut => write!(f, "the time limit has passed"),
            Self::Open => write!(f, "this task already serves requests"),
            Self::Closed => {
                write!(f, "this task serves no requests; call pvas_delegate_open first")
            }
            Self::Corrupt => write!(f, "a task has overwritten the queue of requests"),
            Self::NoMemory => write!(f, "out of memory"),
            Self::System(errno) => write!(f, "{errno}"),
        }
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}
