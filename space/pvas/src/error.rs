//! Errors of calls on spaces and tasks, as text and as an errno.

use std::fmt;

use nagaya_loader::{LoadError, describe, map_count_hint};
use pager::PagerError;
use rustix::io::Errno;

/// An error of this crate. `Display` prints one line: the failure, its object, and a remedy.
#[derive(Debug)]
pub enum Error {
    /// The program cannot be loaded.
    Load(LoadError),
    /// No such space descriptor.
    NoSpace(i32),
    /// The caller is not a task.
    NotATask,
    /// The caller is a task, and tasks cannot own spaces.
    IsATask,
    /// The caller did not create the space.
    NotOwner,
    /// The process that created the space was killed.
    NoOwner,
    /// The caller of pvas_execve is not the child of pvas_fork.
    NotForked,
    /// The ID is not below the space's number of segments.
    IdRange(i64, u32),
    /// A task with this ID lives.
    IdTaken(u32),
    /// All IDs are taken.
    Full(u32),
    /// No task with this ID lives, or none ever did.
    NoTask(u32),
    /// No task of the space has this PID.
    NoPid(u32),
    /// The named argument is invalid.
    Invalid(&'static str),
    /// The named pointer is NULL.
    Null(&'static str),
    /// No window of this size is free in the address space.
    NoAddressSpace,
    /// A call of the crate `control` failed.
    Control(control::Error),
    /// The address lies in no segment.
    NoSegment,
    /// The new process could not be set up; has the failed step and its errno.
    Setup(&'static str, Errno),
    /// The new process was killed before its program started; has its PID.
    Killed(u32),
    /// A system call failed; has its name and errno.
    System(&'static str, Errno),
    /// The space has no shared memory, which domains need.
    NotShared,
    /// The segments of other domains cannot be mapped.
    Views(PagerError),
    /// The keeper of a domain has ended; has its PID.
    NoKeeper(u32),
    /// An error that the keeper of a domain reported.
    Reported(String, Errno),
    /// A space over several machines has one domain on each.
    OverMachines,
    /// The task lives on another machine.
    Elsewhere(u32),
    /// The kernel refuses copies between processes, which protected tasks need.
    NoKernelCopies(Errno),
}

impl Error {
    /// Returns the errno for a C caller.
    pub fn errno(&self) -> Errno {
        match self {
            Error::Load(error) => error.errno(),
            Error::NoSpace(_) => Errno::BADF,
            Error::NotATask
            | Error::NoTask(_)
            | Error::NoPid(_)
            | Error::NoOwner
            | Error::Killed(_) => Errno::SRCH,
            Error::IsATask | Error::NotOwner | Error::NotForked => Errno::PERM,
            Error::IdRange(..)
            | Error::Invalid(_)
            | Error::NoSegment
            | Error::NotShared
            | Error::OverMachines => Errno::INVAL,
            Error::Elsewhere(_) => Errno::REMOTE,
            Error::NoKernelCopies(_) => Errno::PERM,
            Error::IdTaken(_) => Errno::BUSY,
            Error::Full(_) => Errno::AGAIN,
            Error::Null(_) => Errno::FAULT,
            Error::NoAddressSpace => Errno::NOMEM,
            Error::Control(error) => error.errno(),
            Error::Setup(_, errno) | Error::System(_, errno) | Error::Reported(_, errno) => *errno,
            Error::Views(PagerError::Memory | PagerError::Mappings) => Errno::NOMEM,
            Error::Views(_) => Errno::PERM,
            Error::NoKeeper(_) => Errno::PIPE,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Load(error) => error.fmt(f),
            Error::NoSpace(pvd) => write!(f, "no space with descriptor {pvd}"),
            Error::NotATask => write!(f, "the caller is not a task of a space"),
            Error::IsATask => write!(f, "a task cannot create a space of its own"),
            Error::NotOwner => write!(f, "only the process that created the space may do this"),
            Error::NoOwner => write!(f, "the process that created the space has ended"),
            Error::NotForked => write!(f, "not the child of pvas_fork"),
            Error::IdRange(id, max) => {
                write!(f, "task ID {id} is out of range (this space has IDs 0 to {})", max - 1)
            }
            Error::IdTaken(id) => write!(f, "task ID {id} is taken"),
            Error::Full(max) => {
                write!(f, "all {max} task IDs of the space are taken (smaller segments give more)")
            }
            Error::NoTask(id) => write!(f, "no task with ID {id}"),
            Error::NoPid(pid) => write!(f, "no task of the space has PID {pid}"),
            Error::Invalid(what) => write!(f, "invalid {what}"),
            Error::Null(what) => write!(f, "{what} is NULL"),
            Error::NoAddressSpace => write!(
                f,
                "no address space left for this space (fewer tasks or smaller segments fit)"
            ),
            Error::Control(error) => error.fmt(f),
            Error::NoSegment => write!(f, "the address lies in no segment of the space"),
            Error::Setup(what, errno) => {
                write!(f, "new task: {what}: {}{}", describe(*errno), hint(*errno))
            }
            Error::Killed(pid) => {
                write!(f, "the new task (PID {pid}) was killed before its program started")
            }
            Error::NotShared => write!(
                f,
                "domains need a space of shared memory (PVAS_SPACE_SHARED, or PVAS_SHARED=1)"
            ),
            Error::Views(error) => write!(f, "domains: {error}"),
            Error::NoKeeper(pid) => {
                write!(f, "the process that keeps the domain has ended (PID {pid}; was it killed?)")
            }
            Error::Reported(message, _) => f.write_str(message),
            Error::OverMachines => write!(
                f,
                "a space over several machines has one domain on each, and programs in it must be \
                 position-independent (build them with -pie)"
            ),
            Error::Elsewhere(id) => write!(f, "task {id} lives on another machine"),
            Error::NoKernelCopies(errno) => write!(
                f,
                "protected tasks need process_vm_readv and process_vm_writev between processes, \
                 which this system refuses: {} (does a seccomp filter deny them, or is \
                 kernel.yama.ptrace_scope 2 or 3?)",
                describe(*errno)
            ),
            Error::System(call, Errno::NOMEM) => {
                write!(f, "{call}: out of memory{}", map_count_hint())
            }
            // A thread whose stack cannot be allocated fails with the same error.
            Error::System("thread", Errno::AGAIN) => {
                f.write_str("thread: too many, or no memory for it (raise ulimit -u or -v)")
            }
            Error::System(call, errno) => {
                write!(f, "{call}: {}{}", describe(*errno), hint(*errno))
            }
        }
    }
}

/// Returns the remedy for a failed system call, or an empty string.
fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::MFILE => " (raise ulimit -n)",
        Errno::AGAIN => " (raise ulimit -u, or the limit of the cgroup or system)",
        Errno::PERM | Errno::NOSYS => " (Nagaya needs this: does a seccomp filter deny it?)",
        _ => "",
    }
}

impl std::error::Error for Error {}

impl From<control::Error> for Error {
    fn from(error: control::Error) -> Self {
        Error::Control(error)
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        Error::Load(error)
    }
}

/// Returns the calling thread's errno as the failure of `call`.
pub(crate) fn last(call: &'static str) -> Error {
    let error = std::io::Error::last_os_error();
    Error::System(call, Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
