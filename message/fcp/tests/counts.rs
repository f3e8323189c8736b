//! Loads and stores of shared memory for one message, counted from the code that sends and
//! receives: the paper's Table 5 for today's protocols. Payload is not counted; an atomic
//! exchange is a load and a store. Nobody sleeps, there is room, and the receiver is the
//! one that was sent to before.
//!
//! | | FCP | FCP plus | FCP II |
//! |---|---|---|---|
//! | send, the paper's | 23 | 18 | 8 |
//! | send, ours | 22 | 19 | 13 |
//! | receive, the paper's | 22 | 16 | 7 |
//! | receive, ours | 18 | 18 | 2 |
//!
//! Ours has more work to do than the paper's: three of each send are the hold that keeps
//! the buffer its owner's. The receiver of FCP II gives lines back a quarter of the ring
//! at a time; that part is what a message costs on average, besides the 2.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use fcp::hold::{self, Peer, Phase, State};
use fcp::listed;
use fcp::lock::{self, Attempt};
use fcp::locked::{Head, Queue, Words};
use fcp::ring::{Buffer, Found, Kind, Receiver, Sender, Word32, Word64};

thread_local! {
    static COUNT: Cell<u32> = const { Cell::new(0) };
}

/// Runs it. How many loads and stores it took.
fn count(run: impl FnOnce()) -> u32 {
    COUNT.set(0);
    run();
    COUNT.get()
}

/// A word that counts.
#[derive(Default)]
struct Counted<T>(T);

fn loads_or_stores(n: u32) {
    COUNT.set(COUNT.get() + n);
}

impl Word32 for Counted<AtomicU32> {
    fn load(&self, order: Ordering) -> u32 {
        loads_or_stores(1);
        self.0.load(order)
    }
    fn store(&self, value: u32, order: Ordering) {
        loads_or_stores(1);
        self.0.store(value, order);
    }
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        loads_or_stores(2);
        self.0.swap(value, order)
    }
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
        loads_or_stores(2);
        self.0.fetch_or(bits, order)
    }
    fn fetch_and(&self, bits: u32, order: Ordering) -> u32 {
        loads_or_stores(2);
        self.0.fetch_and(bits, order)
    }
}

impl Word64 for Counted<AtomicU64> {
    fn load(&self, order: Ordering) -> u64 {
        loads_or_stores(1);
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        loads_or_stores(1);
        self.0.store(value, order);
    }
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        loads_or_stores(2);
        self.0.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst)
    }
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        loads_or_stores(2);
        self.0.fetch_or(bits, order)
    }
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        loads_or_stores(2);
        self.0.fetch_and(bits, order)
    }
}

fn words<T: Default>(many: u32) -> Vec<Counted<T>> {
    (0..many).map(|_| Counted::default()).collect()
}

/// The buffer of FCP and FCP plus.
struct Listed {
    lock: Counted<AtomicU64>,
    management: Vec<Counted<AtomicU32>>,
    data: Vec<Counted<AtomicU32>>,
}

impl Words for Listed {
    type Word = Counted<AtomicU32>;
    type Lock = Counted<AtomicU64>;
    fn lock(&self) -> &Self::Lock {
        &self.lock
    }
    fn management(&self, n: u32) -> &Self::Word {
        &self.management[n as usize]
    }
    fn data(&self, n: u32) -> &Self::Word {
        &self.data[n as usize]
    }
    fn write(&self, _: u32, _: &[u8]) {}
    fn read(&self, _: u32, _: &mut [u8]) {}
}

/// The buffer of FCP II.
struct Computed {
    tail: Counted<AtomicU64>,
    head: Counted<AtomicU32>,
    claims: Vec<Counted<AtomicU64>>,
    headers: Vec<Counted<AtomicU64>>,
}

impl Buffer for Computed {
    type Word32 = Counted<AtomicU32>;
    type Word64 = Counted<AtomicU64>;
    fn lines(&self) -> u32 {
        self.headers.len() as u32
    }
    fn tail(&self) -> &Self::Word64 {
        &self.tail
    }
    fn head(&self) -> &Self::Word32 {
        &self.head
    }
    fn claim(&self, index: u32) -> &Self::Word64 {
        &self.claims[index as usize]
    }
    fn header(&self, line: u32) -> &Self::Word64 {
        &self.headers[line as usize]
    }
    unsafe fn write(&self, _: u32, _: usize, _: &[u8]) {}
    unsafe fn read(&self, _: u32, _: usize, _: &mut [u8]) {}
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
    fn publish(&self, line: u32, header: u64) {
        loads_or_stores(2); // as the ring in memory does: one exchange
        self.headers[line as usize].0.swap(header, Ordering::SeqCst);
    }
}

const RECEIVER: Peer = Peer { index: 3, generation: 1 };
const US: Peer = Peer { index: 5, generation: 1 };

/// Sends under a hold, as all three protocols do.
fn held(send: impl FnOnce()) {
    let state = State { generation: 1, host: 0, phase: Phase::Present };
    let (state, word) = (Counted(AtomicU64::new(state.word())), Counted::default());
    assert!(hold::hold_alone(&word, &state, RECEIVER, || ()));
    send();
    hold::release(&word);
}

fn locked<T>(buffer: &Listed, change: impl FnOnce(&Queue<'_, Listed>) -> T) -> T {
    assert_eq!(lock::attempt(&buffer.lock, US), Attempt::Taken(false));
    let result = change(&Queue(buffer));
    lock::release(&buffer.lock, US, false);
    result
}

#[test]
fn fcp_and_fcp_plus() {
    let buffer = Listed { lock: Counted::default(), management: words(7), data: words(64) };
    Queue(&buffer).own(42, 64);
    let entry: [Counted<AtomicU32>; 4] = [1, 0, 42, 7].map(|n| Counted(AtomicU32::new(n)));
    let head = Head { length: 4, source: 1, group: 7, ends: [true, true] };
    let put = || {
        held(|| locked(&buffer, |queue| assert_eq!(queue.put(42, head, &[0; 4]), Ok(false))));
    };
    let fcp = count(|| {
        assert!(listed::is(&entry, 42, 7));
        put();
    });
    let plus = count(put);
    let receive = || {
        assert!(Queue(&buffer).has_next());
        locked(&buffer, |queue| {
            let next = queue.next().expect("a message");
            assert!(queue.take(next, &mut [0; 4]));
        });
    };
    assert_eq!((fcp, plus), (22, 19));
    assert_eq!((count(receive), count(receive)), (18, 18));
}

#[test]
fn fcp_ii() {
    let lines = 64;
    let (tail, head) = (Counted::default(), Counted::default());
    let buffer = Computed { tail, head, claims: words(lines), headers: words(lines) };
    let (mut sender, mut receiver) = (Sender::new(5, 1), Receiver::default());
    let mut send = || {
        held(|| assert_eq!(sender.send(&buffer, Kind::Inline, &[&[0; 4]]), Ok(false)));
    };
    let mut receive = || {
        let Found::Message(message) = receiver.look(&buffer) else { panic!("no message") };
        receiver.read(&buffer, &message, 0, &mut [0; 4]);
        receiver.consume(&buffer, &message);
    };
    send(); // looks where the receiver is
    receive();
    assert_eq!((count(&mut send), count(&mut receive)), (13, 1));
    // On average, with what is given back a quarter of the ring at a time.
    let sends = count(|| {
        (0..lines / 2).for_each(|_| {
            send();
            receive();
        })
    });
    let per_message = f64::from(sends) / f64::from(lines / 2);
    assert!((15.0..15.6).contains(&per_message), "{per_message}");
}
