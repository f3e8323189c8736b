//! Keeps the program files of tasks from being written to.
//!
//! The kernel refuses to open the file for writing that a process executes (ETXTBSY). A task
//! executes none, since its owner maps the program. So a *placeholder* executes it: a process that
//! is stopped before the program's first instruction, as a tracee of the thread that made it. It
//! takes a page table and a stack, and no processor time.

use std::ffi::{CString, c_void};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use crate::child::{BlockedSignals, pvas_clone_on_stack, reap};
use crate::raw;

/// Bytes of the stack on which the child calls execve.
const STACK_SIZE: usize = 16 << 10;

/// A process that keeps a program's file from being written to until it is dropped.
#[derive(Debug)]
pub struct Placeholder {
    process: OwnedFd,
}

/// Data of the child.
struct Plan {
    path: CString,
    arguments: [*const libc::c_char; 2],
    environment: [*const libc::c_char; 1],
    /// PID of the tracer.
    parent: u32,
    /// Errno of execve.
    errno: AtomicU32,
}

impl Placeholder {
    /// Executes the file at `path`. Returns `None` if that is not possible here, as under a filter
    /// that forbids ptrace(2); the file is then not protected.
    ///
    /// # Errors
    /// TXTBSY if the file is open for writing.
    pub fn new(path: &Path) -> Result<Option<Self>, Errno> {
        Self::traced_by(std::process::id(), path)
    }

    /// The same, if the child's parent is this process when it runs.
    fn traced_by(parent: u32, path: &Path) -> Result<Option<Self>, Errno> {
        let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return Ok(None) };
        let arguments = [path.as_ptr(), ptr::null()];
        let (environment, errno) = ([ptr::null()], AtomicU32::new(0));
        let plan = Plan { path, arguments, environment, parent, errno };
        let mut stack = vec![0u8; STACK_SIZE];
        let top = (stack.as_mut_ptr_range().end as u64 & !15) as *mut u8;
        let flags = (libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) as u64;
        let blocked = BlockedSignals::new();
        // SAFETY: `top` is the aligned end of a stack that nothing else uses. With CLONE_VFORK the
        // call returns when the child has executed the program or ended, so `plan` and the stack
        // outlive it.
        let pid = unsafe {
            let plan = (&raw const plan).cast();
            pvas_clone_on_stack(flags, top, ptr::null(), ptr::null(), execute, plan)
        };
        drop(blocked);
        if pid < 0 {
            return Ok(None);
        }
        let pid = pid as i32;
        let mut status = 0;
        // SAFETY: waitpid writes one int to `status`. The kernel stops the child at its execve.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
        if waited != pid || !libc::WIFSTOPPED(status) {
            return match plan.errno.load(Ordering::Acquire) as i32 {
                libc::ETXTBSY => Err(Errno::TXTBSY),
                _ => Ok(None),
            };
        }
        let process = Pid::from_raw(pid).and_then(|it| pidfd_open(it, PidfdFlags::empty()).ok());
        // SAFETY: the child is a stopped tracee of this thread, and has not been reaped. Neither
        // call has arguments in memory.
        unsafe {
            libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, libc::PTRACE_O_EXITKILL);
            if process.is_none() {
                libc::kill(pid, libc::SIGKILL);
                reap(pid as u32);
            }
        }
        Ok(process.map(|process| Self { process }))
    }
}

impl Drop for Placeholder {
    fn drop(&mut self) {
        use std::os::fd::AsFd as _;
        // The owner's loop may have reaped it, if another process has killed it.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        let _ = waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED);
    }
}

/// Executes the program as a tracee of the parent. Runs in the child, and touches no thread-local.
///
/// # Safety
/// `pvas_clone_on_stack` calls this with the plan of [`Placeholder::new`].
unsafe extern "C" fn execute(plan: *const c_void) -> ! {
    // SAFETY: `Placeholder::new` keeps its plan until this child has executed the program or ended.
    let plan = unsafe { &*plan.cast::<Plan>() };
    let death = libc::PR_SET_PDEATHSIG as usize;
    let _ = raw::call2(libc::SYS_prctl, death, libc::SIGKILL as usize);
    // A child that somebody stopped before may outlive its parent. It would then be a tracee of
    // init, which never continues it.
    if raw::call0(libc::SYS_getppid) != Ok(plan.parent as usize) {
        raw::exit(127);
    }
    // Signals of the terminal, and the parent's descriptors, are not for it.
    let _ = raw::call0(libc::SYS_setsid);
    let _ = raw::call3(libc::SYS_close_range, 0, u32::MAX as usize, 0);
    // The kernel stops a tracee at its execve by SIGTRAP, and would let the program run if that
    // were blocked. All other signals stay blocked, since this process has the parent's handlers.
    let mask = !(1u64 << (libc::SIGTRAP - 1));
    let (set, size) = (&raw const mask as usize, size_of::<u64>());
    let how = libc::SIG_SETMASK as usize;
    let unblocked = raw::call4(libc::SYS_rt_sigprocmask, how, set, 0, size).is_ok();
    // Without a tracer the program would run, too.
    if unblocked && raw::call4(libc::SYS_ptrace, libc::PTRACE_TRACEME as usize, 0, 0, 0).is_ok() {
        let (path, arguments) = (plan.path.as_ptr() as usize, plan.arguments.as_ptr() as usize);
        let environment = plan.environment.as_ptr() as usize;
        if let Err(errno) = raw::call3(libc::SYS_execve, path, arguments, environment) {
            plan.errno.store(errno.raw_os_error() as u32, Ordering::Release);
        }
    }
    raw::exit(127)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt as _;

    /// Stopped when it began, until its parent had ended, it became a tracee of init and stayed for
    /// ever (found by `dsm_chaos`).
    #[test]
    fn a_child_that_outlives_its_parent_executes_nothing() {
        let other = std::os::unix::process::parent_id();
        assert!(Placeholder::traced_by(other, Path::new("/bin/true")).unwrap().is_none());
    }

    #[test]
    fn a_file_is_busy_as_long_as_its_placeholder_lives() {
        let path = std::env::temp_dir().join(format!("nagaya-busy-{}", std::process::id()));
        fs::copy("/bin/true", &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let open = || File::options().write(true).open(&path);
        let Some(placeholder) = Placeholder::new(&path).unwrap() else {
            return skip::because("this process may not use ptrace");
        };
        let error = open().expect_err("the file is busy");
        assert_eq!(error.kind(), std::io::ErrorKind::ExecutableFileBusy);
        drop(placeholder);
        let writer = open().unwrap();
        assert_eq!(Placeholder::new(&path).map(drop), Err(Errno::TXTBSY));
        drop(writer);
        fs::remove_file(&path).unwrap();
    }
}
