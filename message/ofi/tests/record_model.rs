//! The record of a large message under loom: sender and receiver copy it piece by piece. The sender
//! gets the record back once, when the receiver does not touch it any more.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p nagaya-ofi --test record_model --release`.
#![cfg(loom)]

#[path = "../../../sync/tests/model/mod.rs"]
mod model;

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread;
use model::{Small, Wide};
use nagaya_fi::protocol::record::{Called, close, join, push, share, take_all};
use sync::word::Word64;

/// The address of the only record.
const RECORD: u64 = 64;
const PIECES: u32 = 2;

struct Model {
    stack: Wide,
    next: Wide,
    state: Small,
    claimed: AtomicU32,
    copied: AtomicU32,
    pieces: [UnsafeCell<u32>; PIECES as usize],
    /// The record's memory: both sides read it, and the sender writes it at the end.
    memory: UnsafeCell<u32>,
}

impl Model {
    fn copy(&self) {
        loop {
            let piece = self.claimed.fetch_add(1, Relaxed);
            if piece >= PIECES {
                return;
            }
            // SAFETY: loom checks that no other thread has access.
            self.pieces[piece as usize].with_mut(|piece| unsafe { *piece += 1 });
            self.copied.fetch_add(1, AcqRel);
        }
    }

    fn touch(&self) {
        // SAFETY: loom checks that no other thread writes.
        self.memory.with(|memory| unsafe { assert_eq!(*memory, 0) });
    }

    fn receive(&self, shared: bool) {
        if shared {
            share(&self.state);
            push(&self.stack, &self.next, RECORD);
        }
        self.copy();
        while self.copied.load(Acquire) < PIECES {
            thread::yield_now();
        }
        self.touch();
        if close(&self.state) {
            self.touch();
            push(&self.stack, &self.next, RECORD);
        }
    }

    /// Takes the record back. Returns how often the receiver has asked for help.
    fn take_back(&self) -> u32 {
        let mut helps = 0;
        loop {
            match take_all(&self.stack) {
                0 => thread::yield_now(),
                record => {
                    assert_eq!((record, self.next.load(Relaxed)), (RECORD, 0));
                    match join(&self.state) {
                        Called::Help => {
                            helps += 1;
                            self.copy();
                        }
                        Called::Done => break,
                    }
                }
            }
        }
        // SAFETY: loom checks that no other thread has access.
        self.memory.with_mut(|memory| unsafe { *memory = 1 });
        for piece in &self.pieces {
            // SAFETY: loom checks that no other thread has access.
            assert_eq!(piece.with(|piece| unsafe { *piece }), 1);
        }
        helps
    }
}

fn check(shared: bool) {
    model::model(3, move || {
        let model = Arc::new(Model {
            stack: Wide(AtomicU64::new(0)),
            next: Wide(AtomicU64::new(0)),
            state: Small(AtomicU32::new(0)),
            claimed: AtomicU32::new(0),
            copied: AtomicU32::new(0),
            pieces: std::array::from_fn(|_| UnsafeCell::new(0)),
            memory: UnsafeCell::new(0),
        });
        let receiver = {
            let model = model.clone();
            thread::spawn(move || model.receive(shared))
        };
        assert!(model.take_back() <= u32::from(shared));
        receiver.join().unwrap();
        assert_eq!(take_all(&model.stack), 0);
    });
}

#[test]
fn a_buffer_copied_by_the_receiver_is_returned_once() {
    check(false);
}

#[test]
fn a_buffer_copied_by_both_sides_is_returned_once() {
    check(true);
}
