//! Progress of work that takes longer than two seconds: lines on standard error.
//!
//! They are written if standard error is a terminal. `NAGAYA_PROGRESS=1` or `0` decides for other
//! places.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::stdio::stderr;
use rustix::termios::isatty;

/// Work that takes longer than this reports its progress.
const AFTER: Duration = Duration::from_secs(2);
/// Time between two reports.
const INTERVAL: Duration = Duration::from_secs(5);

/// Work that reports its progress until it is dropped.
pub struct Progress {
    state: Arc<Mutex<String>>,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Starts to report for the command `nagaya NAME`, which begins with `first`.
    pub fn start(name: &'static str, first: impl Into<String>) -> Self {
        let state = Arc::new(Mutex::new(first.into()));
        let (end, ended) = channel();
        let shown = state.clone();
        let begin = Instant::now();
        let write = move || {
            let state = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let seconds = begin.elapsed().as_secs();
            proc::error_line!("nagaya: {name}: {state} ({seconds} s)");
        };
        let report = move || {
            let mut pause = AFTER;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = INTERVAL;
                write();
            }
            // The process may have been stopped, and its work done since.
            if pause == AFTER && begin.elapsed() > AFTER {
                write();
            }
        };
        // Without a thread the work is done in silence.
        let thread = is_wanted().then(|| thread::Builder::new().spawn(report).ok()).flatten();
        Self { state, end: Some(end), thread }
    }

    /// Sets the present step: the next report shows it.
    pub fn set(&self, state: impl Into<String>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state.into();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn is_wanted() -> bool {
    match std::env::var("NAGAYA_PROGRESS").as_deref() {
        Ok("1") => true,
        Ok("0") => false,
        _ => isatty(stderr()),
    }
}
