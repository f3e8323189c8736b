//! A node's end of its control channel. The node begins by messages over it. It ends when the
//! channel is closed, so a job leaves no node behind when its starter, or its ssh, has ended.

use std::fs::File;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::messages::{self, Answer, Ended, Kind};

/// Time that the agent may take to notify the other nodes.
const TELL_MAX: Duration = Duration::from_secs(2);

/// The channel was closed.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// The ended nodes that the starter has reported.
static ENDED: Mutex<Vec<Ended>> = Mutex::new(Vec::new());
/// Signalled when a node is added to [`ENDED`].
static ENDED_GREW: Condvar = Condvar::new();

/// A node's end of its control channel.
#[derive(Debug)]
pub struct Control {
    /// The reading end, until [`Control::watch`] takes it.
    from: Option<File>,
    to: File,
}

impl Control {
    /// Returns the control channel over a socket.
    ///
    /// # Errors
    /// The descriptor cannot be duplicated (EMFILE).
    pub fn socket(socket: OwnedFd) -> std::io::Result<Self> {
        let to = File::from(socket.try_clone()?);
        Ok(Self { from: Some(File::from(socket)), to })
    }

    /// Returns the control channel over standard input and output, for a node that ssh has started.
    ///
    /// # Safety
    /// No other code of the process uses descriptors 0 and 1 from now on.
    pub unsafe fn standard() -> Self {
        // SAFETY: by this function's contract no other code uses descriptors 0 and 1, so each has
        // one owner.
        unsafe { Self { from: Some(File::from_raw_fd(0)), to: File::from_raw_fd(1) } }
    }

    /// Returns the descriptors of the channel.
    pub fn numbers(&self) -> Vec<RawFd> {
        self.from.iter().chain([&self.to]).map(|it| it.as_raw_fd()).collect()
    }

    /// Sends the greeting.
    ///
    /// # Errors
    /// The channel is closed.
    pub fn greet(&mut self, kind: Kind) -> Result<(), String> {
        kind.greet(&mut self.to).map_err(silent)
    }

    /// Receives the next message.
    ///
    /// # Errors
    /// The channel is closed or watched, or the bytes are no such message.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        let from = self.from.as_mut().ok_or("the control channel takes no more messages")?;
        messages::receive(from).map_err(silent)
    }

    /// Sends an answer.
    ///
    /// # Errors
    /// The channel is closed.
    pub fn answer<T: Serialize>(&mut self, answer: Answer<T>) -> Result<(), String> {
        messages::send(&mut self.to, &answer).map_err(silent)
    }

    /// Starts a thread that receives the starter's notices from now on ([`wait_status`]). When the
    /// channel is closed, the thread wakes the agent by its eventfd `bell`, so that the agent ends
    /// the process. If the agent does not do so within 2 s, the thread ends the process.
    ///
    /// # Errors
    /// No descriptor or no thread is left (EMFILE, EAGAIN).
    pub fn watch(&mut self, bell: &OwnedFd) -> std::io::Result<()> {
        let Some(mut from) = self.from.take() else { return Ok(()) };
        let bell = bell.try_clone()?;
        let thread = std::thread::Builder::new().name("nagaya-control".into());
        thread.spawn(move || {
            while let Ok(ended) = messages::receive::<Ended>(&mut from) {
                ENDED.lock().unwrap_or_else(PoisonError::into_inner).push(ended);
                ENDED_GREW.notify_all();
            }
            CLOSED.store(true, Ordering::SeqCst);
            let _ = rustix::io::write(&bell, &1u64.to_ne_bytes());
            std::thread::sleep(TELL_MAX);
            // SAFETY: _exit touches no memory; nothing runs after it.
            unsafe { libc::_exit(1) }
        })?;
        Ok(())
    }
}

/// Returns true if the process that started this node has ended.
pub fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Returns the wait status of a node's process if the starter reports it within `limit`.
pub fn wait_status(node: u32, limit: Duration) -> Option<i32> {
    let find = |all: &[Ended]| all.iter().find(|it| it.node == node).map(|it| it.status);
    let all = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = ENDED_GREW.wait_timeout_while(all, limit, |all| find(all).is_none());
    let (all, _) = waited.unwrap_or_else(PoisonError::into_inner);
    find(&all)
}

fn silent(why: std::io::Error) -> String {
    format!("no message from the process that starts the nodes: {why}")
}
