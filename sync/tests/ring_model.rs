//! The ring under loom: every interleaving of a few senders, a receiver, and deaths.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p nagaya-sync --test ring_model --release`.
#![cfg(loom)]

use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use sync::ring::{self, Buffer, Found, HEADER_SIZE, Kind, LINE_SIZE, Receiver, SendError, Sender};
use sync::word::Word32;

mod model;
use model::{Small, Wide, model};

const LINES: u32 = 4;

/// A buffer whose payload loom watches for races, and a futex.
struct Model {
    tail: Wide,
    head: Small,
    claims: Vec<Wide>,
    headers: Vec<Wide>,
    payload: Vec<UnsafeCell<[u8; LINE_SIZE]>>,
    sleepers: Mutex<()>,
    woken: Condvar,
}

impl Model {
    fn new() -> Arc<Self> {
        let words = || (0..LINES).map(|_| Wide(AtomicU64::new(0))).collect();
        Arc::new(Self {
            tail: Wide(AtomicU64::new(0)),
            head: Small(AtomicU32::new(0)),
            claims: words(),
            headers: words(),
            payload: (0..LINES).map(|_| UnsafeCell::new([0; LINE_SIZE])).collect(),
            sleepers: Mutex::new(()),
            woken: Condvar::new(),
        })
    }

    /// FUTEX_WAIT on the head.
    fn wait(&self, expected: u32) {
        let guard = self.sleepers.lock().expect("no panic while held");
        if self.head.load(Ordering::SeqCst) == expected {
            drop(self.woken.wait(guard).expect("no panic while held"));
        }
    }

    /// FUTEX_WAKE.
    fn wake(&self) {
        let _guard = self.sleepers.lock().expect("no panic while held");
        self.woken.notify_all();
    }

    /// Which line and byte in it a byte of the payload is.
    fn at(line: u32, offset: usize) -> (usize, usize) {
        let at = line as usize * LINE_SIZE + HEADER_SIZE + offset;
        (at / LINE_SIZE, at % LINE_SIZE)
    }
}

impl Buffer for Model {
    type Word32 = Small;
    type Word64 = Wide;
    fn lines(&self) -> u32 {
        LINES
    }
    fn tail(&self) -> &Wide {
        &self.tail
    }
    fn head(&self) -> &Small {
        &self.head
    }
    fn claim(&self, index: u32) -> &Wide {
        &self.claims[index as usize]
    }
    fn header(&self, line: u32) -> &Wide {
        &self.headers[line as usize]
    }
    unsafe fn write(&self, line: u32, offset: usize, bytes: &[u8]) {
        for (i, byte) in bytes.iter().enumerate() {
            let (line, at) = Self::at(line, offset + i);
            // SAFETY: loom checks that nobody else is here.
            self.payload[line].with_mut(|cell| unsafe { (*cell)[at] = *byte });
        }
    }
    unsafe fn read(&self, line: u32, offset: usize, bytes: &mut [u8]) {
        for (i, byte) in bytes.iter_mut().enumerate() {
            let (line, at) = Self::at(line, offset + i);
            // SAFETY: as above.
            *byte = self.payload[line].with(|cell| unsafe { (*cell)[at] });
        }
    }
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

fn send(model: &Model, sender: &mut Sender, byte: u8, length: usize) {
    let mut payload = vec![0; length];
    payload[0] = byte;
    payload[length - 1] = byte;
    loop {
        match sender.send(model, Kind::Inline, &[&payload]) {
            Ok(asleep) => {
                if asleep {
                    ring::rouse(model);
                    model.wake();
                }
                return;
            }
            Err(SendError::Full) => {
                let head = sender.wait_for_room(model);
                match sender.send(model, Kind::Inline, &[&payload]) {
                    Ok(asleep) => {
                        if asleep {
                            ring::rouse(model);
                            model.wake();
                        }
                        return;
                    }
                    Err(_) => model.wait(head),
                }
            }
            Err(SendError::TooLong) => panic!("it fits"),
        }
    }
}

/// The next message's first byte and source; sleeps until there is one. `dead` members
/// are skipped.
fn receive(model: &Model, receiver: &mut Receiver, dead: &[u32]) -> (u8, u32) {
    loop {
        if let Some(got) = take(model, receiver, dead) {
            return got;
        }
        if receiver.publish(model) {
            model.wake();
        }
        let head = receiver.about_to_sleep(model);
        if let Some(got) = take(model, receiver, dead) {
            receiver.awake(model);
            return got;
        }
        // The look may have skipped lines: then the head changes, and we do not sleep.
        if receiver.publish(model) {
            model.wake();
        }
        model.wait(head);
        receiver.awake(model);
    }
}

fn take(model: &Model, receiver: &mut Receiver, dead: &[u32]) -> Option<(u8, u32)> {
    loop {
        match receiver.look_closely(model) {
            Found::Message(message) => {
                let length = message.header.length as usize;
                let mut payload = vec![0; length];
                receiver.read(model, &message, 0, &mut payload);
                assert_eq!(payload[0], payload[length - 1], "torn");
                if receiver.consume(model, &message) {
                    model.wake();
                }
                return Some((payload[0], message.header.source));
            }
            Found::Unfinished(ticket) if dead.contains(&ticket) => {
                receiver.skip_dead(model, ticket);
            }
            // A living sender is about to finish; then it sees whether we sleep.
            Found::Nothing | Found::Unfinished(_) => return None,
            Found::Corrupt => panic!("corrupt"),
        }
    }
}

#[test]
fn two_senders_lose_nothing() {
    model(2, || {
        let shared = Model::new();
        let senders = [1u8, 2].map(|n| {
            let shared = shared.clone();
            thread::spawn(move || send(&shared, &mut Sender::new(n.into(), n.into()), n, 8))
        });
        let mut receiver = Receiver::default();
        let mut both = [(); 2].map(|()| receive(&shared, &mut receiver, &[]));
        both.sort_unstable();
        assert_eq!(both, [(1, 1), (2, 2)]);
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

#[test]
fn a_full_ring_makes_senders_wait_and_comes_round() {
    model(2, || {
        let shared = Model::new();
        let sender = {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut sender = Sender::new(1, 1);
                // Three lines, one, three: the last begins a new lap behind a skip.
                for (byte, length) in [(1, 150), (2, 8), (3, 150), (4, 100)] {
                    send(&shared, &mut sender, byte, length);
                }
            })
        };
        let mut receiver = Receiver::default();
        for wanted in 1..=4 {
            assert_eq!(receive(&shared, &mut receiver, &[]), (wanted, 1));
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_sender_that_dies_between_claim_and_header_leaves_a_gap_only() {
    model(2, || {
        let shared = Model::new();
        let dies = {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut sender = Sender::new(1, 1);
                send(&shared, &mut sender, 10, 8);
                let _ = sender.reserve(&*shared, 2);
            })
        };
        let lives = {
            let shared = shared.clone();
            thread::spawn(move || send(&shared, &mut Sender::new(2, 2), 20, 8))
        };
        let mut receiver = Receiver::default();
        let first = receive(&shared, &mut receiver, &[]);
        dies.join().unwrap();
        let second = receive(&shared, &mut receiver, &[1]);
        let mut both = [first, second];
        both.sort_unstable();
        assert_eq!(both, [(10, 1), (20, 2)]);
        lives.join().unwrap();
    });
}
