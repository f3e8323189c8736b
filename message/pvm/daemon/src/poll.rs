//! What the loop waits for: descriptors, each with what it is about.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// Descriptors, by numbers that are given once.
#[derive(Debug)]
pub struct Poll<S> {
    epoll: OwnedFd,
    sources: BTreeMap<u64, S>,
    next: u64,
}

impl<S: AsFd> Poll<S> {
    /// None yet.
    pub fn new() -> Result<Poll<S>, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Poll { epoll, sources: BTreeMap::new(), next: 0 })
    }

    /// Waits for this one, too, until it can be read. Its number.
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

    /// Waits for it only to end, for now.
    pub fn pause(&self, number: u64) {
        self.modify(number, epoll::EventFlags::empty());
    }

    /// Waits for it as before.
    pub fn resume(&self, number: u64) {
        self.modify(number, epoll::EventFlags::IN);
    }

    fn modify(&self, number: u64, flags: epoll::EventFlags) {
        if let Some(source) = self.sources.get(&number) {
            let data = epoll::EventData::new_u64(number);
            // It is there, and was added before.
            let _ = epoll::modify(&self.epoll, source.as_fd(), data, flags);
        }
    }

    /// The source with this number.
    pub fn get(&mut self, number: u64) -> Option<&mut S> {
        self.sources.get_mut(&number)
    }

    /// Waits for it no longer.
    pub fn remove(&mut self, number: u64) -> Option<S> {
        let source = self.sources.remove(&number)?;
        // Closing would not do where a child of ours has the description, too.
        let _ = epoll::delete(&self.epoll, source.as_fd());
        Some(source)
    }

    /// Those that can be read; waits for one, at most for this time.
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

/// These signals, as a descriptor; they do nothing else from now on.
pub fn signals(signals: &[i32]) -> Result<OwnedFd, Errno> {
    // SAFETY: sigemptyset initializes the set; the descriptor is new and ours.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        // Who is written to may have ended.
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}
