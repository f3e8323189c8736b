//! Reads from a pipe or socket with one time limit for all reads together.

use std::io::{Error, ErrorKind, Read, Result};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// A pipe or socket that can be read until a time limit. Then reads fail with
/// [`ErrorKind::TimedOut`].
pub(crate) struct TimedReader<F> {
    from: F,
    timeout: Duration,
    end: Instant,
}

impl<F: AsFd> TimedReader<F> {
    /// Returns a reader of `from` with a time limit, which starts now.
    pub fn new(from: F, timeout: Duration) -> Self {
        TimedReader { from, timeout, end: Instant::now() + timeout }
    }

    /// Starts a new time limit.
    pub fn restart(&mut self, timeout: Duration) {
        (self.timeout, self.end) = (timeout, Instant::now() + timeout);
    }

    /// Returns the pipe or socket.
    pub fn inner(&self) -> &F {
        &self.from
    }
}

impl<F: AsFd> Read for TimedReader<F> {
    fn read(&mut self, to: &mut [u8]) -> Result<usize> {
        loop {
            let left = self.end.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).ok();
            let mut fds = [PollFd::new(&self.from, PollFlags::IN)];
            match poll(&mut fds, left.as_ref()) {
                Ok(0) => {
                    let why = format!("no data within {} s", self.timeout.as_secs());
                    return Err(Error::new(ErrorKind::TimedOut, why));
                }
                Ok(_) => return Ok(rustix::io::read(&self.from, to)?),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_ends_at_its_time_limit() {
        let (from, to) = rustix::pipe::pipe().expect("a pipe");
        let mut reader = TimedReader::new(from, Duration::from_millis(50));
        rustix::io::write(&to, b"in time").expect("it has room");
        let mut bytes = [0; 20];
        assert_eq!(reader.read(&mut bytes).expect("there is something"), 7);
        let start = Instant::now();
        let error = reader.read(&mut bytes).expect_err("nothing more comes");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
