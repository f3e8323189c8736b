//! Task identifiers (tids): host, task of the host, and member index in the host's window.
//!
//! ```text
//! 31 daemon │ 30 multicast │ 29..18 host, from 1 │ 17..0 local, from 1
//! ```
//! The tid determines the task's receive buffer (FCP II): its index in the host's window is the
//! local part modulo the number of members. Index 0 is the daemon's.

/// Bit of a daemon's tid.
pub const DAEMON: u32 = 1 << 31;
/// Bit of a multicast address.
pub const MULTICAST: u32 = 1 << 30;
/// Most hosts of a virtual machine.
pub const HOST_MAX: u16 = (1 << 12) - 1;
/// Largest local part.
pub const LOCAL_MAX: u32 = (1 << 18) - 1;
/// Members of a host's window. The daemon is one, so a host has at most this number minus one
/// tasks.
pub const MEMBERS: u16 = 1024;

/// The source of the daemon's messages to a task of its host; the same on all hosts.
pub const PVMD: Tid = Tid(DAEMON);

/// A tid. C programs see it as an `int`; a daemon's is negative.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Tid(pub u32);

impl Tid {
    /// Returns the tid of the daemon of host `host`.
    pub const fn daemon(host: u16) -> Tid {
        Tid(DAEMON | (host as u32) << 18)
    }

    /// Returns the tid by which programs name host `host`: pvm_config, pvm_tidtohost, notices.
    pub const fn of_host(host: u16) -> Tid {
        Tid((host as u32) << 18)
    }

    /// Returns the tid of the task with this local part.
    pub const fn task(host: u16, local: u32) -> Tid {
        Tid((host as u32) << 18 | local)
    }

    /// Returns the host, from 1.
    pub const fn host(self) -> u16 {
        (self.0 >> 18) as u16 & HOST_MAX
    }

    /// Returns the local part.
    pub const fn local(self) -> u32 {
        self.0 & LOCAL_MAX
    }

    /// Returns true for a task's tid, and false for a daemon, a multicast address or a host. As
    /// in libpvm, a task of host 0 counts as a task, although none exists.
    pub const fn is_task(self) -> bool {
        self.0 & (DAEMON | MULTICAST) == 0 && self.local() != 0
    }

    /// Returns true for a daemon's tid.
    pub const fn is_daemon(self) -> bool {
        self.0 & DAEMON != 0 && self.local() == 0
    }

    /// Returns the member index in its host's window.
    pub const fn place(self) -> u16 {
        if self.is_daemon() { 0 } else { (self.local() % MEMBERS as u32) as u16 }
    }

    /// Returns the tid as C programs see it.
    pub const fn as_int(self) -> i32 {
        self.0 as i32
    }
}

impl From<i32> for Tid {
    fn from(tid: i32) -> Tid {
        Tid(tid as u32)
    }
}

impl std::fmt::Display for Tid {
    /// Prints it as PVM does, for example `t40001`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "t{:x}", self.0)
    }
}
