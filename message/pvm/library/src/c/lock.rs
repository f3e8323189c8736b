//! The library's lock: one for all, taken again by who has it (message handlers call PVM's
//! functions), and let go by a thread that waits for a message while others want it.

use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};

use fcp::bell::Bell;
use rustix::thread::futex;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody sleeps until it is free.
const WANTED: u32 = 2;

/// The lock.
pub struct Lock {
    word: AtomicU32,
    owner: AtomicUsize,
    /// How often its owner has taken it.
    depth: Cell<u32>,
    /// How many threads want it.
    wanted: AtomicU32,
    /// Ends the owner's wait for a message.
    bell: AtomicPtr<Bell>,
}

// SAFETY: `depth` is only used by the owner.
unsafe impl Sync for Lock {}

/// Which thread this is: never 0, and another's only after this one has ended.
#[inline]
pub fn this_thread() -> usize {
    // SAFETY: always safe.
    unsafe { libc::pthread_self() as usize }
}

impl Lock {
    /// A free one.
    pub const fn new() -> Lock {
        Lock {
            word: AtomicU32::new(FREE),
            owner: AtomicUsize::new(0),
            depth: Cell::new(0),
            wanted: AtomicU32::new(0),
            bell: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Takes it. Returns this thread.
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
                // SAFETY: bells are never freed.
                unsafe { (*bell).ring() };
            }
            let _ = futex::wait(&self.word, futex::Flags::PRIVATE, WANTED, None);
        }
        self.wanted.fetch_sub(1, SeqCst);
    }

    /// Gives it back, as often as it was taken.
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

    /// Whether its owner has taken it once only, so that giving it lets others in.
    pub fn is_shallow(&self) -> bool {
        self.depth.get() == 1
    }

    /// Whether other threads want it.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(SeqCst) != 0
    }

    /// Lets those in who want it; then has it again.
    #[cold]
    pub fn let_others(&self) {
        self.give();
        let mut naps = 0;
        while self.is_wanted() && naps < 200 {
            naps += 1;
            match naps {
                0..100 => std::thread::yield_now(),
                _ => std::thread::sleep(std::time::Duration::from_micros(50)),
            }
        }
        self.take();
    }

    /// What ends the owner's wait for a message, from now on.
    pub fn set_bell(&self, bell: Option<Bell>) {
        let bell = bell.map_or(std::ptr::null_mut(), |bell| Box::into_raw(Box::new(bell)));
        // Somebody may be about to ring the old one. A task enrolls seldom, so it stays.
        self.bell.store(bell, Release);
    }

    /// In a forked child, whose only thread had it: nobody else wants it.
    pub fn after_fork(&self) {
        self.wanted.store(0, Relaxed);
        self.bell.store(std::ptr::null_mut(), Relaxed);
        self.word.store(HELD, Relaxed);
    }
}
