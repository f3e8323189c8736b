//! The bell, by which another thread of the process ends a wait for messages.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use crate::window::Window;
use sync::futex;
use sync::mapped::Mapped;
use sync::ring::{Buffer, rouse};

/// A receiver that may sleep.
pub trait Sleeper: fmt::Debug + Send + Sync {
    /// Wakes the receiver if it sleeps. The caller has set the bell's flag before, and the receiver
    /// looks at the flag after it has announced its sleep; all accesses are sequentially
    /// consistent. If the buffer has a new owner by now, that one wakes without need.
    fn wake(&self);
}

/// Ends a wait of the receiver from another thread of its process:
/// [`Port::receive`](crate::port::Port::receive) returns without a message, now or the next time
/// that it would wait. It costs the receiver nothing while messages arrive.
#[derive(Debug, Clone)]
pub struct Bell {
    sleeper: Arc<dyn Sleeper>,
    rung: Arc<AtomicBool>,
    /// Keeps the buffer mapped.
    _window: Arc<Window>,
}

impl Bell {
    /// Returns the bell of a receiver in `window`. The receiver ends a wait when `rung` is set.
    pub fn new(
        sleeper: impl Sleeper + 'static,
        rung: Arc<AtomicBool>,
        window: Arc<Window>,
    ) -> Self {
        Self { sleeper: Arc::new(sleeper), rung, _window: window }
    }

    /// Ends the wait.
    pub fn ring(&self) {
        self.rung.store(true, SeqCst);
        self.sleeper.wake();
    }
}

/// The receiver of a ring.
#[derive(Debug)]
pub(crate) struct RingSleeper(pub Mapped);

impl Sleeper for RingSleeper {
    fn wake(&self) {
        if self.0.head().load(SeqCst) & 1 != 0 {
            rouse(&self.0);
            futex::wake(self.0.head());
        }
    }
}
