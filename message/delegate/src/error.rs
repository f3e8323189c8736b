//! Why a call failed, in words and as an errno.

use std::fmt;

use rustix::io::Errno;

/// An error of this crate. `Display` is one line: what, and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// The caller is no task.
    NotATask,
    /// An argument makes no sense: which.
    Invalid(&'static str),
    /// A pointer that must not be NULL is.
    Null(&'static str),
    /// No task with this ID lives, or the one that we knew has ended.
    NoTask(u32),
    /// The task serves no requests.
    NoDelegatee(u32),
    /// The delegatee ended before it answered: whether it did the work is not known.
    Died(u32),
    /// The request was not begun: it was cancelled, or the delegatee has closed its queue.
    Cancelled,
    /// The payload is longer than a request can carry.
    TooLong(usize),
    /// The delegatee takes no descriptors, or is on another machine.
    TakesNone,
    /// The job has no delegatee of the node server's.
    NoServer,
    /// The queue is full, or the caller has its share of it.
    Full,
    /// The time was over first.
    TimedOut,
    /// The calling task serves requests already.
    Open,
    /// The calling task serves no requests.
    Closed,
    /// Some task has overwritten our queue.
    Corrupt,
    /// No memory.
    NoMemory,
    /// Another call failed.
    System(Errno),
}

impl Error {
    /// The errno for a C caller.
    pub fn errno(self) -> Errno {
        match self {
            Self::NotATask | Self::NoTask(_) | Self::NoServer => Errno::SRCH,
            Self::Invalid(_) => Errno::INVAL,
            Self::Null(_) => Errno::FAULT,
            Self::NoDelegatee(_) => Errno::CONNREFUSED,
            Self::Died(_) => Errno::CONNRESET,
            Self::Cancelled => Errno::CANCELED,
            Self::TooLong(_) => Errno::MSGSIZE,
            Self::TakesNone => Errno::OPNOTSUPP,
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
            Self::NotATask => write!(f, "the caller is no task: start it by nagaya run"),
            Self::Invalid(what) => write!(f, "{what} makes no sense"),
            Self::Null(what) => write!(f, "{what} is NULL"),
            Self::NoTask(id) => write!(f, "task {id} does not live; find its successor anew"),
            Self::NoDelegatee(id) => write!(f, "task {id} serves no requests (any more)"),
            Self::Died(id) => {
                write!(f, "task {id} ended before it answered; it may have done the work")
            }
            Self::Cancelled => write!(f, "the request was cancelled before it was begun"),
            Self::TooLong(most) => write!(f, "a request carries {most} bytes; pass an address"),
            Self::TakesNone => {
                write!(
                    f,
                    "the delegatee takes no descriptors (PVAS_DELEGATE_PASSED), or none of ours"
                )
            }
            Self::NoServer => {
                write!(f, "the node server is no delegatee in this job: nagaya run --delegatee")
            }
            Self::Full => write!(f, "too many requests are on their way; wait for one of them"),
            Self::TimedOut => write!(f, "the time was over first"),
            Self::Open => write!(f, "this task serves requests already"),
            Self::Closed => write!(f, "this task serves no requests: pvas_delegate_open"),
            Self::Corrupt => write!(f, "some task has overwritten our queue of requests"),
            Self::NoMemory => write!(f, "no memory"),
            Self::System(errno) => write!(f, "{errno}"),
        }
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}
