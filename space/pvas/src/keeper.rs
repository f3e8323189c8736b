//! The keeper of a domain: a child of the space's owner that lives in the domain's mm and starts
//! its tasks on request.
//!
//! The keeper clones tasks with CLONE_PARENT, so they are the owner's children, and the owner waits
//! for them. The keeper itself does not touch the tasks' memory. It watches the holes of the mm's
//! views, and ends when the connection to its owner closes.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use control::Control;
use nagaya_loader::{LoadError, LoadErrorKind, Program};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::child::{self, Attributes, StartError};
use crate::connection::Connection;
use crate::error::Error;
use crate::memory::Memory;
use crate::outside;
use crate::owner;
use crate::program;
use crate::views::{self, Views};

/// Version of the protocol. Owner and keeper run the same program, so it never differs.
pub(crate) const VERSION: u32 = 0x100;

/// A request from the owner.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Start a task. Descriptors: its working directory, then its own.
    Start(Box<Start>),
    /// Take back the rights that the domain's tasks have opened in the memory of the ended task
    /// with this ID, another domain's. Its export area stays open.
    Close(u32),
}

/// The task to start.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub id: u32,
    /// Absolute path of the program.
    pub path: Vec<u8>,
    pub arguments: Vec<CString>,
    pub environment: Vec<CString>,
    pub attributes: Attributes,
}

/// An answer to the owner.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The mm has all views.
    Ready,
    /// The program runs.
    Started { pid: u32 },
    /// The rights are taken back.
    Closed,
    /// The program does not run. The owner must reap the process that should have run it, if there
    /// is one.
    Failed { pid: Option<u32>, error: ErrorReport },
}

impl Answer {
    /// Returns the error of an unexpected answer.
    pub fn error(self) -> Error {
        match self {
            Self::Failed { error, .. } => error.into(),
            _ => Error::Invalid("answer of a keeper"),
        }
    }
}

/// An error in a form that can be sent to another process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ErrorReport {
    message: String,
    errno: i32,
}

impl From<&Error> for ErrorReport {
    fn from(error: &Error) -> Self {
        Self { message: error.to_string(), errno: error.errno().raw_os_error() }
    }
}

impl From<ErrorReport> for Error {
    fn from(report: ErrorReport) -> Self {
        Error::Reported(report.message, Errno::from_raw_os_error(report.errno))
    }
}

/// Runs the keeper of the domain of these IDs, in a child of the owner, until the owner closes the
/// connection.
pub(crate) fn run(mut owner: Connection, control: Control, memory: &Memory, ids: &Range<u32>) -> ! {
    // SAFETY: PR_SET_NAME reads a C string, and this one is static.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"pvas-domain".as_ptr()) };
    // A program file that shrinks while it is loaded must not end the domain.
    nagaya_loader::shrink::install();
    close_others(&[owner.as_fd().as_raw_fd(), memory.file().as_raw_fd()]);
    let views = map_views(control, memory, ids);
    let answer = match &views {
        Ok(_) => Answer::Ready,
        Err(error) => Answer::Failed { pid: None, error: error.into() },
    };
    let _ = owner.send(&answer, &[]);
    let mut fixed = HashMap::new();
    let mut tasks = Vec::new();
    let tasks_max = watched_max();
    while wait(control, &owner, &mut tasks)
        && let Ok(Some((request, fds))) = owner.receive_with::<Request>()
    {
        let answer = match request {
            Request::Start(start) => {
                let id = start.id;
                match start_task(control, &mut fixed, *start, fds) {
                    Ok(pid) => {
                        watch(&mut tasks, tasks_max, id, pid);
                        Answer::Started { pid }
                    }
                    Err((error, pid)) => Answer::Failed { pid, error: (&error).into() },
                }
            }
            Request::Close(id) => match views::close(control, id) {
                Ok(()) => Answer::Closed,
                Err(error) => Answer::Failed { pid: None, error: (&error).into() },
            },
        };
        if owner.send(&answer, &[]).is_err() {
            break;
        }
    }
    // SAFETY: `_exit` touches no memory. Unlike `exit`, it does not run the exit handlers of the
    // owner's program.
    unsafe { libc::_exit(0) }
}

/// Adds a started task to those whose ends the keeper waits for, if there is room. Otherwise its
/// remains are removed before the next task of its ID starts.
fn watch(tasks: &mut Vec<(u32, OwnedFd)>, tasks_max: usize, id: u32, pid: u32) {
    let target = Pid::from_raw(pid as i32).filter(|_| tasks.len() < tasks_max);
    let pidfd = target.and_then(|it| pidfd_open(it, PidfdFlags::empty()).ok());
    tasks.extend(pidfd.map(|pidfd| (id, pidfd)));
}

/// Returns the number of tasks that the keeper watches. The other half of its descriptors is for
/// those of the tasks that it starts.
fn watched_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| limit as usize / 2)
}

