//! Tasks' threads that sleep at a futex while its page is moved to other memory.
//!
//! The kernel knows a futex that is not private by its page (pthread_join's, say): who wakes it at
//! its new page does not reach who has gone to sleep at the old one. So those are woken once and
//! look again, as every user of a futex must be ready to do.
//!
//! Who sleeps where is in /proc/PID/task/TID/syscall. Of a thread that runs it does not say what it
//! is about to do. When its page is moved it may have looked at the futex already and be about to
//! sleep; it is looked at again until it has slept, or has been in its program.

use std::fs;
use std::io::Read as _;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use pager::shared::PAGE;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// How long until who runs is looked at again.
const NAP: Duration = Duration::from_millis(5);

/// A thread, as /proc names it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Thread {
    path: String,
    /// How long it was in its program, and how often it has gone to sleep.
    was: Option<(u64, u64)>,
}

/// What a thread does.
#[derive(Debug, PartialEq, Eq)]
enum Doing {
    /// Perhaps it is about to sleep.
    Runs,
    /// It sleeps at a futex that is not private, by this address.
    Sleeps(u64),
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
    /// When they are to be looked at again.
    pub fn due(&self) -> Instant {
        self.due
    }
}

/// Wakes those threads of these processes that sleep at futexes of pages that were moved from a
/// file; `at` are their addresses, and `offset` is the first one's in the file. Nobody goes to
/// sleep there any more. The others are to be looked at [again].
pub fn wake(
    pids: impl Iterator<Item = u32>,
    at: Range<u64>,
    file: BorrowedFd<'_>,
    offset: u64,
) -> Option<Runners> {
    let threads = pids.flat_map(threads_of).map(|path| Thread { was: None, path });
    let mut runners = Runners { threads: threads.collect(), at, due: Instant::now() };
    again(&mut runners, file, offset).then_some(runners)
}

/// Looks at them again; whether there are any left.
pub fn again(runners: &mut Runners, file: BorrowedFd<'_>, offset: u64) -> bool {
    let at = runners.at.clone();
    let mut moved = Vec::new();
    runners.threads.retain_mut(|thread| match doing(&thread.path) {
        Doing::Runs => {
            let now = counts(&thread.path);
            let was = thread.was.get_or_insert_with(|| now.unwrap_or_default());
            now == Some(*was)
        }
        Doing::Sleeps(word) => {
            if at.contains(&word) {
                moved.push(word - at.start + offset);
            }
            false
        }
        Doing::Other => false,
    });
    moved.sort_unstable();
    moved.dedup();
    for word in moved {
        // Who is missed by that sleeps on, and there is nobody to tell.
        let _ = wake_by(file, word);
    }
    runners.due = Instant::now() + NAP;
    !runners.threads.is_empty()
}

/// Wakes who sleeps at a futex of a file.
fn wake_by(file: BorrowedFd<'_>, offset: u64) -> Result<(), Errno> {
    let page = offset - offset % PAGE;
    // SAFETY: a new mapping, and its end.
    unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED;
        let at = mmap(std::ptr::null_mut(), PAGE as usize, protection, flags, file, page)?;
        let word = at.wrapping_byte_add((offset - page) as usize);
        libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX);
        munmap(at, PAGE as usize)
    }
}

fn threads_of(pid: u32) -> impl Iterator<Item = String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    // Who has ended sleeps no more.
    let names = threads.into_iter().flatten().flatten();
    names.map(|it| it.path().to_string_lossy().into_owned())
}

/// A short file of /proc, by one read.
fn text(path: &str) -> std::io::Result<String> {
    let mut bytes = [0; 4096];
    let count = fs::File::open(path)?.read(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

fn doing(path: &str) -> Doing {
    match text(&format!("{path}/syscall")) {
        Ok(text) => parse(&text),
        Err(_) => Doing::Other,
    }
}

/// Of /proc/PID/task/TID/syscall: `running`, or a call's number and arguments.
fn parse(text: &str) -> Doing {
    let mut words = text.split_ascii_whitespace();
    let call = words.next().unwrap_or_default();
    if call == "running" {
        return Doing::Runs;
    }
    let mut hex = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    match (call.parse() == Ok(libc::SYS_futex), hex(), hex()) {
        (true, Some(address), Some(operation))
            if operation & libc::FUTEX_PRIVATE_FLAG as u64 == 0 =>
        {
            Doing::Sleeps(address)
        }
        _ => Doing::Other,
    }
}

/// Its ticks in user mode, and how often it has gone to sleep.
fn counts(path: &str) -> Option<(u64, u64)> {
    let stat = text(&format!("{path}/stat")).ok()?;
    // Behind the name, which may be anything, follow the state and ten numbers; then utime.
    let ticks = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(11)?.parse().ok()?;
    let status = text(&format!("{path}/status")).ok()?;
    let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    Some((ticks, sleeps.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn sleepers_are_known() {
        let futex = libc::SYS_futex;
        assert_eq!(parse("running\n"), Doing::Runs);
        assert_eq!(
            parse(&format!("{futex} 0x7f01 0x0 0x1 0x0 0x0 0x0 0x2 0x3\n")),
            Doing::Sleeps(0x7f01)
        );
        assert_eq!(parse(&format!("{futex} 0x7f01 0x80 0x1\n")), Doing::Other, "it is private");
        assert_eq!(parse("-1 0x7f01 0x0\n"), Doing::Other);
        assert_eq!(parse("0 0x7f01 0x0 0x0\n"), Doing::Other);
        assert_eq!(parse(""), Doing::Other);
    }

    /// A thread sleeps at a page of a file, by an address where another file's page is then.
    #[test]
    fn sleepers_at_the_old_page_are_woken() {
        let file = || {
            let file = rustix::fs::memfd_create("it", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&file, 2 * PAGE).unwrap();
            file
        };
        let (old, new) = (file(), file());
        let map = |at: *mut _, flags, file: &_, offset| {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping, or in place of one of ours that holds the same.
            unsafe { mmap(at, PAGE as usize, protection, flags, file, offset) }.unwrap()
        };
        let at = map(std::ptr::null_mut(), MapFlags::SHARED, &old, PAGE);
        // SAFETY: mapped as long as the test.
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
        let sleeps = || threads_of(std::process::id()).any(|it| doing(&it) == Doing::Sleeps(at));
        while !sleeps() {
            std::thread::sleep(NAP);
        }
        map(at as *mut _, MapFlags::SHARED | MapFlags::FIXED, &new, 0);
        word.store(1, Ordering::Release);
        let all = at..at + PAGE;
        let mut runners = wake([std::process::id()].into_iter(), all, old.as_fd(), PAGE);
        sleeper.join().unwrap();
        // This thread is in its program soon.
        let begin = Instant::now();
        while let Some(it) = &mut runners {
            assert!(begin.elapsed() < Duration::from_secs(10));
            if !again(it, old.as_fd(), PAGE) {
                runners = None;
            }
        }
    }
}
