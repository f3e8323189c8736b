//! The loop's epoll instance: polled descriptors, each with the object behind it.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// Sources by number. No number is used twice.
#[derive(Debug)]
pub struct Poll<S> {
    epoll: OwnedFd,
    sources: BTreeMap<u64, S>,
    next: u64,
}

impl<S: AsFd> Poll<S> {
    /// Returns an instance without sources.
    pub fn new() -> Result<Poll<S>, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Poll { epoll, sources: BTreeMap::new(), next: 0 })
    }

    /// Adds a source and polls it for input. Returns its number.
    pub fn add(&mut self, source: S) -> Result<u64, Errno> {
        let number = self.next;
        epoll::add(
            &self.epoll,
            source.as_fd(),
            epoll::EventData::new_u64(number),
            epoll::EventFlags::IN,
        )?;
        self.next += 1;
        self.sources.insert(number, source);
        Ok(number)
    }

    /// Stops polling the source for input; its end is still reported.
    pub fn pause(&self, number: u64) {
        self.modify(number, epoll::EventFlags::empty());
    }

    /// Polls a paused source for input again.
    pub fn resume(&self, number: u64) {
        self.modify(number, epoll::EventFlags::IN);
    }

    fn modify(&self, number: u64, flags: epoll::EventFlags) {
        if let Some(source) = self.sources.get(&number) {
            let data = epoll::EventData::new_u64(number);
            // This cannot fail: `add` has added the source.
            let _ = epoll::modify(&self.epoll, source.as_fd(), data, flags);
        }
    }

    /// Returns the source with this number.
    pub fn get(&mut self, number: u64) -> Option<&mut S> {
        self.sources.get_mut(&number)
    }

    /// Removes a source.
    pub fn remove(&mut self, number: u64) -> Option<S> {
        let source = self.sources.remove(&number)?;
        // Closing the descriptor would not suffice if a child process has inherited it.
        let _ = epoll::delete(&self.epoll, source.as_fd());
        Some(source)
    }

    /// Returns the sources with input. Waits for one for at most `time`.
    pub fn wait(&self, time: Option<Duration>) -> Result<Vec<u64>, Errno> {
        let mut buffer = [MaybeUninit::<epoll::Event>::uninit(); 64];
        let time = time.map(|time| Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        });
        match epoll::wait(&self.epoll, &mut buffer, time.as_ref()) {
            Ok((events, _)) => Ok(events.iter().map(|event| event.data.u64()).collect()),
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

/// Blocks these signals and returns a descriptor from which they can be read.
pub fn signals(signals: &[i32]) -> Result<OwnedFd, Errno> {
    // SAFETY: `sigemptyset` initializes `set` before it is used. `fd` is new and nothing else
    // owns it, so `OwnedFd` may close it.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        // A write to a process that has ended must fail with EPIPE.
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}
