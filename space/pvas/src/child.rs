//! Starts a child process that shares the caller's memory, and prepares it until its program
//! starts.
//!
//! The child runs beside the parent's thread in the same address space and with the same thread
//! area, as a vfork child does. Between `clone` and the program's first instruction it takes no
//! lock, allocates nothing, touches no thread-local and cannot panic. The parent prepares
//! everything in a [`Plan`], and the child only makes system calls. A SIGKILL at any instant leaves
//! the parent's memory consistent.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{owner, raw};
use control::Control;
use nagaya_gate::Gate;
use nagaya_gate::abi::Task;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use rustix::thread::futex;
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};

/// The attributes in which a new task differs from the process that starts it. The task inherits
/// all attributes that are `None` or empty.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Attributes {
    /// Descriptors of the task, as pairs of the starter's number and the task's number. `None`: all
    /// that are not close-on-exec.
    pub fds: Option<Vec<(RawFd, RawFd)>>,
    /// Size in bytes of the usable part of the task's segment.
    pub segment_size: Option<u64>,
    /// Working directory, by path.
    pub cwd: Option<CString>,
    /// Working directory, by descriptor.
    pub cwd_fd: Option<RawFd>,
    /// File mode creation mask.
    pub umask: Option<u32>,
    /// CPU mask, as sched_setaffinity takes it.
    pub affinity: Vec<u8>,
    /// Resource limits: {resource, soft, hard}.
    pub limits: Vec<(u32, u64, u64)>,
    /// Signals to ignore, bit n-1 for signal n. All others get the default action.
    pub ignored_signals: Option<u64>,
    /// Signal mask, bit n-1 for signal n.
    pub sigmask: Option<u64>,
    /// Start the task in a new session.
    pub new_session: bool,
    /// Process group to join; 0 creates a new one.
    pub process_group: Option<i32>,
    /// Stay in the parent's process group if that group cannot be joined.
    pub process_group_optional: bool,
    /// Signal that the task receives when the thread that started it ends.
    pub parent_death_signal: Option<i32>,
    /// Nice value.
    pub nice: Option<i32>,
    /// Scheduling policy and priority.
    pub scheduler: Option<(i32, i32)>,
    /// I/O priority, as ioprio_set takes it.
    pub io_priority: Option<i32>,
    /// Timer slack in nanoseconds.
    pub timer_slack_ns: Option<u64>,
    /// Allocation policy for memory: mode and node mask.
    pub memory_policy: Option<(i32, Vec<u64>)>,
    /// Path of `cgroup.procs` of the cgroup (v2) to move to. A failure to move is ignored.
    pub cgroup_procs: Option<CString>,
}

/// The step that failed in the child, as an index into [`STEPS`], and the errno.
#[derive(Debug, Default)]
struct Failure {
    step: AtomicU32,
    errno: AtomicU32,
}

const STEPS: &[&str] = &[
    "start",
    "session",
    "process group",
    "parent death signal",
    "working directory",
    "descriptors",
    "resource limits",
    "CPU affinity",
    "scheduling",
    "signals",
];

#[derive(Clone, Copy)]
#[repr(u32)]
enum Step {
    Session = 1,
    ProcessGroup,
    ParentDeath,
    Cwd,
    Descriptors,
    Limits,
    Affinity,
    Scheduling,
    Signals,
}

/// All data that the child needs, prepared before it exists.
struct Plan<'a> {
    attributes: &'a Attributes,
    /// Temporary numbers of descriptors while they are moved.
    moved: Vec<RawFd>,
    /// The first number above all descriptors in the attributes.
    above: RawFd,
    parent: u32,
    comm: [u8; 16],
    control: Control,
    id: u32,
    task: *mut Task,
    gate: Gate,
    failure: Failure,
}

