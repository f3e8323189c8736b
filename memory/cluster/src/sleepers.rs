//! Threads of tasks that sleep at a futex while its page moves to other memory.
//!
//! The kernel identifies a shared futex (that of pthread_join, say) by its page. A wake-up at the
//! new page does not reach a thread that went to sleep at the old one. So all threads that sleep
//! there are woken once, and check the futex again, as every user of a futex must be ready to do.
//!
//! /proc/PID/task/TID/syscall says at which address a thread sleeps. A thread that runs may already
//! have checked the futex and be about to sleep at the old page. It is checked again until it has
//! slept, or has run in user mode.

use std::fs;
use std::io::Read as _;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use pager::shared::PAGE;
use proc::process::{Stat, Status};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Time until threads that ran are checked again.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// A thread and its directory in /proc.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Thread {
    path: String,
    /// Its ticks in user mode and its voluntary context switches at the first check.
    counts: Option<(u64, u64)>,
}

/// The activity of a thread.
#[derive(Debug, PartialEq, Eq)]
enum Activity {
    /// It runs, and may be about to sleep.
    Runs,
    /// It sleeps at a shared futex with this address.
    Sleeps(u64),
    /// Anything else.
    Other,
}

/// Threads that ran when pages were moved.
#[derive(Debug)]
pub struct Runners {
    threads: Vec<Thread>,
    /// Addresses of the pages.
    at: Range<u64>,
    due: Instant,
}

impl Runners {
    /// Returns when to check them again.
    pub fn due(&self) -> Instant {
        self.due
    }
}

/// Wakes the threads of these processes that sleep at futexes in pages that were moved out of a
/// file. `at` are the addresses of the pages, and `offset` is the offset of the first one in the
/// file. Returns the threads that ran, which the caller has to [check again](check_again).
pub fn wake(
    pids: impl Iterator<Item = u32>,
    at: Range<u64>,
    file: BorrowedFd<'_>,
    offset: u64,
) -> Option<Runners> {
    let threads = pids.flat_map(threads_of).map(|path| Thread { counts: None, path });
    let mut runners = Runners { threads: threads.collect(), at, due: Instant::now() };
    check_again(&mut runners, file, offset).then_some(runners)
}

/// Checks threads that ran. Returns true if some of them have to be checked again.
pub fn check_again(runners: &mut Runners, file: BorrowedFd<'_>, offset: u64) -> bool {
    let at = runners.at.clone();
    let mut moved = Vec::new();
    runners.threads.retain_mut(|thread| match activity(&thread.path) {
        Activity::Runs => {
            let now = counts(&thread.path);
            let was = thread.counts.get_or_insert_with(|| now.unwrap_or_default());
            now == Some(*was)
        }
        Activity::Sleeps(word) => {
            if at.contains(&word) {
                moved.push(word - at.start + offset);
            }
            false
        }
        Activity::Other => false,
    });
    moved.sort_unstable();
    moved.dedup();
    for word in moved {
        // After an error its waiters sleep on. The task has no way to learn of it.
        let _ = wake_by(file, word);
    }
    runners.due = Instant::now() + CHECK_INTERVAL;
    !runners.threads.is_empty()
}

/// Wakes the waiters of a futex in a file.
fn wake_by(file: BorrowedFd<'_>, offset: u64) -> Result<(), Errno> {
    let page = offset - offset % PAGE;
    // SAFETY: the mapping is new and private to this block, which unmaps it. `word` lies in it
    // because `offset - page` is less than a page. FUTEX_WAKE writes no memory.
    unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED;
        let at = mmap(std::ptr::null_mut(), PAGE as usize, protection, flags, file, page)?;
        let word = at.wrapping_byte_add((offset - page) as usize);
        libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX);
        munmap(at, PAGE as usize)
    }
}

/// Returns the directories of a process's threads.
fn threads_of(pid: u32) -> impl Iterator<Item = String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    // A process that has ended has no threads.
    let names = threads.into_iter().flatten().flatten();
    names.map(|it| it.path().to_string_lossy().into_owned())
}

