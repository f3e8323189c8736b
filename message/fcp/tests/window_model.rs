//! What stands in a window without a lock, under loom: the header that several make at
//! once, and the hold that keeps a buffer its owner's.
//!
//! Run with `make model`.
#![cfg(loom)]

use std::sync::atomic::Ordering::{Acquire, SeqCst};

use fcp::header::{Agreed, Header, Plan};
use fcp::hold::{self, Peer, Phase, State};
use fcp::offer;
use fcp::slot;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, fence};
use loom::thread;
use sync::pieces;
use sync::word::Word64;

#[path = "../../../sync/tests/model/mod.rs"]
mod model;
use model::{Wide, model};

fn wide(value: u64) -> Wide {
    Wide(AtomicU64::new(value))
}

#[test]
fn concurrent_creators_get_the_same_window() {
    model(3, || {
        let words = Arc::new([wide(0), wide(0), wide(0)]);
        let agree = |words: &[Wide; 3], members| {
            let header = Header { magic: &words[0], plan: &words[1], size: &words[2] };
            header
                .agree(Some(Plan { members, messages: 4096, lendable: 0, listed: false }), 1 << 20)
        };
        let makers: Vec<_> = (1..=2)
            .map(|members| {
                let words = words.clone();
                thread::spawn(move || agree(&words, members))
            })
            .collect();
        let third = agree(&words, 3);
        let Agreed::Window(_, size) = third else { panic!("{third:?}") };
        assert_eq!(size, 1 << 20);
        for maker in makers {
            assert_eq!(maker.join().unwrap(), third);
        }
    });
}

type Hold = fn(&Wide, &Wide, Peer) -> bool;

#[test]
fn a_buffer_is_not_cleared_while_somebody_sends_to_its_former_owner() {
    held_or_cleared(|word, state, peer| {
        hold::hold(word, state, peer, || fence(SeqCst)) == Ok(true)
    });
}

/// The fence here is the one that the new owner makes for all.
#[test]
fn a_buffer_is_not_cleared_while_a_port_sends_to_its_former_owner() {
    held_or_cleared(|word, state, peer| hold::hold_alone(word, state, peer, || fence(SeqCst)));
}

