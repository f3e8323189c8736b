//! Holds under loom: a task that works in another's memory, that other's end, and the
//! watcher, who gives memory and ID to the next. Beside the crate that uses them, since loom
//! is a matter of this one and of fcp.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p nagaya-delegate --test hold_model --release`.
#![cfg(loom)]

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::thread;
use pvas::hold::{Attempt, Word, any_holds, attempt};

/// A word that loom watches.
struct Watched(AtomicU64);

impl Word for Watched {
    fn set(&self, value: u64) -> bool {
        self.0.load(Relaxed) == 0 && self.0.compare_exchange(0, value, Relaxed, Relaxed).is_ok()
    }
    fn get(&self) -> u64 {
        self.0.load(Acquire)
    }
    fn clear(&self) {
        self.0.store(0, Release);
    }
    fn fence() {
        fence(SeqCst);
    }
}

/// Whom everybody wants to hold.
const VALUE: u64 = 5;

struct Model {
    words: [Watched; 2],
    /// How many of them were ever used.
    used: AtomicU32,
    pid: AtomicU32,
    /// The memory of the held task. Only one at a time may be in it.
    memory: UnsafeCell<u32>,
}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            words: std::array::from_fn(|_| Watched(AtomicU64::new(0))),
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
            match attempt(word, VALUE, || self.pid.load(Acquire) != 0) {
                Attempt::Held => {
                    // Two may be in it at once: that is theirs to agree on.
                    // SAFETY: loom checks that the next owner is not here.
                    self.memory.with(|memory| unsafe { memory.read() });
                    word.clear();
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
        if attempt(&self.words[0], VALUE, || self.pid.load(Acquire) != 0) != Attempt::Held {
            return;
        }
        self.raise(1);
        assert_eq!(attempt(&self.words[1], VALUE, || true), Attempt::Held);
        self.words[0].clear();
        // SAFETY: as above.
        self.memory.with(|memory| unsafe { memory.read() });
        self.words[1].clear();
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
fn nobody_is_in_memory_that_is_another_tasks() {
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
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
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
