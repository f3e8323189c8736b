//! The library's lock. It is recursive, since message handlers call PVM's functions. A thread that
//! waits for a message releases it while other threads want it.

use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};
use std::time::{Duration, Instant};

use fcp::bell::Bell;
use rustix::thread::futex;
use sync::wait::Backoff;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread sleeps until it is free.
const WANTED: u32 = 2;

/// Longest time for which the owner leaves the lock to others. They may be stopped.
const OTHERS_MAX: Duration = Duration::from_millis(5);

/// The lock.
pub struct Lock {
    word: AtomicU32,
    owner: AtomicUsize,
    /// Number of times that its owner has acquired it.
    depth: Cell<u32>,
    /// Number of threads that want it.
    wanted: AtomicU32,
    /// Ends the owner's wait for a message.
    bell: AtomicPtr<Bell>,
}

// SAFETY: only the owner accesses `depth`; all other fields are atomics.
unsafe impl Sync for Lock {}

/// Returns this thread's ID. It is never 0, and is reused only after the thread has ended.
#[inline]
pub fn this_thread() -> usize {
    // SAFETY: pthread_self has no preconditions.
    unsafe { libc::pthread_self() as usize }
}

impl Lock {
    /// Returns a free lock.
    pub const fn new() -> Lock {
        Lock {
            word: AtomicU32::new(FREE),
            owner: AtomicUsize::new(0),
            depth: Cell::new(0),
            wanted: AtomicU32::new(0),
            bell: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Acquires it. Returns this thread's ID.
    #[inline]
    pub fn take(&self) -> usize {
        let this = this_thread();
        if self.owner.load(Relaxed) == this {
            self.depth.set(self.depth.get() + 1);
            return this;
        }
        if self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            self.take_slowly();
        }
        self.owner.store(this, Relaxed);
        self.depth.set(1);
        this
    }

    #[cold]
    fn take_slowly(&self) {
        self.wanted.fetch_add(1, SeqCst);
        while self.word.swap(WANTED, Acquire) != FREE {
            let bell = self.bell.load(Acquire);
            if !bell.is_null() {
                // SAFETY: `set_bell` leaks each bell, so it is never freed.
                unsafe { (*bell).ring() };
            }
            let _ = futex::wait(&self.word, futex::Flags::PRIVATE, WANTED, None);
        }
        self.wanted.fetch_sub(1, SeqCst);
    }

    /// Releases it once; it is free after as many releases as acquisitions.
    #[inline]
    pub fn give(&self) {
        let depth = self.depth.get() - 1;
        self.depth.set(depth);
        if depth == 0 {
            self.owner.store(0, Relaxed);
            if self.word.swap(FREE, Release) == WANTED {
                let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
            }
        }
    }

    /// Returns true if its owner has acquired it only once, so that a release frees it.
    pub fn is_shallow(&self) -> bool {
        self.depth.get() == 1
    }

    /// Returns true if other threads want it.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(SeqCst) != 0
    }

    /// Releases it for the threads that want it, and acquires it again.
    #[cold]
    pub fn let_others(&self) {
        self.give();
        let until = Instant::now() + OTHERS_MAX;
        let mut backoff = Backoff::default();
        while self.is_wanted() && Instant::now() < until {
            backoff.pause();
        }
        self.take();
    }

    /// Sets the wake-up that ends the owner's wait for a message.
    pub fn set_bell(&self, bell: Option<Bell>) {
        let bell = bell.map_or(std::ptr::null_mut(), |bell| Box::into_raw(Box::new(bell)));
        // Another thread may be using the old one, so it is leaked. A task seldom enrolls.
        self.bell.store(bell, Release);
    }

    /// Resets it in a forked child, whose only thread held it.
    pub fn after_fork(&self) {
        self.wanted.store(0, Relaxed);
        self.bell.store(std::ptr::null_mut(), Relaxed);
        self.word.store(HELD, Relaxed);
    }
}
