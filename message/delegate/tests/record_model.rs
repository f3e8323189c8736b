//! The record under loom: a requester that looks and sleeps, and the answer.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p nagaya-delegate --test record_model --release`.
#![cfg(loom)]

#[path = "../../../sync/tests/model/mod.rs"]
mod model;

use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use model::Small;
use pvas_delegate::record::{about_to_sleep, finish, is_done};
use sync::word::Word32;

/// A record whose result loom watches for races, and a futex.
struct Model {
    state: Small,
    result: UnsafeCell<u32>,
    sleepers: Mutex<()>,
    woken: Condvar,
}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Small(AtomicU32::new(0)),
            result: UnsafeCell::new(0),
            sleepers: Mutex::new(()),
            woken: Condvar::new(),
        })
    }

    /// FUTEX_WAIT, which nothing but a wake-up ends.
    fn wait(&self, expected: u32) {
        let guard = self.sleepers.lock().unwrap();
        if self.state.load(Ordering::SeqCst) == expected {
            drop(self.woken.wait(guard).unwrap());
        }
    }

    fn answer(&self) {
        // SAFETY: loom checks that nobody else is here.
        self.result.with_mut(|result| unsafe { *result = 7 });
        if finish(&self.state) {
            let _guard = self.sleepers.lock().unwrap();
            self.woken.notify_all();
        }
    }
}

#[test]
fn an_answer_is_seen_and_wakes_who_sleeps() {
    loom::model(|| {
        let model = Model::new();
        let delegatee = {
            let model = model.clone();
            thread::spawn(move || model.answer())
        };
        while !is_done(&model.state) {
            if let Some(state) = about_to_sleep(&model.state) {
                model.wait(state);
            }
        }
        // SAFETY: as above.
        assert_eq!(model.result.with(|result| unsafe { *result }), 7);
        delegatee.join().unwrap();
    });
}

/// It gives up a wait, and waits again.
#[test]
fn a_second_wait_sleeps_as_the_first() {
    loom::model(|| {
        let model = Model::new();
        let delegatee = {
            let model = model.clone();
            thread::spawn(move || model.answer())
        };
        about_to_sleep(&model.state); // the time is over before it sleeps
        while let Some(state) = about_to_sleep(&model.state) {
            model.wait(state);
        }
        assert!(is_done(&model.state));
        // SAFETY: as above.
        assert_eq!(model.result.with(|result| unsafe { *result }), 7);
        delegatee.join().unwrap();
    });
}
