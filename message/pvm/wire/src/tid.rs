//! Task identifiers: which host, which of its tasks, which place in its window.
//!
//! ```text
//! 31 daemon │ 30 multicast │ 29..18 host, from 1 │ 17..0 local, from 1
//! ```
//! A task's receive buffer is found by computing (FCP II): its place in the host's window is
//! the local part modulo the window's members. Place 0 is the daemon's.

/// Bit of a daemon's tid.
pub const DAEMON: u32 = 1 << 31;
/// Bit of a multicast address.
pub const MULTICAST: u32 = 1 << 30;
/// Most hosts of a virtual machine.
pub const HOST_MAX: u16 = (1 << 12) - 1;
/// Largest local part.
pub const LOCAL_MAX: u32 = (1 << 18) - 1;
/// Members of a host's window: its daemon, and this many less one tasks at a time.
pub const MEMBERS: u16 = 1024;

/// The source of the daemon's messages to a task of its host, whichever host that is.
pub const PVMD: Tid = Tid(DAEMON);

/// A tid. C programs see it as an `int`; a daemon's is negative.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Tid(pub u32);

impl Tid {
    /// The daemon of host `host`.
    pub const fn daemon(host: u16) -> Tid {
        Tid(DAEMON | (host as u32) << 18)
    }

    /// What programs know host `host` by: pvm_config, pvm_tidtohost, notices.
    pub const fn of_host(host: u16) -> Tid {
        Tid((host as u32) << 18)
    }

    /// The task with this local part.
    pub const fn task(host: u16, local: u32) -> Tid {
        Tid((host as u32) << 18 | local)
    }

    /// Which host's, from 1.
    pub const fn host(self) -> u16 {
        (self.0 >> 18) as u16 & HOST_MAX
    }

    /// The local part.
    pub const fn local(self) -> u32 {
        self.0 & LOCAL_MAX
    }

    /// Whether it is a task's: neither a daemon's nor a multicast address nor a host's. As in
    /// libpvm, tasks of host 0, which there is not, only do not exist.
    pub const fn is_task(self) -> bool {
        self.0 & (DAEMON | MULTICAST) == 0 && self.local() != 0
    }

    /// Whether it is a daemon's.
    pub const fn is_daemon(self) -> bool {
        self.0 & DAEMON != 0 && self.local() == 0
    }

    /// The place in its host's window.
    pub const fn place(self) -> u16 {
        if self.is_daemon() { 0 } else { (self.local() % MEMBERS as u32) as u16 }
    }

    /// As C programs see it.
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
    /// `t40001`, as PVM prints them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "t{:x}", self.0)
    }
}
