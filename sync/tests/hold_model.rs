//! Holds under loom: a task that works in another task's memory, the end of that task, and the
//! watcher, which gives memory and ID to the next task.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p nagaya-sync --test hold_model --release`.
#![cfg(loom)]

mod model;

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::thread;
use model::Wide;
use sync::hold::{Attempt, any_holds, attempt, release};

/// The owner that all threads want to hold.
const VALUE: u64 = 5;

fn full_fence() {
    fence(SeqCst);
}

struct Model {
    words: [Wide; 2],
    /// How many of them were ever used.
    used: AtomicU32,
    pid: AtomicU32,
    /// The memory of the held task. Only one at a time may be in it.
    memory: UnsafeCell<u32>,
}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            words: std::array::from_fn(|_| Wide(AtomicU64::new(0))),
            used: AtomicU32::new(0),
            pid: AtomicU32::new(42),
            memory: UnsafeCell::new(0),
        })
    }

    /// Says that the word is in use, before it is.
    fn raise(&self, number: usize) {
        if self.used.load(Relaxed) as usize <= number {
            self.used.fetch_max(number as u32 + 1, SeqCst);
        }
    }

    /// Works in the memory, if it may. Threads of one task take the words in order.
    fn work(&self) {
        for (number, word) in self.words.iter().enumerate() {
            self.raise(number);
            match attempt(word, VALUE, full_fence, || self.pid.load(Acquire) != 0) {
                Attempt::Held => {
                    // Two may be in it at once: that is theirs to agree on.
                    // SAFETY: loom checks that the next owner is not here.
                    self.memory.with(|memory| unsafe { memory.read() });
                    release(word);
                    return;
                }
                Attempt::Busy => {}
                Attempt::Gone => return,
            }
        }
    }

    /// Works in it, and goes on when the first word is needed for others.
    fn work_on(&self) {
        self.raise(0);
        if attempt(&self.words[0], VALUE, full_fence, || self.pid.load(Acquire) != 0)
            != Attempt::Held
        {
            return;
        }
        self.raise(1);
        assert_eq!(attempt(&self.words[1], VALUE, full_fence, || true), Attempt::Held);
        release(&self.words[0]);
        // SAFETY: as above.
        self.memory.with(|memory| unsafe { memory.read() });
        release(&self.words[1]);
    }

    /// Whether somebody holds, as the watcher looks.
    fn is_held(&self) -> bool {
        fence(SeqCst);
        let used = |number: &usize| *number < self.used.load(SeqCst) as usize;
        any_holds((0..2).take_while(used).map(|number| &self.words[number]), VALUE)
    }

    /// The end; the memory is given to the next when nobody is in it.
    fn end(&self) {
        self.pid.store(0, Relaxed);
        while self.is_held() {
            thread::yield_now();
        }
        // SAFETY: loom checks that nobody else is here.
        self.memory.with_mut(|memory| unsafe { *memory += 1 });
    }
}

#[test]
fn no_task_holds_another_tasks_memory() {
    loom::model(|| {
        let model = Model::new();
        let worker = {
            let model = model.clone();
            thread::spawn(move || model.work())
        };
        model.end();
        worker.join().unwrap();
    });
}

#[test]
fn a_hold_that_moves_on_to_a_later_word_is_seen() {
    loom::model(|| {
        let model = Model::new();
        let worker = {
            let model = model.clone();
            thread::spawn(move || model.work_on())
        };
        model.end();
        worker.join().unwrap();
    });
}

#[test]
fn two_threads_hold_by_words_of_their_own() {
    model::model(3, || {
        let model = Model::new();
        let workers = [(); 2].map(|()| {
            let model = model.clone();
            thread::spawn(move || model.work())
        });
        model.end();
        for worker in workers {
            worker.join().unwrap();
        }
    });
}
