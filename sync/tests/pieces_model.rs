//! Pieces under loom: two copiers of one message, and one that is late.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p nagaya-sync --test pieces_model --release`.
#![cfg(loom)]

mod model;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use model::{Wide, model};
use sync::pieces::{begin, claim, finish, is_finished};

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
