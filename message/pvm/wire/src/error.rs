//! The error codes of PVM's functions.

/// A negative return code. The discriminants are those of `pvm3.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Error {
    /// An argument has an invalid value.
    BadParam = -2,
    /// Two arguments do not match, such as two encodings, or the counts of a group's members.
    Mismatch = -3,
    /// A value does not fit its encoding.
    Overflow = -4,
    /// The message ends before the item to be unpacked.
    NoData = -5,
    /// The host is not in the virtual machine.
    NoHost = -6,
    /// No such program exists.
    NoFile = -7,
    /// Another task owns the object.
    Denied = -8,
    /// Out of memory, or the message would exceed the maximum length.
    NoMem = -10,
    /// The message has an encoding that this machine cannot read, or invalid contents.
    BadMsg = -12,
    /// No daemon runs, or it does not answer.
    SysErr = -14,
    /// No buffer is active.
    NoBuf = -15,
    /// No buffer has this number.
    NoSuchBuf = -16,
    /// The group's name is empty.
    NullGroup = -17,
    /// The task is already in the group.
    DupGroup = -18,
    /// No such group exists.
    NoGroup = -19,
    /// The task is not in the group.
    NotInGroup = -20,
    /// The group has no such instance.
    NoInst = -21,
    /// The host has failed.
    HostFail = -22,
    /// The task was not spawned by a task.
    NoParent = -23,
    /// The operation is not supported.
    NotImpl = -24,
    /// A system call of the daemon failed.
    DSysErr = -25,
    /// Daemon, library or task have different versions.
    BadVersion = -26,
    /// A limit of the machine or of PVM is reached.
    OutOfRes = -27,
    /// The host is already in the virtual machine.
    DupHost = -28,
    /// No daemon could be started on the host.
    CantStart = -29,
    /// The operation is already in progress, or another task has the role.
    Already = -30,
    /// No such task exists.
    NoTask = -31,
    /// No such entry exists.
    NotFound = -32,
    /// The entry already exists.
    Exists = -33,
    /// The hoster does not run on the master's host.
    HostrNMstr = -34,
    /// The spawner passed `PvmNoSpawnParent`.
    ParentNotSet = -35,
    /// The master's address is a loopback address.
    IpLoopback = -36,
}

impl Error {
    /// Returns the number that a C or Fortran program gets.
    pub fn code(self) -> i32 {
        self as i32
    }

    /// Returns the error with this code.
    pub fn from_code(code: i32) -> Option<Error> {
        ALL.into_iter().find(|error| error.code() == code)
    }

    /// Returns the error with this name in `pvm3.h`.
    pub fn named(name: &str) -> Option<Error> {
        let named = |error: &Error| format!("Pvm{error:?}").eq_ignore_ascii_case(name);
        ALL.into_iter().find(named)
    }
}

const ALL: [Error; 32] = [
    Error::BadParam,
    Error::Mismatch,
    Error::Overflow,
    Error::NoData,
    Error::NoHost,
    Error::NoFile,
    Error::Denied,
    Error::NoMem,
    Error::BadMsg,
    Error::SysErr,
    Error::NoBuf,
    Error::NoSuchBuf,
    Error::NullGroup,
    Error::DupGroup,
    Error::NoGroup,
    Error::NotInGroup,
    Error::NoInst,
    Error::HostFail,
    Error::NoParent,
    Error::NotImpl,
    Error::DSysErr,
    Error::BadVersion,
    Error::OutOfRes,
    Error::DupHost,
    Error::CantStart,
    Error::Already,
    Error::NoTask,
    Error::NotFound,
    Error::Exists,
    Error::HostrNMstr,
    Error::ParentNotSet,
    Error::IpLoopback,
];

/// Returns PVM's text for this code, as in pvm_perror and the console (`pvm_errlist`).
pub fn text(code: i32) -> &'static str {
    TEXTS.get(code.unsigned_abs() as usize).filter(|_| code <= 0).unwrap_or(&"Unknown Error")
}

/// The texts by absolute value of the code, from 0.
pub const TEXTS: [&str; 37] = [
    "Error 0",
    "Error 1",
    "Bad parameter",
    "Parameter mismatch",
    "Value too large",
    "End of buffer",
    "No such host",
    "No such file",
    "Permission denied",
    "Error 9",
    "Malloc failed",
    "Error 11",
    "Can't decode message",
    "Error 13",
    "Can't contact local daemon",
    "No current buffer",
    "No such buffer",
    "Null group name",
    "Already in group",
    "No such group",
    "Not in group",
    "No such instance",
    "Host failed",
    "No parent task",
    "Not implemented",
    "Pvmd system error",
    "Version mismatch",
    "Out of resources",
    "Duplicate host",
    "Can't start pvmd",
    "Already in progress",
    "No such task",
    "Not Found",
    "Already Exists",
    "Hoster must run on master host",
    "Spawning parent set PvmNoParent",
    "Master Host IP Address is Loopback! (See pvm3/Readme)",
];

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pvm{self:?} ({})", self.code())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_found_by_their_codes() {
        assert_eq!(Error::from_code(-2), Some(Error::BadParam));
        assert_eq!(Error::from_code(-36), Some(Error::IpLoopback));
        assert_eq!(Error::from_code(-9), None);
        assert_eq!(Error::from_code(0), None);
    }

    #[test]
    fn codes_have_the_texts_of_libpvm() {
        assert_eq!(text(Error::BadParam.code()), "Bad parameter");
        assert_eq!(text(Error::NoTask.code()), "No such task");
        assert_eq!(text(Error::NotFound.code()), "Not Found");
        assert_eq!(text(Error::ParentNotSet.code()), "Spawning parent set PvmNoParent");
        assert_eq!(text(Error::IpLoopback.code()), TEXTS[36]);
        assert_eq!(text(-37), "Unknown Error");
        assert_eq!(text(2), "Unknown Error");
        assert_eq!(text(i32::MIN), "Unknown Error");
    }
}
