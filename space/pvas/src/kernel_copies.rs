//! Tests whether the kernel copies between the memory of two processes of the same parent, as
//! protected tasks need it.

use rustix::io::Errno;

use crate::child::reap;

/// Bytes that a copy takes.
const SIZE: usize = 8;

/// Makes a copy in each direction between two children of this process.
///
/// # Errors
/// The kernel's reason for its refusal; EPERM if it ends the process that asks.
pub fn check() -> Result<(), Errno> {
    // SAFETY: both children make system calls only, which fork(3) permits in a program of several
    // threads.
    unsafe {
        let target = fork()?;
        if target == 0 {
            wait_for_end();
        }
        let mut status = 0;
        libc::waitpid(target, &raw mut status, libc::WUNTRACED);
        let asked = fork().inspect(|&copier| {
            if copier == 0 {
                let result = copy(target, libc::SYS_process_vm_readv)
                    .and_then(|()| copy(target, libc::SYS_process_vm_writev));
                libc::_exit(result.err().map_or(0, Errno::raw_os_error));
            }
        });
        let status = asked.map(|copier| reap(copier as u32));
        libc::kill(target, libc::SIGKILL);
        reap(target as u32);
        match status? {
            Some(0) => Ok(()),
            Some(status) if libc::WIFEXITED(status) => {
                Err(Errno::from_raw_os_error(libc::WEXITSTATUS(status)))
            }
            _ => Err(Errno::PERM),
        }
    }
}

/// # Safety
/// As for fork(2): the child makes system calls only.
unsafe fn fork() -> Result<libc::pid_t, Errno> {
    // SAFETY: by this function's contract.
    match unsafe { libc::fork() } {
        pid if pid < 0 => {
            let error = std::io::Error::last_os_error();
            Err(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
        }
        pid => Ok(pid),
    }
}

/// The child whose memory is copied. It permits what a task permits (`child::prepare`), and stops.
fn wait_for_end() -> ! {
    // SAFETY: none of these calls touches memory.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_PTRACER, usize::MAX);
        loop {
            libc::kill(libc::getpid(), libc::SIGSTOP);
        }
    }
}

/// Copies some bytes from or to the process, which has the same memory as this one.
fn copy(pid: libc::pid_t, call: libc::c_long) -> Result<(), Errno> {
    let (here, there) = ([0u8; SIZE], [0u8; SIZE]);
    let piece = |bytes: &[u8; SIZE]| libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: SIZE,
    };
    let (local, remote) = (piece(&here), piece(&there));
    // Each argument needs its whole register or stack slot: of a shorter number the rest is
    // undefined. SAFETY: the kernel writes at most the bytes of `here`, which nothing reads, or
    // those of the other process.
    let copied = unsafe {
        libc::syscall(call, pid, &raw const local, 1usize, &raw const remote, 1usize, 0usize)
    };
    if copied == SIZE as libc::c_long {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
