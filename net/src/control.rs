//! A node's way to whoever has started it: how it begins goes by it, and when it is cut the node
//! ends, so that nothing is left of a job whose starter, or whose ssh, has gone.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::talk::{self, Answer, Kind};

/// How long the agent may take to tell the others.
const TELL_MAX: Duration = Duration::from_secs(2);

/// The way was cut.
static CUT: AtomicBool = AtomicBool::new(false);

/// The way's two directions.
#[derive(Debug)]
pub struct Control {
    /// Until it is watched.
    from: Option<File>,
    to: File,
}

impl Control {
    /// By a socket.
    pub fn socket(socket: OwnedFd) -> std::io::Result<Self> {
        let to = File::from(socket.try_clone()?);
        Ok(Self { from: Some(File::from(socket)), to })
    }

    /// By standard input and output, as of what ssh starts.
    ///
    /// # Safety
    /// Nobody else uses them from now on.
    pub unsafe fn standard() -> Self {
        // SAFETY: as the caller says.
        unsafe { Self { from: Some(File::from_raw_fd(0)), to: File::from_raw_fd(1) } }
    }

    /// Its descriptors.
    pub fn numbers(&self) -> Vec<RawFd> {
        self.from.iter().chain([&self.to]).map(|it| it.as_raw_fd()).collect()
    }

    /// Says what this is a node of.
    pub fn greet(&mut self, kind: Kind) -> Result<(), String> {
        kind.greet(&mut self.to).map_err(silent)
    }

    /// What is said next.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        let from = self.from.as_mut().ok_or("nothing more is said")?;
        talk::hear(from).map_err(silent)
    }

    /// Answers.
    pub fn answer<T: Serialize>(&mut self, answer: Answer<T>) -> Result<(), String> {
        talk::say(&mut self.to, &answer).map_err(silent)
    }

    /// From now on nothing more is heard. Ends the process when the way is cut: the agent, if it
    /// can, which is woken by its bell.
    pub fn watch(&mut self, bell: &OwnedFd) -> std::io::Result<()> {
        let Some(mut from) = self.from.take() else { return Ok(()) };
        let bell = bell.try_clone()?;
        let thread = std::thread::Builder::new().name("nagaya-control".into());
        thread.spawn(move || {
            while from.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
            CUT.store(true, Ordering::SeqCst);
            let _ = rustix::io::write(&bell, &1u64.to_ne_bytes());
            std::thread::sleep(TELL_MAX);
            // SAFETY: ends the process.
            unsafe { libc::_exit(1) }
        })?;
        Ok(())
    }
}

/// Whether who has started this node is gone.
pub fn is_cut() -> bool {
    CUT.load(Ordering::Relaxed)
}

fn silent(why: std::io::Error) -> String {
    format!("no message from the process that starts the nodes: {why}")
}
