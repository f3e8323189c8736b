//! The system calls of a launcher, behind traits, so that tests can run it over simulated nodes.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Result, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Child;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::SendFlags;

use crate::signals::Signals;
use crate::status;

/// A node's process, as its starter sees it. It reads and writes the control channel, without
/// waiting until the node has begun.
pub trait Process: Read + Write {
    /// Returns the standard error of the command that started the node on another host.
    fn errors(&mut self) -> Option<&mut impl Read>;

    /// Lets the channel wait from now on. Prints the lines of the command's standard error, each
    /// with the host's name in front.
    fn begin(&mut self, host: &str);

    /// Returns the wait status of the process if it has ended.
    fn status(&mut self) -> Option<i32>;

    /// Sends the process a signal, if it has not ended.
    fn signal(&mut self, signal: i32);

    /// Ends the process.
    fn end(&mut self);
}

/// The events that a node's process can have.
#[derive(Debug, Clone, Copy)]
pub struct Events {
    /// Bytes have arrived, or the end of the channel.
    pub input: bool,
    /// The channel takes bytes.
    pub output: bool,
    /// The command's standard error has bytes, or its end.
    pub errors: bool,
}

/// The system that starts nodes.
pub trait System<P> {
    /// Waits for one of the events, at most for `limit`. May return earlier.
    fn wait(&self, events: &[(&P, Events)], limit: Duration);

    /// Lets time pass.
    fn sleep(&self, time: Duration);

    /// Takes a signal that is pending and not ignored.
    fn pending(&self) -> Option<i32>;

    /// Waits for the next signal. Returns it, and true if the terminal sent it.
    fn next(&self) -> (i32, bool);

    /// Ends this process as a wait status describes ([`status::end_as`]).
    fn end_as(&self, status: i32) -> i32;
}

/// A process on this host: the node, or the command that started it on another host.
#[derive(Debug)]
pub struct Started {
    child: Child,
    to: File,
    /// `None` if the channel is one socket.
    from: Option<File>,
    errors: Option<File>,
}

impl Started {
    /// Takes a child and its control channel: one socket, or a pipe for each direction.
    ///
    /// # Errors
    /// A descriptor cannot be set non-blocking, for which there is no known reason.
    pub fn new(
        child: Child,
        to: OwnedFd,
        from: Option<OwnedFd>,
        errors: Option<OwnedFd>,
    ) -> Result<Self> {
        let (from, errors) = (from.map(File::from), errors.map(File::from));
        let mut started = Self { child, to: to.into(), from, errors };
        if let Err(why) = started.set_nonblocking(true) {
            started.end();
            return Err(why);
        }
        Ok(started)
    }

    fn set_nonblocking(&self, nonblocking: bool) -> Result<()> {
        let all = [Some(&self.to), self.from.as_ref(), self.errors.as_ref()];
        let mut all = all.into_iter().flatten();
        Ok(all.try_for_each(|file| ioctl_fionbio(file, nonblocking))?)
    }
}

impl Read for Started {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.from.as_mut().unwrap_or(&mut self.to).read(buffer)
    }
}

impl Write for Started {
    fn write(&mut self, buffer: &[u8]) -> Result<usize> {
        // A node that has closed its socket must not end this process by SIGPIPE.
        match rustix::net::send(&self.to, buffer, SendFlags::NOSIGNAL) {
            Err(Errno::NOTSOCK) => self.to.write(buffer),
            sent => Ok(sent?),
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Process for Started {
    fn errors(&mut self) -> Option<&mut impl Read> {
        self.errors.as_mut()
    }

    fn begin(&mut self, host: &str) {
        let _ = self.set_nonblocking(false);
        let (Some(errors), host) = (self.errors.take(), host.to_owned()) else { return };
        let copy = move || {
            let mut lines = BufReader::new(errors);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
                let text = String::from_utf8_lossy(&line);
                proc::error_line!("{host}: {}", text.trim_end());
                line.clear();
            }
        };
        let _ = std::thread::Builder::new().spawn(copy);
    }

    fn status(&mut self) -> Option<i32> {
        self.child.try_wait().ok().flatten().map(|status| status.into_raw())
    }

    fn signal(&mut self, signal: i32) {
        if self.status().is_none() {
            // SAFETY: kill touches no memory. The PID still names the child, because it has not
            // been reaped.
            unsafe { libc::kill(self.child.id().cast_signed(), signal) };
        }
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl System<Started> for Signals {
    fn wait(&self, events: &[(&Started, Events)], limit: Duration) {
        let mut fds = Vec::new();
        for (process, events) in events {
            let from = process.from.as_ref().unwrap_or(&process.to);
            let wanted = [
                (events.input, Some(from), PollFlags::IN),
                (events.output, Some(&process.to), PollFlags::OUT),
                (events.errors, process.errors.as_ref(), PollFlags::IN),
            ];
            for (is_wanted, file, flags) in wanted {
                fds.extend(file.filter(|_| is_wanted).map(|file| PollFd::new(file, flags)));
            }
        }
        let nanoseconds = i64::from(limit.subsec_nanos());
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: nanoseconds };
        let _ = poll(&mut fds, Some(&limit));
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn pending(&self) -> Option<i32> {
        self.pending()
    }

    fn next(&self) -> (i32, bool) {
        self.next()
    }

    fn end_as(&self, status: i32) -> i32 {
        status::end_as(status)
    }
}
