//! Members that join, are killed at random instants and replaced, and locks whose holders
//! are. `NAGAYA_SEED=n` repeats a run's choices.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use fastrand::Rng;
use fcp::arrived::Arrived;
use fcp::error::Refused;
use fcp::header::Plan;
use fcp::inbox::Inbox;
use fcp::lock::{self, Lock};
use fcp::member::{Card, Life, Members, Membership};
use fcp::outbox::Outbox;
use fcp::port::Port;
use sync::ring::{self, Buffer, HEADER_SIZE, Kind, LINE_SIZE, Sender};

mod children;
use children::{again, child, eventually, kill, kill_and_replace, members_of, reap, seed};

fn members(most: u16) -> Arc<Members> {
    members_of(Plan { members: most, messages: 256 << 10, lendable: 0, listed: false })
}

fn join(members: &Arc<Members>, id: u32) -> Membership {
    members.join(Card { id, group: 0 }, None).expect("a place")
}

#[test]
fn members_come_go_and_are_told_apart() {
    let members = members(2);
    let first = join(&members, 10);
    let second = members.join(Card { id: 11, group: 3 }, Some(1)).expect("place 1");
    assert_eq!((first.peer().index, second.peer().index), (0, 1));
    let error = members.join(Card::default(), None).expect_err("full").to_string();
    assert!(error.contains("all 2 places are taken"), "{error}");
    let error = members.join(Card::default(), Some(1)).expect_err("full").to_string();
    assert!(error.contains("place 1 is taken"), "{error}");
    let other = again(&members);
    assert_eq!(other.find(Card { id: 11, group: 3 }), Some(second.peer()));
    assert_eq!(other.find(Card { id: 11, group: 0 }), None);
    let entry = other.entry(1).expect("an entry");
    assert_eq!((entry.pid, entry.card.group), (std::process::id(), 3));
    assert_eq!(entry.buffer as usize, other.window().buffer(1).expect("a buffer").0);
    let old = second.peer();
    assert_eq!(other.life(old), Life::Lives);
    drop(second);
    assert_eq!(other.life(old), Life::Gone);
    let third = join(&other, 12);
    assert_eq!(third.peer().index, old.index);
    assert_ne!(third.peer().generation, old.generation);
    assert!(first.hold(old).is_none());
    assert!(first.hold(third.peer()).is_some());
}

#[test]
fn an_entry_is_not_taken_over_while_somebody_sends_to_its_former_owner() {
    let members = members(2);
    let me = join(&members, 1);
    let pid = child(|| {
        let members = again(&members);
        let _there = join(&members, 2);
        std::thread::sleep(Duration::from_secs(60));
    });
    let card = Card { id: 2, group: 0 };
    eventually("it joins", || members.find(card).is_some());
    let peer = members.find(card).expect("just found");
    let hold = me.hold(peer).expect("it lives");
    kill(pid);
    assert_eq!(members.life(peer), Life::Gone);
    let line = members.join(card, None).expect_err("held").to_string();
    assert!(line.contains("taken"), "{line}");
    // SAFETY: held, and the window stays.
    let ring = unsafe { members.window().ring(peer.index) }.expect("a ring");
    let mut late = Outbox::new(ring, members.ticket(me.peer()), 1);
    late.try_send(Kind::Inline, &[b"too late"]).expect("the ring is still the old one");
    drop(hold);
    let new = join(&members, 3);
    assert_eq!(new.peer().index, peer.index);
    assert!(me.hold(peer).is_none());
    let mut inbox = Inbox::new(ring);
    assert!(inbox.try_receive(|_| false).expect("in order").is_none(), "not the new one's message");
}

#[test]
fn a_sender_that_died_is_not_mistaken_for_its_successor() {
    let members = members(2);
    let me = join(&members, 1);
    // SAFETY: our own, and the window stays.
    let ring = unsafe { members.window().ring(me.peer().index) }.expect("a ring");
    let mut inbox = Inbox::new(ring);
    for id in 2..20 {
        let pid = child(|| {
            let members = again(&members);
            let me = join(&members, id);
            let mut sender = Sender::new(members.ticket(me.peer()), id);
            sender.reserve(&ring, 2).expect("room");
            std::thread::sleep(Duration::from_secs(60));
        });
        eventually("it has claimed", || ring.claim(id * 2 - 4).load(SeqCst) != 0);
        kill(pid);
        let successor = join(&members, 100);
        assert_eq!(successor.peer().index, 1);
        let mut outbox = Outbox::new(ring, members.ticket(successor.peer()), id);
        outbox.try_send(Kind::Inline, &[b"behind the gap"]).expect("room");
        let soon = Some(Instant::now() + Duration::from_secs(20));
        let arrived = inbox.receive(soon, |ticket| members.is_dead(ticket)).expect("in order");
        assert_eq!(arrived.expect("in time").header().source, id);
    }
}

