//! Real processes on one ring: senders are killed at random instants, and nobody else
//! loses anything. `NAGAYA_SEED=n` repeats a run's choices.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use fastrand::Rng;
use fcp::inbox::Inbox;
use fcp::outbox::{Outbox, Refused};
use sync::mapped::{Mapped, size_of_ring};
use sync::ring::{Kind, LINE_SIZE};

mod children;
use children::{child, cpu_time, has_ended, kill, reap, seed};

/// A ring in memory that children share.
fn shared_ring(lines: u32) -> Mapped {
    // SAFETY: a new mapping, zero, which stays until the process ends.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            size_of_ring(lines),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        Mapped::at(NonNull::new(at.cast()).expect("not 0"), lines)
    }
}

/// The `n`-th message of a sender: its number, and bytes that follow from both.
fn message(source: u32, n: u64) -> Vec<u8> {
    let mut random = Rng::with_seed(u64::from(source) << 32 | n);
    let length = 8 + random.usize(..300);
    let mut bytes = n.to_le_bytes().to_vec();
    bytes.resize_with(length, || random.u8(..));
    bytes
}

fn send_from(ring: Mapped, member: u32, count: u64) -> libc::pid_t {
    child(move || {
        let mut outbox = Outbox::new(ring, member, member);
        for n in 0..count {
            let bytes = message(member, n);
            let (a, b) = bytes.split_at(bytes.len() / 3);
            let sent = outbox.send(Kind::Inline, &[a, b], None, || true);
            assert_eq!(sent, Ok(()));
        }
    })
}

#[test]
fn messages_of_many_senders_arrive_whole_and_in_order() {
    const SENDERS: u32 = 4;
    const COUNT: u64 = 20_000;
    let ring = shared_ring(64);
    let children: Vec<_> = (1..=SENDERS).map(|n| send_from(ring, n, COUNT)).collect();
    let mut inbox = Inbox::new(ring);
    let mut next = HashMap::new();
    for _ in 0..u64::from(SENDERS) * COUNT {
        let until = Instant::now() + Duration::from_secs(20);
        let arrived = inbox.receive(Some(until), |_| false).expect("not corrupt");
        let arrived = arrived.expect("a message in time");
        let source = arrived.header().source;
        let n = next.entry(source).or_insert(0);
        let mut bytes = vec![0; arrived.header().length as usize];
        arrived.read(0, &mut bytes);
        assert_eq!(bytes, message(source, *n));
        *n += 1;
    }
    for pid in children {
        assert_eq!(reap(pid), 0);
    }
}

#[test]
fn senders_killed_at_random_instants_harm_nobody() {
    let mut random = Rng::with_seed(seed());
    let ring = shared_ring(16);
    let mut inbox = Inbox::new(ring);
    // By member: pid while it lives, and the number of its next message.
    let living: RefCell<HashMap<u32, libc::pid_t>> = RefCell::default();
    let mut next: HashMap<u32, u64> = HashMap::new();
    let mut members = 0u32;
    let (mut received, gaps) = (0u64, Cell::new(0));
    let end = Instant::now() + Duration::from_secs(5);
    let is_dead = |member: u32| {
        let mut living = living.borrow_mut();
        match living.get(&member) {
            Some(&pid) if !has_ended(pid) => false,
            _ => {
                living.remove(&member);
                true
            }
        }
    };
    while Instant::now() < end {
        while living.borrow().len() < 3 {
            members += 1;
            living.borrow_mut().insert(members, send_from(ring, members, u64::MAX));
        }
        for _ in 0..random.u64(..2000) {
            let until = Instant::now() + Duration::from_secs(10);
            let arrived = inbox.receive(Some(until), |m| {
                let dead = is_dead(m);
                gaps.set(gaps.get() + u32::from(dead));
                dead
            });
            let arrived = arrived.expect("not corrupt").expect("a message within 10 s");
            let source = arrived.header().source;
            let n = next.entry(source).or_insert(0);
            let mut bytes = vec![0; arrived.header().length as usize];
            arrived.read(0, &mut bytes);
            assert_eq!(bytes, message(source, *n), "message {n} of {source}");
            *n += 1;
            received += 1;
            if living.borrow().is_empty() {
                break;
            }
        }
        let victims: Vec<_> = living.borrow().iter().map(|(m, p)| (*m, *p)).collect();
        if let Some((member, pid)) = victims.get(random.usize(..3)) {
            kill(*pid);
            living.borrow_mut().remove(member);
        }
    }
    println!("{received} messages from {members} senders, {} gaps", gaps.get());
    living.borrow().values().for_each(|pid| {
        kill(*pid);
    });
    assert!(received > 1000);
}

#[test]
fn an_idle_receiver_sleeps_and_wakes() {
    let ring = shared_ring(16);
    let mut inbox = Inbox::new(ring);
    let before = cpu_time();
    let until = Instant::now() + Duration::from_millis(500);
    assert!(inbox.receive(Some(until), |_| false).expect("not corrupt").is_none());
    assert!(cpu_time() - before < Duration::from_millis(50), "{:?}", cpu_time() - before);

    let pid = child(move || {
        std::thread::sleep(Duration::from_millis(100));
        let sent = Outbox::new(ring, 1, 7).send(Kind::Inline, &[b"wake"], None, || true);
        assert_eq!(sent, Ok(()));
    });
    let arrived = inbox.receive(None, |_| false).expect("not corrupt").expect("a message");
    assert_eq!(arrived.header().source, 7);
    drop(arrived);
    assert_eq!(reap(pid), 0);
}

#[test]
fn a_full_ring_refuses_waits_and_notices_a_dead_receiver() {
    let ring = shared_ring(4);
    let mut outbox = Outbox::new(ring, 1, 1);
    let line = [0u8; LINE_SIZE - 8];
    for _ in 0..4 {
        assert_eq!(outbox.try_send(Kind::Inline, &[&line]), Ok(()));
    }
    let soon = || Some(Instant::now() + Duration::from_millis(30));
    let sent = outbox.send(Kind::Inline, &[&line], soon(), || true);
    assert_eq!(sent, Err(Refused::TimedOut));
    assert_eq!(outbox.send(Kind::Inline, &[&line], None, || false), Err(Refused::Dead));
    let sent = outbox.send(Kind::Inline, &[&[0; 4 * LINE_SIZE]], None, || true);
    assert_eq!(sent, Err(Refused::TooLong));
    let mut inbox = Inbox::new(ring);
    for _ in 0..4 {
        assert!(inbox.try_receive(|_| false).expect("not corrupt").is_some());
    }
    assert!(inbox.try_receive(|_| false).expect("not corrupt").is_none());
}
