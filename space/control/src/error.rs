//! Why a call failed, in words and as an errno.

use std::fmt;

use rustix::io::Errno;

/// Longest exported name in bytes.
pub const NAME_MAX: usize = 95;
/// Most names that one task exports.
pub const NAMES_MAX: usize = 255;

/// An error of this crate. `Display` is one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The task ended while the caller waited for it.
    TaskEnded(u32),
    /// An argument makes no sense.
    Invalid(&'static str),
    /// A name is longer than PVAS_NAME_MAX.
    NameTooLong,
    /// The task exports nothing under this name.
    NoName,
    /// The task already exports PVAS_EXPORT_NAMES names.
    NamesFull,
    /// The time limit has passed.
    TimedOut,
    /// A signal arrived while the caller waited.
    Interrupted,
    /// A system call failed: which, and why.
    System(&'static str, Errno),
}

impl Error {
    /// Returns the errno that C callers get.
    pub fn errno(&self) -> Errno {
        match self {
            Error::TaskEnded(_) => Errno::SRCH,
            Error::Invalid(_) => Errno::INVAL,
            Error::NameTooLong => Errno::NAMETOOLONG,
            Error::NoName => Errno::NOENT,
            Error::NamesFull => Errno::NOSPC,
            Error::TimedOut => Errno::TIMEDOUT,
            Error::Interrupted => Errno::INTR,
            Error::System(_, errno) => *errno,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::TaskEnded(id) => write!(f, "task {id} ended"),
            Error::Invalid(what) => write!(f, "invalid {what}"),
            Error::NameTooLong => {
                write!(f, "name longer than {} bytes", NAME_MAX)
            }
            Error::NoName => write!(f, "nothing is exported under this name"),
            Error::NamesFull => {
                write!(f, "the task exports {} names already", NAMES_MAX)
            }
            Error::TimedOut => write!(f, "timed out"),
            Error::Interrupted => write!(f, "interrupted by a signal"),
            Error::System(call, errno) => write!(f, "{call}: {errno}"),
        }
    }
}

impl std::error::Error for Error {}
