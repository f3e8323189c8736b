//! What PVM's functions return instead of a result.

/// A negative return code. The discriminants are those of `pvm3.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Error {
    /// An argument has a value that it cannot have.
    BadParam = -2,
    /// Two arguments do not go together, such as two encodings, or counts in a group.
    Mismatch = -3,
    /// A value does not fit its encoding.
    Overflow = -4,
    /// The message ends before what is to be unpacked.
    NoData = -5,
    /// The host is not in the virtual machine.
    NoHost = -6,
    /// There is no such program.
    NoFile = -7,
    /// Somebody else owns it.
    Denied = -8,
    /// There is no memory, or a message would be longer than one can be.
    NoMem = -10,
    /// The message's encoding is not one that this machine reads, or its contents are not valid.
    BadMsg = -12,
    /// There is no daemon, or it does not answer.
    SysErr = -14,
    /// There is no active buffer.
    NoBuf = -15,
    /// No buffer has this number.
    NoSuchBuf = -16,
    /// The name of the group is empty.
    NullGroup = -17,
    /// The task is in the group already.
    DupGroup = -18,
    /// There is no such group.
    NoGroup = -19,
    /// The task is not in the group.
    NotInGroup = -20,
    /// The group has no such instance.
    NoInst = -21,
    /// The host has failed.
    HostFail = -22,
    /// The task was not spawned by a task.
    NoParent = -23,
    /// This is not possible here.
    NotImpl = -24,
    /// The daemon had an error of its system.
    DSysErr = -25,
    /// Daemon, library or task speak different versions.
    BadVersion = -26,
    /// Some limit of the machine or of PVM is reached.
    OutOfRes = -27,
    /// The host is in the virtual machine already.
    DupHost = -28,
    /// No daemon could be started there.
    CantStart = -29,
    /// The same is being done already.
    Already = -30,
    /// There is no such task.
    NoTask = -31,
    /// There is no such entry.
    NotFound = -32,
    /// There is such an entry.
    Exists = -33,
    /// The hoster does not run on the master's host.
    HostrNMstr = -34,
    /// The spawning task did not want to be known as the parent.
    ParentNotSet = -35,
    /// The master's address is a loopback address.
    IpLoopback = -36,
}

impl Error {
    /// The number that a C or Fortran program gets.
    pub fn code(self) -> i32 {
        self as i32
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pvm{self:?} ({})", self.code())
    }
}

impl std::error::Error for Error {}