fn held_or_cleared(try_hold: Hold) {
    model(3, move || {
        let old = State { generation: 1, host: 7, phase: Phase::Present };
        let peer = Peer { index: 3, generation: 1 };
        let state = Arc::new(wide(old.word()));
        let holds = Arc::new([wide(0), wide(0)]);
        let buffer = Arc::new([UnsafeCell::new(0u32), UnsafeCell::new(0)]);
        let senders: Vec<_> = (0..2)
            .map(|n| {
                let (state, holds, buffer) = (state.clone(), holds.clone(), buffer.clone());
                thread::spawn(move || {
                    if try_hold(&holds[n], &state, peer) {
                        // SAFETY: loom checks that nobody else is here.
                        buffer[n].with_mut(|cell| unsafe { *cell = 1 });
                        hold::release(&holds[n]);
                    }
                })
            })
            .collect();
        let taken = hold::take(&*state, old.word(), 7, || fence(SeqCst)).expect("nobody else");
        if !holds.iter().any(|word| hold::holds(word, 3)) {
            for half in &*buffer {
                // SAFETY: as above.
                half.with_mut(|cell| unsafe { *cell = 0 });
            }
            hold::present(&*state, taken);
            assert!(!hold::has_entry(&*state, peer));
        }
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

/// Lender and borrower take turns with memory, by a slot; the borrower may die instead of
/// giving back, and the lender learns of that.
#[test]
fn lent_memory_is_not_written_until_it_is_returned() {
    model(3, || {
        let slots = Arc::new([wide(0), wide(0)]);
        let memory = Arc::new(UnsafeCell::new(0u32));
        let dead = Arc::new(AtomicBool::new(false));
        let borrowers = [peer(1), peer(2)];
        memory.with_mut(|cell| {
            // SAFETY: loom checks that nobody else is here.
            unsafe { *cell = 1 }
        });
        (0..2).for_each(|n| slot::lend(&slots[n], borrowers[n]));
        let threads: Vec<_> = (0..2)
            .map(|n| {
                let (slots, memory, dead) = (slots.clone(), memory.clone(), dead.clone());
                thread::spawn(move || {
                    assert!(slot::is_lent_to(&slots[n], borrowers[n]));
                    // SAFETY: as above.
                    assert_eq!(memory.with(|cell| unsafe { *cell }), 1);
                    if n == 1 {
                        dead.store(true, SeqCst);
                    } else {
                        slot::give_back(&slots[n], borrowers[n]);
                    }
                })
            })
            .collect();
        let is_back = |n: usize| match slot::borrower(&slots[n]) {
            Some(peer) => peer.index == 2 && dead.load(SeqCst),
            None => true,
        };
        if is_back(0) && is_back(1) {
            // SAFETY: as above.
            memory.with_mut(|cell| unsafe { *cell = 2 });
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// The sender offers twice; each time it waits a little, and withdraws. The receiver may
/// read neither too late nor the other message.
#[test]
fn an_offer_is_read_or_withdrawn_never_both() {
    model(3, || {
        let word = Arc::new(wide(0));
        let bytes = Arc::new(UnsafeCell::new(0u64));
        let receiver = {
            let (word, bytes) = (word.clone(), bytes.clone());
            thread::spawn(move || {
                for number in [7, 8] {
                    if offer::accept(&*word, number) {
                        // SAFETY: loom checks that nobody else is here.
                        assert_eq!(bytes.with(|cell| unsafe { *cell }), number);
                        offer::answer(&*word, number, true);
                    }
                }
            })
        };
        for number in [7, 8] {
            // SAFETY: as above.
            bytes.with_mut(|cell| unsafe { *cell = number });
            offer::offer(&*word, number);
            if offer::answered(&*word, number).is_none() && !offer::withdraw(&*word, number) {
                while offer::answered(&*word, number).is_none() {
                    thread::yield_now();
                }
            }
        }
        // SAFETY: as above.
        bytes.with_mut(|cell| unsafe { *cell = 0 });
        receiver.join().unwrap();
    });
}

/// The receiver shares an offer, and the sender copies, too. The sender leaves when it has the
/// answer, and the receiver has the answer's bytes.
#[test]
fn a_shared_offer_is_copied_by_both_and_withdrawn_by_none() {
    model(3, || {
        let word = Arc::new(wide(0));
        let pieces = Arc::new((wide(0), wide(0)));
        let bytes = Arc::new([UnsafeCell::new(0u64), UnsafeCell::new(0)]);
        let copy = |pieces: &(Wide, Wide), bytes: &[UnsafeCell<u64>; 2], tag| {
            while let Some(piece) = pieces::claim(&pieces.0, tag, 2) {
                // SAFETY: loom checks that nobody else is here.
                bytes[piece as usize].with_mut(|cell| unsafe { *cell = 7 });
                pieces::finish(&pieces.1, tag, 2);
            }
        };
        let receiver = {
            let (word, pieces, bytes) = (word.clone(), pieces.clone(), bytes.clone());
            thread::spawn(move || {
                let tag = pieces::expose(&pieces.0, &pieces.1, [], []);
                if !offer::share(&*word, 7) {
                    return;
                }
                copy(&pieces, &bytes, tag);
                while !pieces::is_finished(&pieces.1, tag, 2) {
                    thread::yield_now();
                }
                offer::answer(&*word, 7, true);
                for cell in &*bytes {
                    // SAFETY: as above.
                    assert_eq!(
                        cell.with_mut(|cell| unsafe { std::mem::replace(&mut *cell, 1) }),
                        7
                    );
                }
            })
        };
        offer::offer(&*word, 7);
        if offer::is_shared(&*word, 7) {
            let tag = (pieces.0.load(Acquire) >> 32) as u32;
            if offer::is_shared(&*word, 7) {
                copy(&pieces, &bytes, tag);
            }
        }
        if offer::answered(&*word, 7).is_none() && !offer::withdraw(&*word, 7) {
            while offer::answered(&*word, 7).is_none() {
                thread::yield_now();
            }
        }
        receiver.join().unwrap();
    });
}

fn peer(index: u16) -> Peer {
    Peer { index, generation: 9 }
}
