//! What stands in a window without a lock, under loom: the header that several make at
//! once, the hold that keeps a buffer its owner's, and the lock whose holders may die.
//!
//! Run with `make model`.
#![cfg(loom)]

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use fcp::header::{Agreed, Header, Plan};
use fcp::hold::{self, Peer, Phase, State};
use fcp::lock::{self, Attempt};
use fcp::offer;
use fcp::slot;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU64, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use sync::word::Word64;

#[path = "../../../sync/tests/model/mod.rs"]
mod model;
use model::{Wide, model};

fn wide(value: u64) -> Wide {
    Wide(AtomicU64::new(value))
}

#[test]
fn all_who_make_a_window_get_the_same() {
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
fn what_is_lent_is_not_written_until_it_comes_back() {
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

/// A lock, what it protects, and a futex; members may die.
struct Locked {
    word: Wide,
    /// Two numbers that are the same, unless somebody is changing them.
    state: UnsafeCell<(u32, u32)>,
    dead: [AtomicBool; 3],
    sleepers: Mutex<()>,
    woken: Condvar,
}

fn peer(index: u16) -> Peer {
    Peer { index, generation: 9 }
}

impl Locked {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: wide(0),
            state: UnsafeCell::new((0, 0)),
            dead: [false; 3].map(AtomicBool::new),
            sleepers: Mutex::new(()),
            woken: Condvar::new(),
        })
    }

    fn is_dead(&self, peer: Peer) -> bool {
        self.dead[usize::from(peer.index)].load(SeqCst)
    }

    /// Sleeps until the word changes, or its holder dies: who sleeps looks now and then.
    fn sleep(&self, marked: u64, holder: Peer) {
        let guard = self.sleepers.lock().expect("no panic while held");
        if self.word.load(SeqCst) as u32 == marked as u32 && !self.is_dead(holder) {
            drop(self.woken.wait(guard).expect("no panic while held"));
        }
    }

    fn wake(&self) {
        let _guard = self.sleepers.lock().expect("no panic while held");
        self.woken.notify_all();
    }

    /// Takes the lock, as `Lock::lock` does. Whether in doubt.
    fn lock(&self, me: u16) -> bool {
        loop {
            let (holder, seen) = match lock::attempt(&self.word, peer(me)) {
                Attempt::Taken(doubt) => return doubt,
                Attempt::Held(holder, seen) => (holder, seen),
            };
            if self.is_dead(holder) && lock::inherit(&self.word, peer(me), seen) {
                return true;
            }
            if let Some(marked) = lock::about_to_sleep(&self.word, seen) {
                self.sleep(marked, holder);
            }
        }
    }

    /// One turn: repairs what is in doubt, and counts up. Whether it was in doubt.
    fn turn(&self, me: u16) -> bool {
        let doubt = self.lock(me);
        self.state.with_mut(|state| {
            // SAFETY: loom checks that nobody else is here.
            let (first, second) = unsafe { &mut *state };
            assert!(doubt || first == second, "half changed, and not in doubt");
            *first += 1;
            *second = *first;
        });
        if lock::release(&self.word, peer(me), false) {
            self.wake();
        }
        doubt
    }

    /// A turn that ends in the middle, by death.
    fn die_in_turn(&self, me: u16) {
        self.lock(me);
        // SAFETY: as above.
        self.state.with_mut(|state| unsafe { (*state).0 += 1 });
        self.dead[usize::from(me)].store(true, SeqCst);
        self.wake();
    }
}

#[test]
fn a_lock_excludes_and_wakes_who_sleeps() {
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
fn a_lock_of_the_dead_is_inherited_once_and_in_doubt() {
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