/// Waits for a request of the owner. Meanwhile removes the remains of ended tasks in this mm
/// outside their segments. Returns false if the wait fails.
fn wait(control: Control, owner: &Connection, tasks: &mut Vec<(u32, OwnedFd)>) -> bool {
    loop {
        let mut fds = vec![PollFd::new(owner, PollFlags::IN)];
        fds.extend(tasks.iter().map(|(_, pidfd)| PollFd::new(pidfd, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return false,
        }
        let is_ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ended = is_ready[1..].iter();
        tasks.retain(|&(id, _)| {
            let has_ended = *ended.next().expect("one for each task");
            if has_ended {
                // SAFETY: its pidfd is readable, so its last thread has ended. The mappings of its
                // segment stay until the next task of this ID starts.
                unsafe { outside::remove(control, id) };
            }
            !has_ended
        });
        if is_ready[0] {
            return true;
        }
    }
}

/// Closes all descriptors inherited from the owner except these.
fn close_others(kept: &[i32]) {
    let mut kept = kept.to_vec();
    kept.sort_unstable();
    let mut from = 0;
    for next in kept.into_iter().map(|fd| fd as u32).chain([u32::MAX]) {
        if from < next {
            // SAFETY: this process has a copy of the owner's table and does not run the code that
            // opened these descriptors.
            unsafe { libc::syscall(libc::SYS_close_range, from, next - 1, 0) };
        }
        from = next.saturating_add(1);
    }
}

/// Maps the views of other domains' segments.
fn map_views(control: Control, memory: &Memory, ids: &Range<u32>) -> Result<Views, Error> {
    memory.map_alias_again()?;
    let layout = control.layout();
    let mut views = Views::new()?;
    let rights = views::rights(control);
    views.map(&layout, memory, 0..ids.start, rights)?;
    views.map(&layout, memory, ids.end..layout.tasks_max(), rights)?;
    Ok(views)
}

/// Starts a task. The error includes the process that could not become a task, if there is one.
/// `fixed` has the address ranges that tasks of these IDs took outside their segments.
fn start_task(
    control: Control,
    fixed: &mut HashMap<u32, Range<u64>>,
    start: Start,
    fds: Vec<OwnedFd>,
) -> Result<u32, (Error, Option<u32>)> {
    let Start { id, path, arguments, environment, mut attributes } = start;
    let without_process = |error| (error, None);
    let path = PathBuf::from(OsStr::from_bytes(&path));
    let numbers = attributes.fds.take().unwrap_or_default();
    let Some((cwd, own)) = fds.split_first().filter(|(_, own)| own.len() == numbers.len()) else {
        return Err(without_process(Error::Invalid("number of descriptors")));
    };
    attributes.cwd_fd = Some(cwd.as_raw_fd());
    let here = own.iter().map(|fd| fd.as_fd().as_raw_fd());
    attributes.fds = Some(here.zip(numbers).map(|(here, (_, there))| (here, there)).collect());
    let program =
        Program::open_fixed(&path, arguments).map_err(|error| without_process(error.into()))?;
    let segment_size = attributes.segment_size.unwrap_or(control.layout().segment_size());
    // SAFETY: the owner took the slot, so the last task of this ID has ended. Both ranges hold only
    // mappings that it left.
    unsafe {
        outside::remove(control, id);
        owner::unmap_left(control, id);
        if let Some(left) = fixed.remove(&id) {
            libc::munmap(left.start as *mut _, (left.end - left.start) as usize);
        }
    }
    let headers = &program.executable.headers;
    let stack = attributes.limits.iter().find(|limit| limit.0 == libc::RLIMIT_STACK);
    // SAFETY: the owner took the slot before it sent the request, and `unmap_left` emptied the
    // segment.
    let task = unsafe {
        program::load_into(
            &control,
            id,
            &program,
            &environment,
            segment_size,
            stack.map(|limit| limit.1),
            0,
        )
    };
    // On `Taken`, the addresses belong to another program.
    let is_taken = |error: &LoadError| matches!(error.kind, LoadErrorKind::Taken(_));
    if headers.is_fixed && !task.as_ref().is_err_and(is_taken) {
        fixed.insert(id, nagaya_loader::fixed_addresses(headers));
    }
    let task = task.map_err(|error| without_process(error.into()))?;
    // SAFETY: `load_into` filled in `task` for slot `id`, and only this call starts it.
    let started =
        unsafe { child::start_sibling(control, id, task, &program::comm(&path), &attributes) };
    started.map_err(|(error, pid)| (error.into(), pid))
}

impl From<StartError> for Error {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Clone(errno) => Error::System("clone", errno),
            StartError::Step(step, errno) => Error::Setup(step, errno),
            StartError::Killed(pid) => Error::Killed(pid),
        }
    }
}
