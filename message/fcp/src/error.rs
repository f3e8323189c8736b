//! Errors: a window that cannot be used, with one line that tells what failed, where, and what to
//! do; a message that was not sent; a receive buffer that cannot be read.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// The reason why a message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It is longer than the receiver's buffer.
    TooLong,
    /// There is no room, now or until the given time.
    Full,
    /// The receiver has ended; the sender noticed it while it waited for room.
    Dead,
    /// There is no member in this entry, or another one than expected.
    Gone,
    /// The receiver cannot read the sender's memory, so the message must be sent in parts.
    OutOfReach,
    /// The port is the parent's: a forked child must join by itself.
    Forked,
}

/// The reason why nothing can be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// A process has overwritten the buffer.
    Corrupt,
    /// The port is the parent's: a forked child must join by itself.
    Forked,
}

/// The lender of a loan in advance has not written the bytes, and will not write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

/// The reason why a window cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WindowError {
    /// The system refuses.
    System {
        /// The verb of the failed action.
        doing: &'static str,
        /// The memory.
        place: String,
        /// The system's error.
        error: Errno,
    },
    /// A file of sysfs or procfs about the memory cannot be read.
    Attribute {
        /// The memory.
        place: String,
        /// The file that cannot be read.
        path: String,
        /// The system's error.
        why: String,
    },
    /// The name is not valid in `/dev/shm`.
    Name {
        /// The name.
        name: String,
    },
    /// The memory belongs to another user.
    Foreign {
        /// The memory.
        place: String,
        /// Its owner.
        owner: u32,
        /// The caller's effective user ID.
        euid: u32,
    },
    /// Other users may open the file.
    Open {
        /// The file.
        place: String,
        /// Its permissions.
        mode: u32,
    },
    /// The descriptor is not open for reading and writing.
    ReadOnly {
        /// The descriptor.
        place: String,
    },
    /// The file is of the wrong kind.
    Unfit {
        /// The file.
        place: String,
        /// The defect, with a verb.
        why: String,
    },
    /// The size does not fit.
    Size {
        /// The memory.
        place: String,
        /// Its size in bytes.
        has: usize,
        /// The requested size.
        wanted: Option<usize>,
    },
    /// The memory holds something else than a window.
    NotAWindow {
        /// The memory.
        place: String,
    },
    /// The memory is zero, and the caller gave no plan.
    Empty {
        /// The memory.
        place: String,
    },
    /// The window has another plan.
    Differs {
        /// The memory.
        place: String,
        /// Its plan.
        found: String,
        /// The requested plan.
        wanted: String,
    },
    /// The window has living members.
    Busy {
        /// The memory.
        place: String,
    },
    /// No entry is free for a new member.
    Full {
        /// The window.
        place: String,
        /// The requested entry, if there was one.
        index: Option<u16>,
        /// Number of entries.
        members: u16,
    },
    /// A living member still has a loan from the entry's former owner.
    Lent {
        /// The window.
        place: String,
        /// The entry.
        index: u16,
        /// The entry of a borrower.
        borrower: u16,
    },
    /// The window has no receive buffers for this protocol.
    NoMessages {
        /// The window.
        place: String,
    },
}

impl WindowError {
    pub(crate) fn attribute(place: &str, path: &str, error: &io::Error) -> Self {
        Self::Attribute { place: place.into(), path: path.into(), why: error.to_string() }
    }
}

impl fmt::Display for WindowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "window: ")?;
        match self {
            Self::System { doing, place, error } => {
                write!(f, "cannot {doing} {place}: {error}")?;
                match *error {
                    Errno::NOSPC => write!(f, "; free some, or make a smaller window"),
                    Errno::NOMEM => write!(f, "; make a smaller one, or reserve more huge pages"),
                    Errno::ACCESS | Errno::PERM => write!(f, "; its owner must allow it"),
                    Errno::LOOP => write!(f, "; give the path to which the link leads"),
                    Errno::NOENT => {
                        write!(f, "; give a size to make it, or mount the missing file system")
                    }
                    _ => Ok(()),
                }
            }
            Self::Attribute { place, path, why } => {
                write!(f, "{place}: cannot read {path}: {why}; mount /sys and /proc")
            }
            Self::Name { name } => {
                write!(f, "{name:?} is no name for /dev/shm; use one without / and leading dot")
            }
            Self::Foreign { place, owner, euid } => write!(
                f,
                "{place} belongs to user {owner}, not {euid}; use another name or remove it"
            ),
            Self::Open { place, mode } => {
                write!(
                    f,
                    "{place} has mode {mode:o}, so other users may open it; chmod 600 {place}"
                )
            }
            Self::ReadOnly { place } => {
                write!(f, "{place} is not open for reading and writing; open it with O_RDWR")
            }
            Self::Unfit { place, why } => {
                write!(f, "{place} {why}; use a file, /dev/daxN.M or a memory device's resourceN")
            }
            Self::Size { place, has, wanted: Some(wanted) } => {
                write!(f, "{place} has {has} bytes, not {wanted}; ask for that size, or remove it")
            }
            Self::Size { place, has, wanted: None } => {
                write!(
                    f,
                    "{place} has {has} bytes, but a window has whole pages; give it such a size"
                )
            }
            Self::NotAWindow { place } => {
                write!(f, "{place} is not a window; erase it if nobody needs it")
            }
            Self::Empty { place } => {
                write!(f, "{place} is no window yet; give a plan with the number of members")
            }
            Self::Differs { place, found, wanted } => {
                write!(
                    f,
                    "{place} is for {found}, not for {wanted}; ask for that plan, or erase it"
                )
            }
            Self::Busy { place } => write!(f, "{place} has living members; end them first"),
            Self::Full { place, index: Some(index), .. } => {
                write!(f, "{place}: place {index} is taken; use another, or end its owner")
            }
            Self::Lent { place, index, borrower } => write!(
                f,
                "{place}: member {borrower} still has a loan from place {index}; use another"
            ),
            Self::NoMessages { place } => {
                write!(
                    f,
                    "{place} has no room for messages of this protocol; plan some when you make it"
                )
            }
            Self::Full { place, members, .. } => {
                write!(f, "{place}: all {members} places are taken; make a window for more")
            }
        }
    }
}

impl std::error::Error for WindowError {}