/// A sender that is killed between its claim and its message leaves a gap, and messages of
/// others lie behind it.
#[test]
fn a_receiver_that_only_polls_passes_a_dead_senders_gap() {
    let members = members(2);
    let me = join(&members, 1);
    // SAFETY: our own, and the window stays.
    let ring = unsafe { members.window().ring(me.peer().index) }.expect("a ring");
    let mut inbox = Inbox::new(ring);
    let is_dead = |ticket| members.is_dead(ticket);
    for waits in [None, Some(Duration::ZERO), None, Some(Duration::from_millis(30))] {
        let claims = ring::next_number(&ring);
        let pid = child(|| {
            let members = again(&members);
            let me = join(&members, 2);
            for _ in 0..3 {
                let mut sender = Sender::new(members.ticket(me.peer()), 2);
                sender.reserve(&ring, 2).expect("room");
            }
            std::thread::sleep(Duration::from_secs(60));
        });
        // The claim of a message is found by the one who wants to claim after it.
        eventually("it has claimed", || ring.claim(claims + 2).load(SeqCst) != 0);
        assert!(inbox.try_receive(is_dead).expect("in order").is_none());
        kill(pid);
        let successor = join(&members, 3);
        let mut outbox = Outbox::new(ring, members.ticket(successor.peer()), 3);
        outbox.try_send(Kind::Inline, &[b"behind the gaps"]).expect("room");
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let arrived = match waits {
                None => inbox.try_receive(is_dead),
                // Between two polls the program does something else.
                Some(time) => {
                    std::thread::sleep(time);
                    inbox.receive(Some(Instant::now()), is_dead)
                }
            };
            if let Some(arrived) = arrived.expect("in order") {
                assert_eq!(arrived.header().source, 3);
                break;
            }
            assert!(Instant::now() < end, "nothing came");
        }
    }
}

#[test]
fn a_receiver_that_only_polls_returns_consumed_lines() {
    let members = members(2);
    let (me, other) = (join(&members, 1), join(&members, 2));
    // SAFETY: our own, and the window stays.
    let ring = unsafe { members.window().ring(me.peer().index) }.expect("a ring");
    let (mut inbox, ticket) = (Inbox::new(ring), members.ticket(other.peer()));
    let mut outbox = Outbox::new(ring, ticket, 2);
    outbox.try_send(Kind::Inline, &[b"short"]).expect("room");
    assert!(inbox.try_receive(|_| false).expect("in order").is_some());
    // It takes the whole ring, so the lines before it must have been returned.
    let long = vec![7; ring.lines() as usize * LINE_SIZE - HEADER_SIZE];
    let end = Instant::now() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        scope.spawn(|| outbox.send(Kind::Inline, &[&long], Some(end), || true).expect("room"));
        while inbox.try_receive(|_| false).expect("in order").is_none() {
            assert!(Instant::now() < end, "nothing came");
        }
    });
}