/// The reason why a child did not start.
#[derive(Debug)]
pub enum StartError {
    /// clone failed.
    Clone(Errno),
    /// A step of the preparation failed.
    Step(&'static str, Errno),
    /// The child was killed; has its PID.
    Killed(u32),
}

core::arch::global_asm!(
    // clone_on_stack(flags, stack, parent_tid, child_tid, function, argument)
    ".globl pvas_clone_on_stack",
    ".hidden pvas_clone_on_stack",
    "pvas_clone_on_stack:",
    "mov r10, rcx", // child_tid; r8 and r9 keep function and argument
    "mov eax, 56",  // clone
    "syscall",
    "test eax, eax",
    "jz 2f",
    "ret",
    "2: xor ebp, ebp",
    "mov rdi, r9",
    "call r8",
    "ud2",
);

unsafe extern "C" {
    /// Clones the process; the child calls `function` on `stack`.
    pub(crate) fn pvas_clone_on_stack(
        flags: u64,
        stack: *mut u8,
        parent_tid: *const u32,
        child_tid: *const AtomicU32,
        function: unsafe extern "C" fn(*const c_void) -> !,
        argument: *const c_void,
    ) -> i64;
}

/// Starts the program that was loaded as `task` in a new child. Returns its PID once the program
/// runs.
///
/// # Safety
/// The loader filled in `task` for slot `id` of `control`, and the task is started once.
pub unsafe fn start(
    control: Control,
    id: u32,
    task: *mut Task,
    comm: &CStr,
    attributes: &Attributes,
) -> Result<u32, StartError> {
    let alive = |pid| move || lives(pid);
    // SAFETY: `start_as` has the contract of this function: `task` is loaded for slot `id`.
    let started = unsafe { start_as(control, id, task, comm, attributes, Kin::Child, alive) };
    started.map_err(|(error, pid)| {
        // The child has ended. Only this call knows its PID, so it must reap the child.
        pid.map(reap);
        error
    })
}

/// Starts a task like [`start`], but as a child of the space's owner, which is the caller's parent.
/// The error includes the process that could not become a task; its parent must reap it.
///
/// # Safety
/// As for [`start`].
pub unsafe fn start_sibling(
    control: Control,
    id: u32,
    task: *mut Task,
    comm: &CStr,
    attributes: &Attributes,
) -> Result<u32, (StartError, Option<u32>)> {
    let alive = |pid: u32| {
        let target = Pid::from_raw(pid as i32);
        let descriptor = target.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        move || descriptor.as_ref().is_some_and(|process| !has_ended(process))
    };
    // SAFETY: `start_as` has the contract of this function: `task` is loaded for slot `id`.
    unsafe { start_as(control, id, task, comm, attributes, Kin::Sibling, alive) }
}

/// The parent of a new task.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kin {
    /// The caller.
    Child,
    /// The caller's parent.
    Sibling,
}

