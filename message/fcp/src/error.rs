//! Why a window is refused: one line that says what, where, and what to do.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// Why a window is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WindowError {
    /// The system refuses.
    System {
        /// What was tried.
        doing: &'static str,
        /// With what.
        place: String,
        /// What the system says.
        error: Errno,
    },
    /// What sysfs or procfs should say of the memory cannot be read.
    Attribute {
        /// The memory.
        place: String,
        /// The file that cannot be read.
        path: String,
        /// What the system says.
        why: String,
    },
    /// No name for `/dev/shm`.
    Name {
        /// The name.
        name: String,
    },
    /// It belongs to somebody else.
    Foreign {
        /// The memory.
        place: String,
        /// Its owner.
        owner: u32,
        /// Us.
        euid: u32,
    },
    /// Others may open it.
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
    /// It is of the wrong kind.
    Unfit {
        /// The file.
        place: String,
        /// What it is.
        why: String,
    },
    /// The size does not fit.
    Size {
        /// The memory.
        place: String,
        /// Its bytes.
        has: usize,
        /// What was asked for.
        wanted: Option<usize>,
    },
    /// It holds something that is no window.
    NotAWindow {
        /// The memory.
        place: String,
    },
    /// It holds nothing yet.
    Empty {
        /// The memory.
        place: String,
    },
    /// It is a window with another plan.
    Differs {
        /// The memory.
        place: String,
        /// Its plan.
        found: String,
        /// The plan that was asked for.
        wanted: String,
    },
    /// Members live in it.
    Busy {
        /// The memory.
        place: String,
    },
    /// No entry for a new member.
    Full {
        /// The window.
        place: String,
        /// Which entry, if one was asked for.
        index: Option<u16>,
        /// How many there are.
        members: u16,
    },
    /// The living still read what the entry's former owner has lent them.
    Lent {
        /// The window.
        place: String,
        /// The entry.
        index: u16,
        /// The entry of one who reads.
        borrower: u16,
    },
    /// It has no receive buffers.
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
                    Errno::NOSPC => write!(f, "; free some, or take a smaller window"),
                    Errno::NOMEM => write!(f, "; take a smaller one, or more huge pages"),
                    Errno::ACCESS | Errno::PERM => write!(f, "; its owner must allow it"),
                    Errno::LOOP => write!(f, "; give the path that the link leads to"),
                    Errno::NOENT => write!(f, "; give a size to make it, or mount what lacks"),
                    _ => Ok(()),
                }
            }
            Self::Attribute { place, path, why } => {
                write!(f, "{place}: cannot read {path}: {why}; mount /sys and /proc")
            }
            Self::Name { name } => {
                write!(f, "{name:?} is no name for /dev/shm; take one without / and leading dot")
            }
            Self::Foreign { place, owner, euid } => write!(
                f,
                "{place} belongs to user {owner}, we are {euid}; take another name or remove it"
            ),
            Self::Open { place, mode } => {
                write!(f, "{place} has mode {mode:o}, others may open it; chmod 600 {place}")
            }
            Self::ReadOnly { place } => {
                write!(f, "{place} is not open for reading and writing; open it with O_RDWR")
            }
            Self::Unfit { place, why } => {
                write!(f, "{place} {why}; take a file, /dev/daxN.M or a memory device's resourceN")
            }
            Self::Size { place, has, wanted: Some(wanted) } => {
                write!(f, "{place} has {has} bytes, not {wanted}; take its size, or remove it")
            }
            Self::Size { place, has, wanted: None } => {
                write!(f, "{place} has {has} bytes, which is no window's size; give it whole pages")
            }
            Self::NotAWindow { place } => {
                write!(f, "{place} holds something that is no window; erase it if it may go")
            }
            Self::Empty { place } => {
                write!(f, "{place} is no window yet; say how many members it is for")
            }
            Self::Differs { place, found, wanted } => {
                write!(f, "{place} is for {found}, not for {wanted}; ask for that, or erase it")
            }
            Self::Busy { place } => write!(f, "{place} has living members; end them first"),
            Self::Full { place, index: Some(index), .. } => {
                write!(f, "{place}: place {index} is taken; take another, or end who has it")
            }
            Self::Lent { place, index, borrower } => write!(
                f,
                "{place}: member {borrower} still reads what place {index} had lent; take another"
            ),
            Self::NoMessages { place } => {
                write!(
                    f,
                    "{place} has no room for messages of this protocol; plan some when it is made"
                )
            }
            Self::Full { place, members, .. } => {
                write!(f, "{place}: all {members} places are taken; make a window for more")
            }
        }
    }
}

impl std::error::Error for WindowError {}