/// Members send each other messages, each to a certain stay of a certain member; they are
/// killed and replaced. Nobody gets another's message, or a torn one.
#[test]
fn members_killed_at_random_instants_and_replaced_get_their_own_messages_only() {
    const PLACES: u16 = 6;
    let mut random = Rng::with_seed(seed());
    let members = members(PLACES);
    let received = members.window().plain().start;
    let life = |id: u32| {
        let members = again(&members);
        child(move || {
            let window = members.window().clone();
            let mut port = Port::join(&members, Card { id, group: 0 }, None).expect("a place");
            let me = port.peer();
            let mut random = Rng::with_seed(id.into());
            let take = |arrived: Arrived<'_>| {
                let mut bytes = vec![0; arrived.header().length as usize];
                arrived.read(0, &mut bytes);
                let ours = me.generation.to_le_bytes();
                assert!(bytes.chunks(4).all(|chunk| chunk == ours), "another's, or torn");
                window.word64(received).expect("in the window").fetch_add(1, SeqCst);
            };
            loop {
                let to = random.u16(..PLACES);
                if let Some(entry) = members.entry(to).filter(|entry| entry.peer != me) {
                    let length = random.usize(..50);
                    let text = entry.peer.generation.to_le_bytes().repeat(length + 1);
                    let soon = Some(Instant::now() + Duration::from_millis(1));
                    let id = Some(entry.card.id);
                    match port.send(to, id, Kind::Inline, &[&text], soon, take) {
                        Ok(()) | Err(Refused::Dead | Refused::Full | Refused::Gone) => {}
                        Err(refused) => panic!("{refused:?}"),
                    }
                }
                let soon = Some(Instant::now());
                while let Some(arrived) = port.receive(soon).expect("in order") {
                    take(arrived);
                }
            }
        })
    };
    let deaths = kill_and_replace(&mut random, PLACES.into(), Duration::from_secs(5), life);
    let received = members.window().word64(received).expect("in the window").load(SeqCst);
    println!("{deaths} deaths, {received} messages");
    assert!(deaths > 5 && received > 100, "{deaths} deaths, {received} messages");
}

/// Two words are changed under a lock, one after the other; holders are killed.
#[test]
fn a_lock_survives_its_holders_and_reports_doubtful_state() {
    let mut random = Rng::with_seed(seed());
    let members = members(8);
    let at = members.window().plain().start;
    let word = |n: usize| members.window().word64(at + 64 * n).expect("in the window");
    let (first, second, doubts) = (word(1), word(2), word(3));
    let worker = |id: u32| {
        let members = again(&members);
        child(move || {
            let me = join(&members, id);
            let lock = Lock::at(members.window().word64(at).expect("in the window"));
            loop {
                let mut guard = lock.lock(&me, None).expect("no time limit");
                if guard.in_doubt() {
                    doubts.fetch_add(1, SeqCst);
                    second.store(first.load(SeqCst), SeqCst);
                    guard.settle();
                }
                let n = first.load(SeqCst);
                assert_eq!(second.load(SeqCst), n, "half changed, and not in doubt");
                first.store(n + 1, SeqCst);
                (0..100).for_each(|_| std::hint::spin_loop());
                second.store(n + 1, SeqCst);
            }
        })
    };
    let deaths = kill_and_replace(&mut random, 4, Duration::from_secs(4), worker);
    let (turns, doubts) = (first.load(SeqCst), doubts.load(SeqCst));
    println!("{turns} turns, {deaths} deaths, {doubts} with the lock held");
    assert!(turns > 100 && doubts > 0 && doubts <= u64::from(deaths));
}

#[test]
fn a_doubt_stays_until_it_is_settled_and_waiting_ends_in_time() {
    let members = members(3);
    let at = members.window().plain().start;
    let me = join(&members, 1);
    let lock = Lock::at(members.window().word64(at).expect("in the window"));
    let pid = child(|| {
        let members = again(&members);
        let me = join(&members, 2);
        let _guard = Lock::at(members.window().word64(at).expect("there")).try_lock(&me);
        members.window().word64(at + 8).expect("there").store(1, SeqCst);
        std::thread::sleep(Duration::from_secs(60));
    });
    let ready = members.window().word64(at + 8).expect("in the window");
    eventually("the child has it", || ready.load(SeqCst) == 1);
    assert!(lock.try_lock(&me).is_none());
    assert!(lock.lock(&me, Some(Instant::now() + Duration::from_millis(50))).is_none());
    kill(pid);
    assert!(lock.try_lock(&me).expect("the holder is dead").in_doubt());
    lock.lock(&me, None).inspect(|guard| assert!(guard.in_doubt())).expect("ours").settle();
    assert!(!lock.try_lock(&me).expect("free").in_doubt());

    let word = members.window().word32(at + 16).expect("in the window");
    assert!(!lock::test_and_set(word));
    let pid = child(|| assert!(lock::test_and_set(word)));
    assert_eq!(reap(pid), 0);
    lock::clear(word);
    assert!(!lock::test_and_set(word));
}
