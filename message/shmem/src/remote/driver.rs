//! Waiting threads of a node's first PE that drive the node's agent.
//!
//! Otherwise each message for which such a thread waits would first wake the agent's thread, which
//! would then wake the waiting one. While others drive the agent, its own thread is *parked*: it
//! looks only from time to time whether they still do.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// An agent.
pub trait Drive: Send {
    /// Takes a limited number of the events that are there. Returns true if there were any.
    fn take_events(&mut self) -> bool;

    /// Prepares the descriptor on which the agent's thread sleeps. Returns false if there may be
    /// events.
    fn arm(&mut self) -> bool;
}

/// The agent, and the descriptor that wakes its thread.
struct Installed {
    agent: &'static Mutex<dyn Drive>,
    wakes: &'static OwnedFd,
}

impl Installed {
    /// Wakes the agent's thread.
    fn wake(&self) {
        let _ = rustix::io::write(self.wakes, &1_u64.to_ne_bytes());
    }
}

static INSTALLED: OnceLock<Installed> = OnceLock::new();
/// Counts the looks of the threads that drive the agent.
static LOOKS: AtomicU64 = AtomicU64::new(0);
/// The value of `LOOKS` when such a thread last went to sleep.
static RESTED: AtomicU64 = AtomicU64::new(0);
/// The agent's thread is parked.
static IS_PARKED: AtomicBool = AtomicBool::new(false);

/// Lets waiting threads drive the agent of this process.
pub fn install(agent: &'static Mutex<dyn Drive>, wakes: &'static OwnedFd) {
    let _ = INSTALLED.set(Installed { agent, wakes });
}

/// A wait of a thread, which may drive the agent.
#[derive(Debug, Default)]
pub struct Driver {
    drives: bool,
}

impl Driver {
    /// Takes some of the agent's events, unless another thread does so. Returns true if there were
    /// any. The caller must hold no lock that the end of the job may need.
    pub fn drive(&mut self) -> bool {
        let Some(installed) = INSTALLED.get() else { return false };
        self.drives = true;
        LOOKS.fetch_add(1, SeqCst);
        try_locked(installed).is_some_and(|mut agent| agent.take_events())
    }

    /// Ends the driving before a sleep: the agent's thread must serve messages from now on.
    pub fn rest(&mut self) {
        let Some(installed) = INSTALLED.get().filter(|_| self.drives) else { return };
        RESTED.store(LOOKS.load(SeqCst), SeqCst);
        self.end();
        if IS_PARKED.swap(false, SeqCst) {
            installed.wake();
        }
    }

    fn end(&mut self) {
        let drove = std::mem::take(&mut self.drives);
        // A thread that has the agent, or is parked, will prepare the descriptor itself.
        if let Some(installed) = INSTALLED.get().filter(|_| drove && !IS_PARKED.load(SeqCst))
            && let Some(mut agent) = try_locked(installed)
            && !agent.arm()
        {
            // Others may send without end, and this wait is over.
            installed.wake();
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.end();
    }
}

fn try_locked(installed: &Installed) -> Option<MutexGuard<'static, dyn Drive + 'static>> {
    installed.agent.try_lock().ok()
}

/// The view of the agent's thread.
#[derive(Debug, Default)]
pub struct Parking {
    /// The value of `LOOKS` at the last call of `is_driven`.
    looks: u64,
}

impl Parking {
    /// Returns true if others have driven the agent since the last call.
    pub fn is_driven(&mut self) -> bool {
        let before = std::mem::replace(&mut self.looks, LOOKS.load(SeqCst));
        self.looks != before && self.looks != RESTED.load(SeqCst)
    }

    /// Begins to park: the thread then sleeps for a while, or until it is woken.
    pub fn begin(&self) {
        IS_PARKED.store(true, SeqCst);
    }

    /// Ends the parking. Returns false if a thread that drove the agent has gone to sleep.
    pub fn end(&self) -> bool {
        IS_PARKED.swap(false, SeqCst)
    }
}
