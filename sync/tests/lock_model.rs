//! The lock under loom: owners that exclude each other, sleep, and die with the lock.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p nagaya-sync --test lock_model --release`.
#![cfg(loom)]

mod model;

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU64};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use model::{Wide, model};
use sync::lock::{self, Attempt, Owner};
use sync::word::Word64;

/// A lock, the state that it protects, and a futex. Owners may die.
struct Locked {
    word: Wide,
    /// Two equal numbers, unless a change is under way.
    state: UnsafeCell<(u32, u32)>,
    dead: [AtomicBool; 3],
    sleepers: Mutex<()>,
    woken: Condvar,
}

fn owner(index: u16) -> Owner {
    Owner { index, generation: 9 }
}

impl Locked {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: Wide(AtomicU64::new(0)),
            state: UnsafeCell::new((0, 0)),
            dead: [false; 3].map(AtomicBool::new),
            sleepers: Mutex::new(()),
            woken: Condvar::new(),
        })
    }

    fn is_dead(&self, owner: Owner) -> bool {
        self.dead[usize::from(owner.index)].load(SeqCst)
    }

    /// Sleeps until the word changes or its holder dies, which a sleeper checks by and by.
    fn sleep(&self, marked: u64, holder: Owner) {
        let guard = self.sleepers.lock().expect("no panic while held");
        if self.word.load(SeqCst) as u32 == marked as u32 && !self.is_dead(holder) {
            drop(self.woken.wait(guard).expect("no panic while held"));
        }
    }

    fn wake_one(&self) {
        let _guard = self.sleepers.lock().expect("no panic while held");
        self.woken.notify_one();
    }

    /// Takes the lock, as `Lock::take` does. Returns true if the state is in doubt.
    fn lock(&self, me: u16) -> bool {
        let mut has_slept = false;
        loop {
            let (holder, seen) = match lock::attempt(&self.word, owner(me), has_slept) {
                Attempt::Taken(doubt) => return doubt,
                Attempt::Held(holder, seen) => (holder, seen),
            };
            if self.is_dead(holder) && lock::inherit(&self.word, owner(me), seen) {
                return true;
            }
            if let Some(marked) = lock::about_to_sleep(&self.word, seen) {
                self.sleep(marked, holder);
                has_slept = true;
            }
        }
    }

    /// Takes the lock, repairs the state and counts up. Returns true if it was in doubt.
    fn turn(&self, me: u16) -> bool {
        let doubt = self.lock(me);
        self.state.with_mut(|state| {
            // SAFETY: loom checks that no other owner is in the lock.
            let (first, second) = unsafe { &mut *state };
            assert!(doubt || first == second, "half changed, and not in doubt");
            *first += 1;
            *second = *first;
        });
        if lock::release(&self.word, owner(me), false) {
            self.wake_one();
        }
        doubt
    }

    /// As `turn`, but dies in the middle of the change.
    fn die_in_turn(&self, me: u16) {
        self.lock(me);
        // SAFETY: loom checks that no other owner is in the lock.
        self.state.with_mut(|state| unsafe { (*state).0 += 1 });
        self.dead[usize::from(me)].store(true, SeqCst);
        let _guard = self.sleepers.lock().expect("no panic while held");
        self.woken.notify_all();
    }
}

#[test]
fn a_lock_excludes_and_wakes_sleepers() {
    model(2, || {
        let locked = Locked::new();
        let others: Vec<_> = (1..3)
            .map(|me| {
                let locked = locked.clone();
                thread::spawn(move || assert!(!locked.turn(me)))
            })
            .collect();
        assert!(!locked.turn(0));
        for other in others {
            other.join().unwrap();
        }
        // SAFETY: the others have ended.
        assert_eq!(locked.state.with(|state| unsafe { *state }), (3, 3));
        assert_eq!(locked.word.load(Relaxed), 0);
    });
}

#[test]
fn the_lock_of_a_dead_owner_is_inherited_once_and_in_doubt() {
    model(2, || {
        let locked = Locked::new();
        let dies = {
            let locked = locked.clone();
            thread::spawn(move || locked.die_in_turn(0))
        };
        let other = {
            let locked = locked.clone();
            thread::spawn(move || locked.turn(1))
        };
        let mut doubts = u32::from(locked.turn(2)) + u32::from(other.join().unwrap());
        dies.join().unwrap();
        doubts += u32::from(locked.turn(1));
        assert_eq!(doubts, 1);
    });
}
