//! The keeper of a domain: a child of the space's owner that has the domain's mm, and makes
//! its tasks as it is told.
//!
//! The tasks are made with CLONE_PARENT, so they are the owner's children, who waits for them and
//! hears of their ends as of any other's. The keeper itself touches nothing of theirs. It keeps
//! the mm's watch over holes, and ends with the connection to its owner.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use control::Control;
use nagaya_loader::{LoadError, LoadErrorKind, Program};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::child::{self, Attributes, StartError};
use crate::connection::Connection;
use crate::domain::Views;
use crate::error::Error;
use crate::memory::Memory;
use crate::owner;
use crate::space;

/// Owner and keeper are one program.
pub(crate) const VERSION: u32 = 0x100;

/// From the owner.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Start a task. Descriptors: its working directory, then its own.
    Start(Box<Start>),
}

/// What to start.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub id: u32,
    /// Absolute.
    pub path: Vec<u8>,
    pub arguments: Vec<CString>,
    pub environment: Vec<CString>,
    pub attributes: Attributes,
}

/// To the owner.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The mm is as it should be.
    Ready,
    /// The program runs.
    Started { pid: u32 },
    /// It does not; the process that should have run it, if there was one, is to be waited for.
    Failed { pid: Option<u32>, error: Told },
}

impl Answer {
    /// Where it is not what was expected.
    pub fn error(self) -> Error {
        match self {
            Self::Failed { error, .. } => error.into(),
            _ => Error::Invalid("answer of a keeper"),
        }
    }
}

/// An error, as one process tells it another.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    message: String,
    errno: i32,
}

impl From<&Error> for Told {
    fn from(error: &Error) -> Self {
        Self { message: error.to_string(), errno: error.errno().raw_os_error() }
    }
}

impl From<Told> for Error {
    fn from(told: Told) -> Self {
        Error::Told(told.message, Errno::from_raw_os_error(told.errno))
    }
}

/// What the child of the owner does: keeps the domain of these IDs, until the owner has gone.
pub(crate) fn run(socket: OwnedFd, control: Control, memory: &Memory, ids: &Range<u32>) -> ! {
    // SAFETY: a name of less than 16 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"pvas-domain".as_ptr()) };
    close_others(&[socket.as_raw_fd(), memory.file().as_raw_fd()]);
    let mut owner = Connection::new(socket, VERSION);
    let views = look_around(control, memory, ids);
    let answer = match &views {
        Ok(_) => Answer::Ready,
        Err(error) => Answer::Failed { pid: None, error: error.into() },
    };
    let _ = owner.send(&answer, &[]);
    let mut fixed = HashMap::new();
    while let Ok(Some((Ask::Start(start), fds))) = owner.receive_with::<Ask>() {
        let answer = match make(control, &mut fixed, *start, fds) {
            Ok(pid) => Answer::Started { pid },
            Err((error, pid)) => Answer::Failed { pid, error: (&error).into() },
        };
        if owner.send(&answer, &[]).is_err() {
            break;
        }
    }
    // SAFETY: nothing of the owner's is run, as its exit handlers would be.
    unsafe { libc::_exit(0) }
}

/// Closes what the owner has open, but these.
fn close_others(kept: &[i32]) {
    let mut kept = kept.to_vec();
    kept.sort_unstable();
    let mut from = 0;
    for next in kept.into_iter().map(|fd| fd as u32).chain([u32::MAX]) {
        if from < next {
            // SAFETY: whoever had them open is another process.
            unsafe { libc::syscall(libc::SYS_close_range, from, next - 1, 0) };
        }
        from = next.saturating_add(1);
    }
}

/// Maps what other domains have.
fn look_around(control: Control, memory: &Memory, ids: &Range<u32>) -> Result<Views, Error> {
    memory.map_alias_again()?;
    let layout = control.layout();
    let mut views = Views::new()?;
    views.map(&layout, memory, 0..ids.start)?;
    views.map(&layout, memory, ids.end..layout.tasks_max())?;
    Ok(views)
}

/// Makes a task. `Err` also has the process that could not become one. `fixed` has what tasks of
/// these IDs took outside their segments.
fn make(
    control: Control,
    fixed: &mut HashMap<u32, Range<u64>>,
    start: Start,
    fds: Vec<OwnedFd>,
) -> Result<u32, (Error, Option<u32>)> {
    let Start { id, path, arguments, environment, mut attributes } = start;
    let alone = |error| (error, None);
    let path = PathBuf::from(OsStr::from_bytes(&path));
    let numbers = attributes.fds.take().unwrap_or_default();
    let Some((cwd, own)) = fds.split_first().filter(|(_, own)| own.len() == numbers.len()) else {
        return Err(alone(Error::Invalid("number of descriptors")));
    };
    attributes.cwd_fd = Some(cwd.as_raw_fd());
    let here = own.iter().map(|fd| fd.as_fd().as_raw_fd());
    attributes.fds = Some(here.zip(numbers).map(|(here, (_, there))| (here, there)).collect());
    let program = Program::open_fixed(&path, arguments).map_err(|error| alone(error.into()))?;
    let segment_size = attributes.segment_size.unwrap_or(control.layout().segment_size());
    // SAFETY: what a task of this ID has left, that has ended.
    unsafe {
        owner::unmap_left(control, id);
        if let Some(left) = fixed.remove(&id) {
            libc::munmap(left.start as *mut _, (left.end - left.start) as usize);
        }
    }
    let headers = &program.executable.headers;
    let stack = attributes.limits.iter().find(|limit| limit.0 == libc::RLIMIT_STACK);
    // SAFETY: the owner holds the slot.
    let task = unsafe {
        space::load_into(
            &control,
            id,
            &program,
            &environment,
            segment_size,
            stack.map(|limit| limit.1),
            0,
        )
    };
    // Where another lies at these addresses, they are that one's.
    let is_taken = |error: &LoadError| matches!(error.kind, LoadErrorKind::Taken(_));
    if headers.is_fixed && !task.as_ref().is_err_and(is_taken) {
        fixed.insert(id, nagaya_loader::fixed_addresses(headers));
    }
    let task = task.map_err(|error| alone(error.into()))?;
    // SAFETY: just loaded for this slot.
    let started = unsafe { child::start_sibling(control, id, task, &comm(&path), &attributes) };
    started.map_err(|(error, pid)| (error.into(), pid))
}

fn comm(path: &Path) -> CString {
    space::comm(path)
}

impl From<StartError> for Error {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Clone(errno) => Error::System("clone", errno),
            StartError::Step(step, errno) => Error::Setup(step, errno),
            StartError::Killed => Error::Killed,
        }
    }
}