/// # Safety
/// As for [`start`].
unsafe fn start_as<L: Fn() -> bool>(
    control: Control,
    id: u32,
    task: *mut Task,
    comm: &CStr,
    attributes: &Attributes,
    kin: Kin,
    alive: impl FnOnce(u32) -> L,
) -> Result<u32, (StartError, Option<u32>)> {
    let highest = |a: RawFd, &(from, to): &(RawFd, RawFd)| a.max(from).max(to);
    let fds = attributes.fds.as_deref().unwrap_or_default();
    let mut name = [0; 16];
    let length = comm.count_bytes().min(15);
    name[..length].copy_from_slice(&comm.to_bytes()[..length]);
    let (parent, cloned) = match kin {
        Kin::Child => (std::process::id(), 0),
        Kin::Sibling => (control.owner_pid(), libc::CLONE_PARENT),
    };
    let plan = Plan {
        attributes,
        moved: vec![-1; fds.len()],
        above: fds.iter().fold(2, highest).saturating_add(1),
        parent,
        comm: name,
        control,
        id,
        task,
        gate: owner::gate(control),
        failure: Failure::default(),
    };
    let flags = (libc::CLONE_VM | libc::CLONE_CHILD_CLEARTID | cloned | libc::SIGCHLD) as u64;
    let blocked = BlockedSignals::new();
    // The kernel clears this word at the child's end, which may be late. The control area holds the
    // word, because it outlives the child.
    let starting = &control.slot(id).starting;
    // SAFETY: the child runs on the new task's stack, of which the loader mapped at least 128 KiB
    // below `sp`. It reads `plan`, which lives until this function returns, and this function waits
    // until the child has started its program or ended.
    let (pid, state) = unsafe {
        if attributes.sigmask.is_none() {
            (*task).start.sigmask = blocked.before;
        }
        let stack = ((*task).start.sp - 256) & !15;
        let pid = pvas_clone_on_stack(
            flags,
            stack as *mut u8,
            std::ptr::null(),
            starting,
            child,
            (&raw const plan).cast(),
        );
        if pid < 0 {
            let errno = Errno::from_raw_os_error(-pid as i32);
            return Err((StartError::Clone(errno), None));
        }
        let alive = alive(pid as u32);
        let looks = Cell::new(0);
        let alive = || {
            looks.set(looks.get() + 1);
            if looks.get() == LOOKS_MAX {
                libc::kill(pid as i32, libc::SIGKILL);
            }
            alive()
        };
        (pid as u32, wait_while(starting, 1, alive))
    };
    drop(blocked);
    // An announced task that has ended since then counts as started: its parent waits for it.
    if state == 2 || control.is_announced(id) {
        return Ok(pid);
    }
    let error = match plan.failure.step.load(Ordering::Acquire) {
        0 => StartError::Killed(pid),
        step => {
            let errno = plan.failure.errno.load(Ordering::Acquire) as i32;
            let name = STEPS.get(step as usize).copied().unwrap_or("setup");
            StartError::Step(name, Errno::from_raw_os_error(errno))
        }
    };
    Err((error, Some(pid)))
}

/// Interval at which a waiter checks that the process still lives.
const LOOK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Number of these intervals after which a child that has not started its program is killed, so a
/// minute. It may be stopped.
const LOOKS_MAX: u32 = 1200;

/// Waits while `word` is `value` and `lives` returns true; returns the new value of `word`. The
/// kernel (CLONE_CHILD_CLEARTID) or the gate wakes the waiter; both use the shared kind of futex.
/// Touches no thread-local.
///
/// The kernel does not guarantee to clear the word, because it ignores a fault there. In a process
/// that is being killed, a fault fails as soon as it would have to wait for the mm's lock. The
/// word's page faults after each fork of a task, which makes it copy-on-write.
pub fn wait_while(word: &AtomicU32, value: u32, lives: impl Fn() -> bool) -> u32 {
    loop {
        let now = word.load(Ordering::Acquire);
        if now != value {
            return now;
        }
        let waited = futex::wait(word, futex::Flags::empty(), value, Some(&LOOK_INTERVAL));
        if waited == Err(Errno::TIMEDOUT) && !lives() {
            return word.load(Ordering::Acquire);
        }
    }
}

/// Returns true if a child of this process has not ended yet. Touches no thread-local, and leaves
/// the child to be waited for.
pub fn lives(pid: u32) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    // An error means that the child was already waited for.
    Pid::from_raw(pid as i32)
        .is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), options), Ok(None)))
}

/// Returns true if the process behind a pidfd has ended.
pub fn has_ended(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Reaps a child that has ended and returns its wait status. `None` if the child was already
/// reaped, or SIGCHLD is ignored.
pub fn reap(pid: u32) -> Option<c_int> {
    let mut status = 0;
    loop {
        // SAFETY: waitpid writes one int to `status`.
        let result = unsafe { libc::waitpid(pid as i32, &raw mut status, libc::__WALL) };
        if result == pid as i32 {
            return Some(status);
        }
        if result < 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return None;
        }
    }
}

/// Blocks all signals of the calling thread until dropped, so that no signal handler runs in a
/// child that shares its thread area.
pub(crate) struct BlockedSignals {
    before: u64,
}

impl BlockedSignals {
    pub(crate) fn new() -> Self {
        let before = sigprocmask(libc::SIG_SETMASK, &u64::MAX);
        Self { before }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        sigprocmask(libc::SIG_SETMASK, &self.before);
    }
}

