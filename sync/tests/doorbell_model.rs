//! The doorbell under loom: one who sleeps for two things, brought by two who ring.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p nagaya-sync --test doorbell_model --release`.
#![cfg(loom)]

mod model;

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use loom::sync::atomic::{AtomicU32, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use model::Small;
use sync::doorbell::{about_to_sleep, ring};
use sync::word::Word32;

/// A doorbell, a futex, and the things.
struct Model {
    rings: Small,
    sleepers: Small,
    things: [AtomicU32; 2],
    kernel: Mutex<()>,
    woken: Condvar,
}

impl Model {
    fn bring(&self, thing: usize) {
        self.things[thing].store(1, Relaxed);
        if ring(&self.rings, &self.sleepers, || fence(SeqCst)) {
            let _guard = self.kernel.lock().unwrap();
            self.woken.notify_all();
        }
    }

    /// Sleeps until the thing is there; nothing but a wake-up ends a sleep.
    fn wait_for(&self, thing: usize) {
        loop {
            let rings = about_to_sleep(&self.rings, &self.sleepers, || fence(SeqCst));
            if self.things[thing].load(Relaxed) == 1 {
                return;
            }
            let guard = self.kernel.lock().unwrap();
            if self.rings.load(SeqCst) == rings {
                drop(self.woken.wait(guard).unwrap());
            }
        }
    }
}

#[test]
fn every_arrival_wakes_a_sleeping_waiter() {
    model::model(3, || {
        let model = Arc::new(Model {
            rings: Small(AtomicU32::new(0)),
            sleepers: Small(AtomicU32::new(0)),
            things: std::array::from_fn(|_| AtomicU32::new(0)),
            kernel: Mutex::new(()),
            woken: Condvar::new(),
        });
        let ringers = [0, 1].map(|thing| {
            let model = model.clone();
            thread::spawn(move || model.bring(thing))
        });
        for thing in [0, 1] {
            model.wait_for(thing);
        }
        for ringer in ringers {
            ringer.join().unwrap();
        }
    });
}
