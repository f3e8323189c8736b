//! Pieces under loom: two copiers of one message, and one that is late. The destination may be
//! known to both, or be exposed by one of them.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p nagaya-sync --test pieces_model --release`.
#![cfg(loom)]

mod model;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::{Acquire, Release};
use loom::thread;
use model::{Wide, model};
use sync::pieces::{begin, claim, expose, exposed, finish, is_finished};

const PIECES: u32 = 2;

struct Model {
    claimed: Wide,
    copied: Wide,
    pieces: [UnsafeCell<u32>; PIECES as usize],
}

impl Model {
    fn new() -> Arc<Self> {
        let model = Self {
            claimed: Wide(AtomicU64::new(0)),
            copied: Wide(AtomicU64::new(0)),
            pieces: std::array::from_fn(|_| UnsafeCell::new(0)),
        };
        begin(&model.claimed, &model.copied, 1, 0);
        Arc::new(model)
    }

    /// Copies pieces of message `tag`. Returns true if one of them was the last.
    fn copy(&self, tag: u32) -> bool {
        let mut was_last = false;
        while let Some(piece) = claim(&self.claimed, tag, PIECES) {
            // SAFETY: loom checks that no other copier has this piece.
            self.pieces[piece as usize].with_mut(|piece| unsafe { *piece += 1 });
            was_last |= finish(&self.copied, tag, PIECES);
        }
        was_last
    }

    /// Waits for message `tag`, and checks that each piece was copied `times` times.
    fn check(&self, tag: u32, times: u32) {
        while !is_finished(&self.copied, tag, PIECES) {
            thread::yield_now();
        }
        for piece in &self.pieces {
            // SAFETY: loom checks that all copies are over.
            assert_eq!(piece.with(|piece| unsafe { *piece }), times);
        }
    }
}

#[test]
fn two_copiers_copy_each_piece_once() {
    model(3, || {
        let model = Model::new();
        let other = {
            let model = model.clone();
            thread::spawn(move || model.copy(1))
        };
        let was_last = model.copy(1);
        model.check(1, 1);
        assert!(was_last != other.join().unwrap());
    });
}

#[test]
fn a_late_copier_finds_no_piece_of_the_next_message() {
    model(3, || {
        let model = Model::new();
        let late = {
            let model = model.clone();
            thread::spawn(move || model.copy(1))
        };
        model.copy(1);
        model.check(1, 1);
        begin(&model.claimed, &model.copied, 2, 0);
        model.copy(2);
        model.check(2, 2);
        let _ = late.join().unwrap();
    });
}

/// An owner that exposes one buffer after the other, of one piece and of two.
struct Exposing {
    claimed: Wide,
    copied: Wide,
    /// The buffer, and its number of pieces.
    words: [Wide; 2],
    told: AtomicU64,
    buffers: [[UnsafeCell<u32>; 2]; 2],
}

impl Exposing {
    fn words(&self) -> [&Wide; 2] {
        [&self.words[0], &self.words[1]]
    }

    fn copy(&self, tag: u32, [buffer, pieces]: [u64; 2]) {
        while let Some(piece) = claim(&self.claimed, tag, pieces as u32) {
            let piece = &self.buffers[buffer as usize][piece as usize];
            // SAFETY: loom checks that no other thread uses this piece.
            piece.with_mut(|piece| unsafe { *piece += 1 });
            finish(&self.copied, tag, pieces as u32);
        }
    }
}

#[test]
fn a_late_helper_writes_only_into_the_buffer_that_it_was_told_of() {
    model(3, || {
        let model = Arc::new(Exposing {
            claimed: Wide(AtomicU64::new(0)),
            copied: Wide(AtomicU64::new(0)),
            words: std::array::from_fn(|_| Wide(AtomicU64::new(0))),
            told: AtomicU64::new(0),
            buffers: std::array::from_fn(|_| std::array::from_fn(|_| UnsafeCell::new(0))),
        });
        let helper = {
            let model = model.clone();
            thread::spawn(move || {
                let tag = model.told.load(Acquire) as u32;
                if tag != 0 {
                    model.copy(tag, exposed(model.words()));
                }
            })
        };
        for values @ [buffer, pieces] in [[0, 1], [1, 2]] {
            let tag = expose(&model.claimed, &model.copied, model.words(), values);
            model.told.store(tag.into(), Release);
            model.copy(tag, values);
            while !is_finished(&model.copied, tag, pieces as u32) {
                thread::yield_now();
            }
            for (number, piece) in model.buffers[buffer as usize].iter().enumerate() {
                // SAFETY: loom checks that nobody writes into the owner's buffer any more.
                let times = piece.with_mut(|piece| unsafe { std::mem::take(&mut *piece) });
                assert_eq!(times, u32::from((number as u64) < pieces));
            }
        }
        helper.join().unwrap();
    });
}
