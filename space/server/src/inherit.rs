//! The state that a process inherits besides descriptors, arguments and environment. The stub reads
//! it, and the server gives it to the task.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStringExt;

use pvas::Attributes;
use serde::{Deserialize, Serialize};

/// A process's inherited state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Inheritance {
    umask: u32,
    affinity: Vec<u8>,
    limits: Vec<(u32, u64, u64)>,
    ignored_signals: u64,
    sigmask: u64,
    session: i32,
    group: i32,
    pid: i32,
    nice: i32,
    scheduler: (i32, i32),
    io_priority: i32,
    timer_slack_ns: u64,
    memory_policy: Option<(i32, Vec<u64>)>,
    cgroup: Option<Vec<u8>>,
}

/// RLIMIT_CPU to RLIMIT_RTTIME.
const LIMITS: u32 = 16;
/// 64-bit words of a NUMA node mask (CONFIG_NODES_SHIFT is at most 10).
const NODE_WORDS: usize = 16;

impl Inheritance {
    /// Reads the calling process's state. `sigmask` is its signal mask at start.
    pub fn of_this_process(sigmask: u64) -> Self {
        let mut limits = Vec::new();
        for resource in 0..LIMITS {
            let mut limit = [0u64; 2];
            // SAFETY: the kernel writes two 64-bit words to `limit`.
            let result = unsafe {
                libc::syscall(libc::SYS_prlimit64, 0, resource, 0, (&raw mut limit).cast::<u64>())
            };
            if result == 0 {
                limits.push((resource, limit[0], limit[1]));
            }
        }
        let mut affinity = vec![0u8; 8192];
        // SAFETY: the kernel writes at most `affinity.len()` bytes.
        let size = unsafe {
            libc::syscall(libc::SYS_sched_getaffinity, 0, affinity.len(), affinity.as_mut_ptr())
        };
        affinity.truncate(size.max(0) as usize);
        let mut nodes = vec![0u64; NODE_WORDS];
        let mut mode = 0i32;
        // SAFETY: the kernel writes one int to `mode` and at most NODE_WORDS words to `nodes`.
        let policy = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut mode,
                nodes.as_mut_ptr(),
                NODE_WORDS * 64,
                0,
                0,
            )
        };
        let umask = rustix::process::umask(rustix::fs::Mode::empty());
        rustix::process::umask(umask);
        // SAFETY: both calls return numbers and have no arguments in memory.
        let (io_priority, slack) = unsafe {
            let io = libc::syscall(libc::SYS_ioprio_get, 1, 0) as i32;
            (io.max(0), libc::prctl(libc::PR_GET_TIMERSLACK).max(0) as u64)
        };
        Self {
            umask: umask.as_raw_mode(),
            affinity,
            limits,
            ignored_signals: ignored_signals(),
            sigmask,
            // SAFETY: getsid reads no memory.
            session: unsafe { libc::getsid(0) },
            // SAFETY: getpgrp reads no memory.
            group: unsafe { libc::getpgrp() },
            pid: std::process::id() as i32,
            nice: current_nice(),
            scheduler: current_scheduler(),
            io_priority,
            timer_slack_ns: slack,
            memory_policy: (policy == 0 && mode != 0).then_some((mode, nodes)),
            cgroup: cgroup_procs(),
        }
    }

    /// Returns the state that the calling process's children inherit. They do not lead its session.
    pub fn of_children(sigmask: u64) -> Self {
        Self { pid: 0, ..Self::of_this_process(sigmask) }
    }

    /// Returns true if the process ignores a signal.
    pub fn ignores(&self, signal: i32) -> bool {
        self.ignored_signals & 1 << (signal - 1) != 0
    }

    /// Returns the stub's process group.
    pub fn group(&self) -> i32 {
        self.group
    }

    /// Returns the attributes with which the node server, in session `session`, starts the task.
    pub fn attributes(&self, session: i32, own_cgroup: Option<&[u8]>) -> Attributes {
        // If the stub leads a session, the task starts a new session too. If the stub is in the
        // server's session, the task joins its group. A group of another session cannot be joined.
        let new_session = self.session == self.pid;
        let same_session = self.session == session && !new_session;
        let cgroup = self.cgroup.as_deref().filter(|c| Some(*c) != own_cgroup);
        Attributes {
            umask: Some(self.umask),
            affinity: self.affinity.clone(),
            limits: self.limits.clone(),
            ignored_signals: Some(self.ignored_signals),
            sigmask: Some(self.sigmask),
            new_session,
            process_group: (!new_session).then_some(if same_session { self.group } else { 0 }),
            process_group_optional: true,
            parent_death_signal: Some(libc::SIGKILL),
            nice: (self.nice != current_nice()).then_some(self.nice),
            scheduler: (self.scheduler != current_scheduler()).then_some(self.scheduler),
            io_priority: Some(self.io_priority),
            timer_slack_ns: Some(self.timer_slack_ns),
            memory_policy: self.memory_policy.clone(),
            cgroup_procs: cgroup.and_then(|path| CString::new(path).ok()),
            ..Attributes::default()
        }
    }
}

fn current_scheduler() -> (i32, i32) {
    let mut parameter = [0i32];
    // SAFETY: sched_getparam writes one int to `parameter`.
    let policy = unsafe {
        libc::syscall(libc::SYS_sched_getparam, 0, parameter.as_mut_ptr());
        libc::syscall(libc::SYS_sched_getscheduler, 0) as i32
    };
    (policy.max(0), parameter[0])
}

fn current_nice() -> i32 {
    // The system call itself returns 20 - nice.
    // SAFETY: getpriority has no arguments in memory.
    20 - unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, 0) } as i32
}

/// Returns the descriptors that a program started by exec would have.
pub fn fds() -> io::Result<Vec<RawFd>> {
    let entries = fs::read_dir("/proc/self/fd")?;
    let mut numbers: Vec<RawFd> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&fd| {
            // SAFETY: F_GETFD only reads flags, and a number that is not open gives EBADF.
            let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
            flags >= 0 && flags & libc::FD_CLOEXEC == 0
        })
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Returns the environment unchanged, including entries that are not Unicode or lack `=`.
pub fn environment() -> Vec<Vec<u8>> {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    let mut entries = Vec::new();
    // SAFETY: `environ` is libc's list of C strings. The callers are single-threaded, so it does
    // not change.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            entries.push(CStr::from_ptr(*at).to_bytes().to_vec());
            at = at.add(1);
        }
    }
    entries
}

/// Returns the signals with the disposition SIG_IGN, bit n-1 for signal n.
fn ignored_signals() -> u64 {
    let mut mask = 0;
    for signal in 1..=64u64 {
        let mut action = [0u64; 4];
        // SAFETY: the kernel writes its sigaction of four words to `action`.
        let result = unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, 0, (&raw mut action).cast::<u64>(), 8)
        };
        if result == 0 && action[0] == 1 {
            mask |= 1 << (signal - 1);
        }
    }
    mask
}

/// Returns the path of `cgroup.procs` of the calling process's cgroup, if version 2 is mounted.
pub fn cgroup_procs() -> Option<Vec<u8>> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .into_iter()
        .find(|root| fs::exists(format!("{root}/cgroup.procs")).unwrap_or(false))?;
    let file = std::path::Path::new(root).join(path).join("cgroup.procs");
    Some(file.into_os_string().into_vec())
}
