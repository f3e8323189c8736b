//! Processes of a test: forked, killed and waited for; the window that they share; and
//! choices that a seed repeats.
#![allow(dead_code, reason = "each test file uses what it needs")]

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use fcp::header::Plan;
use fcp::member::{Card, Members};
use fcp::memory::Memory;
use fcp::port::Port;
use fcp::window::Window;

/// The members of a new window of 1 MiB and what members can lend.
pub fn members_of(plan: Plan) -> Arc<Members> {
    let size = (1 << 20) + usize::from(plan.members) * plan.lendable;
    let memory = Memory::anonymous(size).expect("memory");
    let window = Window::open(memory, Some(plan)).expect("a window");
    Arc::new(Members::of(Arc::new(window)).expect("members"))
}

/// The window again, as a process sees it that was given the descriptor.
pub fn again(members: &Members) -> Arc<Members> {
    let copy = members.window().memory().as_fd().try_clone_to_owned().expect("a copy");
    let memory = Memory::received(copy).expect("memory");
    let window = Window::open(memory, None).expect("the window");
    Arc::new(Members::of(Arc::new(window)).expect("members"))
}

/// Takes this place among the members, with its number as the ID.
pub fn join(members: &Arc<Members>, index: u16) -> Port {
    Port::join(members, Card { id: index.into(), group: 0 }, Some(index)).expect("a place")
}

/// Until when something may take that does not take long.
pub fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(20))
}

/// Returns the seed in `NAGAYA_SEED`, or a new one. Prints it.
pub fn seed() -> u64 {
    let seed = std::env::var("NAGAYA_SEED").ok().and_then(|s| s.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) << 20);
    println!("NAGAYA_SEED={seed}");
    seed
}

/// Starts a child that runs `work` and ends, with 101 if it panics. The test's other
/// threads stay out of it.
pub fn child(work: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child uses no lock of another thread's: it computes, sends and exits.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: plain calls; ends with its parent, and without running its exit code.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                let work = std::panic::AssertUnwindSafe(work);
                let failed = std::panic::catch_unwind(work).is_err();
                libc::_exit(if failed { 101 } else { 0 })
            }
        }
        pid => {
            assert!(pid > 0);
            pid
        }
    }
}

/// Whether the child has ended; reaps it.
pub fn has_ended(pid: libc::pid_t) -> bool {
    // SAFETY: our own child.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) == pid }
}

/// Waits for the child. Its wait status.
pub fn reap(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: our own child.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    status
}

/// Kills the child, which was not yet reaped. Its wait status.
pub fn kill(pid: libc::pid_t) -> i32 {
    // SAFETY: our own child.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    reap(pid)
}

/// How much processor time this thread has had.
pub fn cpu_time() -> Duration {
    // SAFETY: a plain structure, filled by the call.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    let time = |at: libc::timeval| {
        Duration::from_secs(at.tv_sec as u64) + Duration::from_micros(at.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Waits until it holds.
pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Keeps `living` processes going for a while, each with a number of its own, and kills one
/// after the other at random instants. Returns how many. None may end by itself.
pub fn kill_and_replace(
    random: &mut Rng,
    living: u32,
    time: Duration,
    start: impl Fn(u32) -> libc::pid_t,
) -> u32 {
    let end_of = |pid| {
        let status = kill(pid);
        assert_eq!(libc::WTERMSIG(status), libc::SIGKILL, "it failed by itself: {status:x}");
    };
    let mut pids: Vec<_> = (0..living).map(&start).collect();
    let end = Instant::now() + time;
    let mut deaths = 0;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_micros(random.u64(..20_000)));
        let victim = random.usize(..pids.len());
        end_of(pids[victim]);
        pids[victim] = start(living + deaths);
        deaths += 1;
    }
    pids.into_iter().for_each(end_of);
    deaths
}
