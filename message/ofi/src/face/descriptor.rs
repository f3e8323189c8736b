//! Descriptors for programs that wait by poll(2).
//!
//! A descriptor is an eventfd(2). A thread for each queue or counter sleeps instead of the program,
//! and makes the descriptor readable when there is news. It does so once; fi_trywait(3) arms the
//! descriptor again. The thread makes no progress itself, since the program may have promised to
//! call from one thread at a time (FI_THREAD_DOMAIN).

use std::ffi::c_int;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use rustix::event::{EventfdFlags, eventfd};
use sync::doorbell::Doorbell;
use sync::wait::DOUBT;

/// An eventfd that threads make readable.
#[derive(Debug)]
pub struct Descriptor {
    event: OwnedFd,
    /// The next news makes it readable.
    is_armed: AtomicBool,
}

/// A thread that watches one queue or counter. The thread ends after this is dropped.
#[derive(Debug)]
pub struct Watcher(Arc<AtomicBool>);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.store(true, Release);
    }
}

impl Descriptor {
    /// Makes an armed descriptor. Returns `None` if the process has too many descriptors.
    pub fn new() -> Option<Arc<Self>> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
        Some(Arc::new(Self { event, is_armed: AtomicBool::new(true) }))
    }

    /// Returns its number.
    pub fn number(&self) -> c_int {
        self.event.as_raw_fd()
    }

    /// Starts a thread that makes the descriptor readable when `has_news` returns true. The thread
    /// calls `has_news` whenever the doorbell of `domain` rings. Returns `None` if no thread can be
    /// started.
    pub fn watch<Domain: Send + Sync + 'static>(
        self: &Arc<Self>,
        domain: &Arc<Domain>,
        doorbell: fn(&Domain) -> &Doorbell,
        has_news: impl Fn() -> bool + Send + 'static,
    ) -> Option<Watcher> {
        let stop = Arc::new(AtomicBool::new(false));
        let watcher = Watcher(stop.clone());
        let (domain, descriptor) = (domain.clone(), self.clone());
        let watch = move || {
            let bell = doorbell(&domain);
            while !stop.load(Acquire) {
                let rings = bell.about_to_sleep();
                if descriptor.is_armed.load(Acquire) && has_news() {
                    descriptor.is_armed.store(false, Release);
                    let _ = rustix::io::write(&descriptor.event, &1u64.to_ne_bytes());
                    continue;
                }
                bell.sleep(rings, DOUBT);
            }
        };
        let thread = std::thread::Builder::new().name("nagaya-fi".to_owned());
        thread.spawn(watch).ok().map(|_| watcher)
    }

    /// Makes it unreadable until there is news. Afterwards the caller rings the doorbells of the
    /// threads that watch, and checks for news itself.
    pub fn arm(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.event, &mut count);
        self.is_armed.swap(true, AcqRel);
    }
}
