//! Callers of a daemon's TCP port that have not proved yet that they hold the ticket (call.rs).
//!
//! Anybody on the network can connect. So nothing waits for one caller: all are read at the same
//! time, each has one deadline for its whole first line, and their number and the bytes that they
//! may send are bounded. If there are too many, the longest connected one is closed. A daemon
//! with a ticket sends its line at once, so it is not the one that waits longest.

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Most callers at a time.
pub(crate) const CALLERS_MAX: usize = 32;
/// Time limit for a caller's first line, from its connection on.
const LINE_TIMEOUT: Duration = Duration::from_secs(2);
/// Most bytes of a first line; a hello has about 120.
const LINE_MAX: usize = 512;
/// Pause after a connection could not be accepted, probably for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A connection, and the part of its first line that has arrived.
struct Caller {
    stream: TcpStream,
    line: Vec<u8>,
    deadline: Instant,
}

/// The state of a caller after a read.
enum Progress {
    /// The line is not complete.
    Waits,
    /// The line is complete.
    Sent(String),
    /// The connection ended, or sent something else than a line.
    Failed,
}

/// The callers whose first line is not complete, the longest connected one first.
#[derive(Default)]
pub(crate) struct Callers {
    callers: Vec<Caller>,
}

impl Callers {
    /// Waits for at most `interval`, and accepts and reads callers. Returns those whose first line
    /// is complete, with the line. `listener` does not block.
    pub(crate) fn next(
        &mut self,
        listener: &TcpListener,
        interval: &Timespec,
    ) -> Vec<(TcpStream, String)> {
        let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
        fds.extend(self.callers.iter().map(|it| PollFd::new(&it.stream, PollFlags::IN)));
        // After an error or a signal all are tried; none blocks.
        let _ = poll(&mut fds, Some(interval));
        drop(fds);
        let mut sent = Vec::new();
        self.read(&mut sent);
        // A part at a time, so that those who have connected are read between.
        for _ in 0..CALLERS_MAX {
            match listener.accept() {
                Ok((stream, _)) => self.add(stream, &mut sent),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // A connection that ended before it was accepted.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    std::thread::sleep(ACCEPT_PAUSE);
                    break;
                }
            }
        }
        sent
    }

    fn add(&mut self, stream: TcpStream, sent: &mut Vec<(TcpStream, String)>) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        let deadline = Instant::now() + LINE_TIMEOUT;
        let mut caller = Caller { stream, line: Vec::new(), deadline };
        match caller.read() {
            Progress::Sent(line) => sent.push((caller.stream, line)),
            Progress::Failed => {}
            Progress::Waits => {
                if self.callers.len() >= CALLERS_MAX {
                    self.callers.remove(0);
                }
                self.callers.push(caller);
            }
        }
        debug_assert!(self.callers.len() <= CALLERS_MAX);
    }

    /// Reads the bytes of all callers, and closes callers that are late or that failed.
    fn read(&mut self, sent: &mut Vec<(TcpStream, String)>) {
        let now = Instant::now();
        let callers = std::mem::take(&mut self.callers);
        for mut caller in callers {
            match caller.read() {
                Progress::Waits if now < caller.deadline => self.callers.push(caller),
                Progress::Waits | Progress::Failed => {}
                Progress::Sent(line) => sent.push((caller.stream, line)),
            }
        }
    }
}

impl Caller {
    fn read(&mut self) -> Progress {
        let mut bytes = [0; LINE_MAX];
        loop {
            match self.stream.read(&mut bytes[..LINE_MAX - self.line.len()]) {
                Ok(0) => return Progress::Failed,
                Ok(count) => self.line.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Waits,
                Err(_) => return Progress::Failed,
            }
            match self.line.iter().position(|&byte| byte == b'\n') {
                // It must wait for the answer before it sends more.
                Some(end) if end + 1 < self.line.len() => return Progress::Failed,
                Some(_) => {
                    let line = String::from_utf8(std::mem::take(&mut self.line));
                    return line.map_or(Progress::Failed, Progress::Sent);
                }
                None if self.line.len() == LINE_MAX => return Progress::Failed,
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

    fn listener() -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("it cannot fail");
        listener
    }

    fn connect(listener: &TcpListener) -> TcpStream {
        TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens")
    }

    #[test]
    fn a_further_silent_caller_closes_the_oldest() {
        let listener = listener();
        let mut callers = Callers::default();
        let mut all = Vec::new();
        for _ in 0..CALLERS_MAX + 5 {
            all.push(connect(&listener));
            while callers.callers.last().is_none_or(|last| {
                let last = last.stream.peer_addr().expect("it is connected");
                last != all.last().expect("one").local_addr().expect("it is connected")
            }) {
                assert!(callers.next(&listener, &INTERVAL).is_empty());
            }
        }
        assert_eq!(callers.callers.len(), CALLERS_MAX);
        for closed in &mut all[..5] {
            assert_eq!(closed.read(&mut [0]).expect("an end"), 0);
        }
    }

    #[test]
    fn only_one_short_line_of_text_is_a_first_line() {
        let listener = listener();
        for bad in [&b"a line\nand more"[..], &[b'x'; LINE_MAX], b"\xff\xff\n"] {
            let mut callers = Callers::default();
            let mut caller = connect(&listener);
            caller.write_all(bad).expect("it has room");
            caller.set_nonblocking(true).expect("it cannot fail");
            let mut byte = [0];
            // The end of a connection with unread bytes is a reset.
            while let Err(error) = caller.read(&mut byte) {
                if error.kind() != ErrorKind::WouldBlock {
                    break;
                }
                assert!(callers.next(&listener, &INTERVAL).is_empty(), "{bad:?}");
            }
        }
    }
}
