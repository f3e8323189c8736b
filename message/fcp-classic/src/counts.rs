//! The cost of the three protocols by their structure, as in the paper's Tables 4 and 5: the words
//! that they keep in shared memory, and the loads and stores of shared memory for one message. The
//! code that sends and receives runs here on words that count accesses.
//!
//! Payload is not counted; an atomic exchange counts as a load and a store. Nobody sleeps, there is
//! room, and the receiver is the one of the message before.
//!
//! These protocols do more than the paper's: three accesses of each send are the hold that keeps
//! the buffer its owner's. The receiver of FCP II returns lines a quarter of the ring at a time;
//! [`Accesses::average`] includes that cost.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use fcp::hold::{self, Peer, Phase, State};
use fcp::protocol::Protocol;
use fcp::window::TABLE_ENTRY_WORDS;
use sync::lock::{self, Attempt, Owner};
use sync::ring::{self, Buffer, Found, Kind, Receiver, Sender};
use sync::word::{Word32, Word64};

use crate::queue::{self, Head, Queue, Words};
use crate::table;

/// Number of 32-bit words that a protocol keeps in shared memory: the paper's Table 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Structures {
    /// Words of an entry of the table that lists buffers.
    pub table_entry: usize,
    /// Words of the management of a receive buffer, including its lock.
    pub management: usize,
    /// Words of the management of each line of a receive buffer.
    pub management_per_line: usize,
    /// Words of a message's header.
    pub header: usize,
}

impl Structures {
    /// Returns the structures of a protocol.
    pub fn of(protocol: Protocol) -> Self {
        let words = |bytes: usize| bytes / size_of::<u32>();
        match protocol {
            Protocol::Fcp | Protocol::FcpPlus => Self {
                table_entry: TABLE_ENTRY_WORDS,
                management: queue::MANAGEMENT as usize,
                management_per_line: 0,
                header: queue::HEADER as usize,
            },
            // The management is tail and head; each line has a claim.
            Protocol::Fcp2 => Self {
                table_entry: 0,
                management: words(size_of::<AtomicU64>() + size_of::<AtomicU32>()),
                management_per_line: words(size_of::<AtomicU64>()),
                header: words(ring::HEADER_SIZE),
            },
        }
    }
}

/// Loads and stores of shared memory for a message: the paper's Table 5.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Accesses {
    /// Accesses of the sender.
    pub send: u32,
    /// Accesses of the receiver.
    pub receive: u32,
    /// Both, on average over many messages, including work that not each message needs.
    pub average: f64,
}

impl Accesses {
    /// Counts the accesses of a protocol.
    pub fn of(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Fcp | Protocol::FcpPlus => of_listed(protocol),
            Protocol::Fcp2 => of_computed(),
        }
    }
}

thread_local! {
    static COUNT: Cell<u32> = const { Cell::new(0) };
}

/// Runs `run`, and returns the number of its loads and stores.
fn count(run: impl FnOnce()) -> u32 {
    COUNT.set(0);
    run();
    COUNT.get()
}

/// A word that counts its accesses.
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
    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        loads_or_stores(2);
        self.0.fetch_add(value, order)
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

fn words<T: Default>(n: u32) -> Vec<Counted<T>> {
    (0..n).map(|_| Counted::default()).collect()
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
    fn words(&self) -> u32 {
        self.data.len() as u32
    }
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
}

const RECEIVER: Peer = Peer { index: 3, generation: 1 };
const US: Peer = Peer { index: 5, generation: 1 };

/// Runs `send` under a hold, as all three protocols do.
fn held(send: impl FnOnce()) {
    let state = State { generation: 1, host: 0, phase: Phase::Present };
    let (state, word) = (Counted(AtomicU64::new(state.word())), Counted::default());
    assert!(hold::hold_alone(&word, &state, RECEIVER, || ()));
    send();
    hold::release(&word);
}

fn locked<T>(buffer: &Listed, change: impl FnOnce(&Queue<'_, Listed>) -> T) -> T {
    let us = Owner { index: US.index, generation: US.generation };
    assert_eq!(lock::attempt(&buffer.lock, us, false), Attempt::Taken(false));
    let result = change(&Queue(buffer));
    lock::release(&buffer.lock, us, false);
    result
}

fn of_listed(protocol: Protocol) -> Accesses {
    let buffer = Listed { lock: Counted::default(), management: words(7), data: words(64) };
    Queue(&buffer).own(42);
    let entry: [Counted<AtomicU32>; 4] = [1, 0, 42, 7].map(|n| Counted(AtomicU32::new(n)));
    let head = Head { length: 4, source: 1, group: 7, kind: Kind::Inline };
    let send = count(|| {
        // FCP plus has cached the entry.
        assert!(protocol == Protocol::FcpPlus || table::lists(&entry, 42, 7));
        held(|| locked(&buffer, |queue| assert_eq!(queue.put(42, head, &[&[0; 4]]), Ok(false))));
    });
    let receive = count(|| {
        let message = Queue(&buffer).next().expect("in order").expect("a message");
        Queue(&buffer).read(&message, 0, &mut [0; 4]);
        locked(&buffer, |queue| assert!(!queue.take(&message)));
    });
    Accesses { send, receive, average: (send + receive).into() }
}

fn of_computed() -> Accesses {
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
    send(); // the first send reads the receiver's position
    receive();
    let (once_sent, once_received) = (count(&mut send), count(&mut receive));
    let all = count(|| {
        (0..lines / 2).for_each(|_| {
            send();
            receive();
        })
    });
    let average = f64::from(all) / f64::from(lines / 2);
    Accesses { send: once_sent, receive: once_received, average }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_takes_the_documented_loads_and_stores() {
        let of = |protocol| {
            let Accesses { send, receive, .. } = Accesses::of(protocol);
            (send, receive)
        };
        assert_eq!(Protocol::ALL.map(of), [(21, 14), (18, 14), (12, 1)]);
        let average = Accesses::of(Protocol::Fcp2).average;
        assert!((14.0..14.6).contains(&average), "{average}");
    }

    #[test]
    fn structures_are_as_small_as_the_papers_or_nearly() {
        let words = |protocol| {
            let Structures { table_entry, management, management_per_line, header } =
                Structures::of(protocol);
            [table_entry, management, management_per_line, header]
        };
        assert_eq!(Protocol::ALL.map(words), [[4, 7, 0, 3], [4, 7, 0, 3], [0, 3, 2, 2]]);
    }
}
