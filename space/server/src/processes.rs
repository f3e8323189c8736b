//! The system calls of job control. The server and its stubs make them through [`Processes`], so
//! that tests can run both over a model of the kernel.

use proc::process::Stat;

/// The processes of a node, as the kernel shows them to the server.
pub trait Processes {
    /// Returns the next change of a child's state, without waiting: its PID, and its wait status
    /// as waitpid returns it (WUNTRACED, WCONTINUED).
    fn wait(&self) -> Option<(u32, i32)>;

    /// Returns true if a process is stopped by a signal.
    fn is_stopped(&self, pid: i32) -> bool;

    /// Sends a signal to a process, with a value if there is one. The caller knows that the PID
    /// still belongs to the process.
    fn signal(&self, pid: i32, signal: i32, value: Option<i32>);
}

/// The processes of this node.
#[derive(Debug)]
pub struct Kernel;

impl Processes for Kernel {
    fn wait(&self) -> Option<(u32, i32)> {
        let mut status = 0;
        let flags = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
        // SAFETY: waitpid writes one int to `status`.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, flags) };
        (pid > 0).then_some((pid.cast_unsigned(), status))
    }

    /// Without /proc no process is stopped.
    fn is_stopped(&self, pid: i32) -> bool {
        const STATE: usize = 3;
        let stat = Stat::read(&format!("/proc/{pid}"));
        stat.is_ok_and(|stat| stat.field::<char>(STATE) == Some('T'))
    }

    fn signal(&self, pid: i32, signal: i32, value: Option<i32>) {
        // SAFETY: kill reads no memory. The kernel's siginfo is 128 bytes: number, errno, code,
        // padding, then PID, UID and value.
        unsafe {
            match value {
                None => libc::kill(pid, signal),
                Some(value) => {
                    let mut info = [0i32; 32];
                    info[0] = signal;
                    info[2] = libc::SI_QUEUE;
                    info[4] = std::process::id().cast_signed();
                    info[5] = libc::getuid().cast_signed();
                    info[6] = value;
                    libc::syscall(libc::SYS_rt_sigqueueinfo, pid, signal, info.as_ptr()) as i32
                }
            };
        }
    }
}
