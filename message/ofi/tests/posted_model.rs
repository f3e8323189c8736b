//! Published receives under loom: senders and the receiver match at the same time. Every message
//! gets the receive that it would get if only the receiver matched.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p nagaya-ofi --test posted_model --release`.
#![cfg(loom)]

#[path = "../../../sync/tests/model/mod.rs"]
mod model;

use loom::sync::atomic::AtomicU64;
use loom::sync::{Arc, Mutex};
use loom::thread;
use model::Wide;
use nagaya_fi::protocol::matching::{Head, Matching};
use nagaya_fi::protocol::parts::Parts;
use nagaya_fi::protocol::posted::Table;
use nagaya_fi::protocol::receive::Receive;
use nagaya_fi::protocol::wire::Kind;

const ROOM: u64 = 1 << 20;

/// A message in the ring.
struct Message {
    source: u32,
    number: u32,
    /// The slot of its receive, if the sender has claimed it.
    slot: Option<usize>,
}

struct Model {
    table: Table<Wide, 2>,
    ring: Mutex<Vec<Message>>,
}

fn receive(number: u64, tag: u64) -> Receive {
    let (completes, multiple, slot_use) = (true, 0, None);
    let (context, buffer) = (number as usize, Parts::one(number * ROOM, ROOM));
    Receive { context, source: None, tag, ignore: 0, buffer, completes, multiple, slot_use }
}

impl Model {
    fn new() -> Arc<Self> {
        let table = Table::new(|| Wide(AtomicU64::new(0)));
        Arc::new(Self { table, ring: Mutex::new(Vec::new()) })
    }

    /// Sends large or small messages with these numbers. Returns the receives that they have
    /// claimed.
    fn send(&self, source: u32, messages: &[(u32, bool)]) -> Vec<(u32, u64)> {
        let (mut queued, mut claims) = (0, Vec::new());
        for &(number, is_large) in messages {
            let has_taken = is_large && self.table.has_taken(queued);
            let claim = || self.table.claim(Kind::Tagged, source, 5, source);
            let claimed = has_taken.then(claim).flatten();
            let slot = claimed.map(|claimed| claimed.slot_use.slot());
            let mut ring = self.ring.lock().unwrap();
            ring.push(Message { source, number, slot });
            match claimed {
                Some(claimed) => claims.push((number, claimed.address / ROOM)),
                None => queued = ring.len() as u32,
            }
        }
        claims
    }

    fn post(&self, matching: &mut Matching<()>, number: u64, tag: u64) -> Option<u32> {
        let found = matching.receive(&mut receive(number, tag));
        if found.is_none() {
            matching.publish(|receive| self.table.publish(Kind::Tagged, receive, |_| {}));
        }
        found.map(|(_, head, ())| head.data.unwrap() as u32)
    }

    /// Takes the messages in the ring. Returns them with the receives that they get.
    fn take(&self, matching: &mut Matching<()>, next: &mut usize) -> Vec<(u32, usize)> {
        let ring = self.ring.lock().unwrap();
        let mut found = Vec::new();
        while let Some(&Message { source, number, slot }) = ring.get(*next) {
            *next += 1;
            let head = Head { source, tag: 5, data: Some(number.into()), length: 1 };
            let taken = match slot {
                Some(slot) => {
                    let (taken, slot_use) = matching.take_claimed(slot, 1).expect("it was claimed");
                    assert_eq!(self.table.claimed_by(slot_use), Some(source));
                    self.table.release(slot_use);
                    Some(taken)
                }
                None => matching.arrive(&head, |slot_use| self.table.withdraw(slot_use)),
            };
            match taken {
                Some(taken) => found.push((number, taken.context)),
                None => matching.add_unexpected(head, ()),
            }
        }
        self.table.set_taken(*next as u32);
        found
    }
}

/// Checks that the messages of one sender, among another's, get receives in their order.
fn in_order(ours: &'static [(u32, bool)], others: &'static [(u32, bool)]) {
    model::model(2, move || {
        let model = Model::new();
        let senders = [(1, ours), (2, others)].map(|(source, messages)| {
            let model = model.clone();
            thread::spawn(move || model.send(source, messages))
        });
        let (mut matching, mut next, mut got) = (Matching::<()>::default(), 0, Vec::new());
        let count = ours.len() + others.len();
        for number in 1..=count {
            got.extend(model.take(&mut matching, &mut next));
            let found = model.post(&mut matching, number as u64, 5);
            got.extend(found.map(|message| (message, number)));
        }
        let claims = senders.map(|sender| sender.join().unwrap());
        got.extend(model.take(&mut matching, &mut next));
        // Each message has one receive: the claimed one, if it has claimed one.
        got.sort_unstable();
        let messages: Vec<_> = got.iter().map(|(message, _)| *message).collect();
        assert_eq!(messages, (1..=count as u32).collect::<Vec<_>>());
        for (message, number) in claims.into_iter().flatten() {
            assert!(got.contains(&(message, number as usize)));
        }
        let of = |message: u32| got[message as usize - 1].1;
        assert!(ours.windows(2).all(|pair| of(pair[0].0) < of(pair[1].0)), "{got:?}");
    });
}

#[test]
fn a_large_message_does_not_overtake_a_small_one() {
    in_order(&[(1, false), (2, true)], &[]);
}

#[test]
fn a_small_message_does_not_overtake_a_large_one() {
    in_order(&[(1, true), (2, false)], &[]);
}

#[test]
fn large_messages_keep_their_order() {
    in_order(&[(1, true), (2, true)], &[]);
}

#[test]
fn anothers_message_comes_between() {
    in_order(&[(1, true), (2, true)], &[(3, false)]);
}

#[test]
fn two_senders_do_not_get_one_receive() {
    in_order(&[(1, true)], &[(2, true)]);
}

/// A claim for an earlier use of a slot fails.
#[test]
fn a_slot_is_used_again() {
    model::model(3, || {
        let model = Model::new();
        let sender = {
            let model = model.clone();
            thread::spawn(move || model.table.claim(Kind::Tagged, 1, 5, 1))
        };
        let posted = |number, tag| {
            let receive = receive(number, tag);
            model.table.publish(Kind::Tagged, &receive, |_| {}).expect("there is a slot")
        };
        let mut slot_use = posted(1, 5);
        let is_back = model.table.withdraw(slot_use);
        if is_back {
            slot_use = posted(2, 6);
        }
        let claimed = sender.join().unwrap();
        assert_eq!(claimed.is_some(), !is_back);
        assert_eq!(model.table.claimed_by(slot_use).is_some(), !is_back);
        if let Some(claimed) = claimed {
            assert_eq!(claimed.address, ROOM);
        }
    });
}
