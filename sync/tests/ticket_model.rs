//! The ticket under loom: a waiter that polls and sleeps, and the end of its request.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p nagaya-sync --test ticket_model --release`.
#![cfg(loom)]

mod model;

use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use model::Small;
use sync::ticket::{about_to_sleep, finish, is_done};
use sync::word::Word32;

/// A ticket, the result that it stands for, and a futex.
struct Model {
    word: Small,
    result: UnsafeCell<u32>,
    sleepers: Mutex<()>,
    woken: Condvar,
}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: Small(AtomicU32::new(0)),
            result: UnsafeCell::new(0),
            sleepers: Mutex::new(()),
            woken: Condvar::new(),
        })
    }

    /// FUTEX_WAIT without spurious wake-ups.
    fn wait(&self, expected: u32) {
        let guard = self.sleepers.lock().unwrap();
        if self.word.load(Ordering::SeqCst) == expected {
            drop(self.woken.wait(guard).unwrap());
        }
    }

    fn end(&self) {
        // SAFETY: loom checks that the waiter does not read yet.
        self.result.with_mut(|result| unsafe { *result = 7 });
        if finish(&self.word) {
            let _guard = self.sleepers.lock().unwrap();
            self.woken.notify_all();
        }
    }
}

#[test]
fn the_end_of_a_request_wakes_its_waiter() {
    loom::model(|| {
        let model = Model::new();
        let other = {
            let model = model.clone();
            thread::spawn(move || model.end())
        };
        while !is_done(&model.word) {
            if let Some(word) = about_to_sleep(&model.word) {
                model.wait(word);
            }
        }
        // SAFETY: loom checks that the other side has finished its write.
        assert_eq!(model.result.with(|result| unsafe { *result }), 7);
        other.join().unwrap();
    });
}

/// The waiter gives up one wait, and waits again.
#[test]
fn a_waiter_may_sleep_twice() {
    loom::model(|| {
        let model = Model::new();
        let other = {
            let model = model.clone();
            thread::spawn(move || model.end())
        };
        about_to_sleep(&model.word); // the time is over before the sleep
        while let Some(word) = about_to_sleep(&model.word) {
            model.wait(word);
        }
        assert!(is_done(&model.word));
        // SAFETY: loom checks that the other side has finished its write.
        assert_eq!(model.result.with(|result| unsafe { *result }), 7);
        other.join().unwrap();
    });
}