/// Returns a short file of /proc, by one read(2).
fn text(path: &str) -> std::io::Result<String> {
    let mut bytes = [0; 4096];
    let count = fs::File::open(path)?.read(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

/// Returns the activity of a thread.
fn activity(path: &str) -> Activity {
    match text(&format!("{path}/syscall")) {
        Ok(text) => parse(&text),
        Err(_) => Activity::Other,
    }
}

/// Parses /proc/PID/task/TID/syscall: `running`, or the number and arguments of a call.
fn parse(text: &str) -> Activity {
    let mut words = text.split_ascii_whitespace();
    let call = words.next().unwrap_or_default();
    if call == "running" {
        return Activity::Runs;
    }
    let mut hex = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    match (call.parse() == Ok(libc::SYS_futex), hex(), hex()) {
        (true, Some(address), Some(operation))
            if operation & libc::FUTEX_PRIVATE_FLAG as u64 == 0 =>
        {
            Activity::Sleeps(address)
        }
        _ => Activity::Other,
    }
}

/// Reads the activity of a thread (see `fuzz`).
pub(crate) fn fuzz(text: &str) {
    let _ = parse(text);
}

/// Returns the ticks of a thread in user mode, and its voluntary context switches.
fn counts(path: &str) -> Option<(u64, u64)> {
    let ticks = Stat::read(path).ok()?.field(14)?;
    let status = Status::read(path).ok()?;
    Some((ticks, status.field("voluntary_ctxt_switches")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn sleeping_threads_are_recognized() {
        let futex = libc::SYS_futex;
        assert_eq!(parse("running\n"), Activity::Runs);
        assert_eq!(
            parse(&format!("{futex} 0x7f01 0x0 0x1 0x0 0x0 0x0 0x2 0x3\n")),
            Activity::Sleeps(0x7f01)
        );
        assert_eq!(parse(&format!("{futex} 0x7f01 0x80 0x1\n")), Activity::Other, "it is private");
        assert_eq!(parse("-1 0x7f01 0x0\n"), Activity::Other);
        assert_eq!(parse("0 0x7f01 0x0 0x0\n"), Activity::Other);
        assert_eq!(parse(""), Activity::Other);
    }

    /// A thread sleeps at an address where the page of another file is mapped then.
    #[test]
    fn a_thread_that_sleeps_at_the_old_page_is_woken() {
        let file = || {
            let file = rustix::fs::memfd_create("it", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&file, 2 * PAGE).unwrap();
            file
        };
        let (old, new) = (file(), file());
        let map = |at: *mut _, flags, file: &_, offset| {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: the mapping is new, or replaces one of this test with the same length.
            unsafe { mmap(at, PAGE as usize, protection, flags, file, offset) }.unwrap()
        };
        let at = map(std::ptr::null_mut(), MapFlags::SHARED, &old, PAGE);
        // SAFETY: `at` is page-aligned and stays mapped until the test ends.
        let word: &'static AtomicU32 = unsafe { &*at.cast::<AtomicU32>() };
        let sleeper = std::thread::spawn(move || {
            while word.load(Ordering::Acquire) == 0 {
                let _ = rustix::thread::futex::wait(
                    word,
                    rustix::thread::futex::Flags::empty(),
                    0,
                    None,
                );
            }
        });
        let at = at as u64;
        let sleeps =
            || threads_of(std::process::id()).any(|it| activity(&it) == Activity::Sleeps(at));
        while !sleeps() {
            std::thread::sleep(CHECK_INTERVAL);
        }
        map(at as *mut _, MapFlags::SHARED | MapFlags::FIXED, &new, 0);
        word.store(1, Ordering::Release);
        let all = at..at + PAGE;
        let mut runners = wake([std::process::id()].into_iter(), all, old.as_fd(), PAGE);
        sleeper.join().unwrap();
        // This thread runs in user mode soon.
        let begin = Instant::now();
        while let Some(it) = &mut runners {
            assert!(begin.elapsed() < Duration::from_secs(10));
            if !check_again(it, old.as_fd(), PAGE) {
                runners = None;
            }
        }
    }
}