/// Calls rt_sigprocmask directly, which includes the signals that libc reserves. Returns the old
/// mask.
pub fn sigprocmask(how: c_int, set: &u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: both pointers are to u64 variables of this call, and the kernel's sigset has eight
    // bytes.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, how, std::ptr::from_ref(set), &raw mut old, 8);
    }
    old
}

/// Prepares the task and starts its program. Runs in the child.
///
/// # Safety
/// `pvas_clone_on_stack` calls this with the parent's plan.
unsafe extern "C" fn child(plan: *const c_void) -> ! {
    // SAFETY: `start_as` passed its plan, and keeps it until this child has started its program or
    // ended.
    let plan = unsafe { &*plan.cast::<Plan<'static>>() };
    if let Err((step, errno)) = prepare(plan) {
        plan.failure.errno.store(errno.raw_os_error() as u32, Ordering::Release);
        plan.failure.step.store(step as u32, Ordering::Release);
        raw::exit(127);
    }
    // SAFETY: `start_as` cloned this process with the slot's `starting`, and `task` is its loaded
    // control block.
    unsafe { enter(plan.control, plan.id, plan.task, plan.gate, &plan.comm) }
}

/// Turns the calling process into a task: the last steps of a spawned and of a forked task.
///
/// # Safety
/// The process that becomes the task calls this once, with its loaded control block. It was cloned
/// with the slot's `starting` as the word to clear.
pub unsafe fn enter(control: Control, id: u32, task: *mut Task, gate: Gate, comm: &[u8; 16]) -> ! {
    let pid = raw::getpid();
    let slot = control.slot(id);
    // SAFETY: by this function's contract `task` is loaded and belongs to this process, and the
    // loader made its thunk. FPU control words are reset as execve does, or they would be the
    // starter's.
    unsafe {
        (*task).pid = pid;
        (*task).start.wake = &slot.starting;
        raw::set_comm(comm);
        gate.faults_init(task);
        let mxcsr = 0x1f80u32;
        core::arch::asm!("fninit", "ldmxcsr [{}]", in(reg) &mxcsr, options(nostack));
    }
    slot.task.store(task as u64, Ordering::Release);
    slot.pid.store(pid, Ordering::Release);
    control.pid_entry(pid).store(id + 1, Ordering::Release);
    // The announcement precedes the program's first instruction, so that the program can query its
    // ID.
    owner::announce_start(control, id);
    // SAFETY: the loader filled in `start` of the loaded `task`.
    unsafe { gate.start(&raw const (*task).start) }
}

/// Applies the attributes. Makes no allocation, takes no lock, touches no thread-local.
fn prepare(plan: &Plan<'_>) -> Result<(), (Step, Errno)> {
    let attributes = plan.attributes;
    if plan.control.is_shared() {
        // Tasks of other domains read this task's memory through its page tables (`gate/c/far.c`).
        // Yama may restrict that to ancestors. The tasks can write this memory anyway, so every
        // process is allowed.
        let _ = raw::call2(libc::SYS_prctl, libc::PR_SET_PTRACER as usize, usize::MAX);
    }
    let at = |step| move |errno| (step, errno);
    if attributes.new_session {
        raw::call0(libc::SYS_setsid).map_err(at(Step::Session))?;
    }
    if let Some(group) = attributes.process_group {
        let result = raw::call2(libc::SYS_setpgid, 0, group as usize);
        if !attributes.process_group_optional {
            result.map_err(at(Step::ProcessGroup))?;
        }
    }
    if let Some(signal) = attributes.parent_death_signal {
        set_death_signal(plan, signal).map_err(at(Step::ParentDeath))?;
    }
    if let Some(path) = &attributes.cgroup_procs {
        raw::join_cgroup(path);
    }
    if let Some(mask) = attributes.umask {
        let _ = raw::call1(libc::SYS_umask, mask as usize);
    }
    if let Some(fd) = attributes.cwd_fd {
        raw::call1(libc::SYS_fchdir, fd as usize).map_err(at(Step::Cwd))?;
    }
    if let Some(path) = &attributes.cwd {
        raw::call1(libc::SYS_chdir, path.as_ptr() as usize).map_err(at(Step::Cwd))?;
    }
    match &attributes.fds {
        Some(pairs) => arrange_fds(plan, pairs).map_err(at(Step::Descriptors))?,
        None => close_on_exec().map_err(at(Step::Descriptors))?,
    }
    for &(resource, soft, hard) in &attributes.limits {
        let limit = [soft, hard];
        raw::call4(libc::SYS_prlimit64, 0, resource as usize, limit.as_ptr() as usize, 0)
            .map_err(at(Step::Limits))?;
    }
    if let Some((mode, nodes)) = &attributes.memory_policy {
        // The policy is advisory, since a NUMA node may have been removed.
        let bits = nodes.len() * 64;
        let _ = raw::call3(libc::SYS_set_mempolicy, *mode as usize, nodes.as_ptr() as usize, bits);
    }
    if !attributes.affinity.is_empty() {
        let mask = &attributes.affinity;
        raw::call3(libc::SYS_sched_setaffinity, 0, mask.len(), mask.as_ptr() as usize)
            .map_err(at(Step::Affinity))?;
    }
    if let Some((policy, priority)) = attributes.scheduler {
        let parameter = [priority];
        raw::call3(libc::SYS_sched_setscheduler, 0, policy as usize, parameter.as_ptr() as usize)
            .map_err(at(Step::Scheduling))?;
    }
    if let Some(nice) = attributes.nice {
        raw::call3(libc::SYS_setpriority, libc::PRIO_PROCESS as usize, 0, nice as usize)
            .map_err(at(Step::Scheduling))?;
    }
    if let Some(priority) = attributes.io_priority {
        let _ = raw::call3(libc::SYS_ioprio_set, 1, 0, priority as usize);
    }
    if let Some(slack) = attributes.timer_slack_ns {
        let _ = raw::call2(libc::SYS_prctl, libc::PR_SET_TIMERSLACK as usize, slack as usize);
    }
    reset_signals(attributes.ignored_signals).map_err(at(Step::Signals))?;
    if let Some(mask) = attributes.sigmask {
        // SAFETY: the loader filled in `plan.task`, and no other thread uses it before the task is
        // announced.
        unsafe { (*plan.task).start.sigmask = mask };
    }
    Ok(())
}

/// Sets the signal that the task receives at its parent's end. Ends the child if the parent has
/// ended already.
fn set_death_signal(plan: &Plan<'_>, signal: i32) -> Result<(), Errno> {
    raw::call2(libc::SYS_prctl, libc::PR_SET_PDEATHSIG as usize, signal as usize)?;
    if raw::call0(libc::SYS_getppid) != Ok(plan.parent as usize) {
        raw::exit(127);
    }
    // The gate sets the signal again where the kernel clears it (`gate/c/rights.c`).
    // SAFETY: the loader filled in `plan.task`, and no other thread uses it before the task is
    // announced.
    unsafe {
        (*plan.task).death_signal = signal as u32;
        (*plan.task).own_death_signal = AtomicU32::new(signal as u32);
        (*plan.task).parent = plan.parent;
    }
    Ok(())
}

/// Resets signal actions. With `None`, caught signals get the default action, as execve does; with
/// a mask, exactly the signals in it are ignored.
pub fn reset_signals(ignored: Option<u64>) -> Result<(), Errno> {
    for signal in 1..=64usize {
        if signal == libc::SIGKILL as usize || signal == libc::SIGSTOP as usize {
            continue;
        }
        let mut old = [0u64; 4];
        raw::call4(libc::SYS_rt_sigaction, signal, 0, (&raw mut old) as usize, 8)?;
        let wanted = match ignored {
            Some(mask) => u64::from(mask & (1 << (signal - 1)) != 0),
            None => u64::from(old[0] == 1),
        };
        if old[0] != wanted {
            let new = [wanted, 0, 0, 0];
            raw::call4(libc::SYS_rt_sigaction, signal, (&raw const new) as usize, 0, 8)?;
        }
    }
    Ok(())
}

/// Gives the child exactly these descriptors. First moves all above the highest number in `pairs`,
/// so that no move overwrites a descriptor that is still needed.
fn arrange_fds(plan: &Plan<'_>, pairs: &[(RawFd, RawFd)]) -> Result<(), Errno> {
    let above = plan.above as usize;
    let moved = plan.moved.as_ptr().cast_mut();
    for (n, &(from, _)) in pairs.iter().enumerate() {
        let to = raw::call3(libc::SYS_fcntl, from as usize, libc::F_DUPFD as usize, above);
        // fcntl returns EINVAL for a number above the limit.
        let to = to.map_err(|errno| if errno == Errno::INVAL { Errno::MFILE } else { errno })?;
        // SAFETY: `start_as` made `moved` with one entry for each pair, and only this child uses
        // it.
        unsafe { *moved.add(n) = to as RawFd };
    }
    raw::call3(libc::SYS_close_range, 0, above - 1, 0)?;
    for (n, &(_, to)) in pairs.iter().enumerate() {
        // SAFETY: `moved` has one entry for each pair, and the first loop wrote this one.
        let from = unsafe { *moved.add(n) };
        raw::call2(libc::SYS_dup2, from as usize, to as usize)?;
    }
    raw::call3(libc::SYS_close_range, above, u32::MAX as usize, 0)?;
    Ok(())
}

/// Closes all descriptors that are marked close-on-exec, as execve does.
pub fn close_on_exec() -> Result<(), Errno> {
    let flags = (libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) as usize;
    let path = c"/proc/self/fd".as_ptr() as usize;
    let directory = match raw::call4(libc::SYS_openat, libc::AT_FDCWD as usize, path, flags, 0) {
        Ok(fd) => fd as RawFd,
        Err(_) => return close_on_exec_by_number(),
    };
    // SAFETY: `openat` returned the descriptor above, and it stays open until the end of this
    // function.
    let borrowed = unsafe { BorrowedFd::borrow_raw(directory) };
    let mut buffer = [MaybeUninit::<u8>::uninit(); 2048];
    let mut entries = rustix::fs::RawDir::new(borrowed, &mut buffer);
    while let Some(entry) = entries.next() {
        let Ok(entry) = entry else { break };
        let mut fd = 0usize;
        let digits = entry.file_name().to_bytes();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            continue;
        }
        for digit in digits {
            fd = fd.wrapping_mul(10).wrapping_add(usize::from(digit.wrapping_sub(b'0')));
        }
        if fd != directory as usize {
            close_if_marked(fd);
        }
    }
    // SAFETY: `openat` returned the descriptor above, and nothing uses it any more.
    drop(unsafe { OwnedFd::from_raw_fd(directory) });
    Ok(())
}

fn close_if_marked(fd: usize) {
    let flags = raw::call3(libc::SYS_fcntl, fd, libc::F_GETFD as usize, 0);
    if flags.is_ok_and(|flags| flags & libc::FD_CLOEXEC as usize != 0) {
        let _ = raw::call1(libc::SYS_close, fd);
    }
}

/// Without /proc, checks every number below the limit, at most 65,536.
fn close_on_exec_by_number() -> Result<(), Errno> {
    let mut limit = [0usize; 2];
    let resource = libc::RLIMIT_NOFILE as usize;
    raw::call4(libc::SYS_prlimit64, 0, resource, 0, (&raw mut limit) as usize)?;
    for fd in 0..limit[0].min(1 << 16) {
        close_if_marked(fd);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_notices_the_end_of_a_process_without_a_wake_up() {
        let mut child = std::process::Command::new("sleep").arg("0.1").spawn().expect("spawns");
        let word = AtomicU32::new(1);
        assert_eq!(wait_while(&word, 1, || lives(child.id())), 1);
        assert!(!lives(child.id()));
        assert!(child.wait().expect("was left to be waited for").success());
        assert!(!lives(child.id()));
    }
}
