//! Ports: processes that reach each other by entry and name, that fill each other's
//! buffers, that are rung out of their sleep, and that fork.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use fcp::arrived::Arrived;
use fcp::error::{Broken, Refused};
use fcp::header::Plan;
use fcp::member::{Card, Members};
use fcp::port::Port;
use sync::futex;
use sync::ring::Kind;

mod children;
use children::{again, child, cpu_time, kill, members_of, reap, soon};

fn members(most: u16) -> Arc<Members> {
    members_of(Plan { members: most, messages: 32 << 10, lendable: 0, listed: false })
}

fn join(members: &Arc<Members>, id: u32, index: u16) -> Port {
    Port::join(members, Card { id, group: 0 }, Some(index)).expect("a place")
}

fn bytes(arrived: &Arrived<'_>) -> Vec<u8> {
    let mut bytes = vec![0; arrived.header().length as usize];
    arrived.read(0, &mut bytes);
    bytes
}

#[test]
fn a_message_reaches_the_expected_peer_only() {
    let members = members(3);
    let (mut a, mut b) = (join(&members, 10, 0), join(&members, 11, 1));
    a.try_send(1, Some(11), Kind::Inline, &[b"good ", b"morning"]).expect("room");
    let arrived = b.receive(soon()).expect("in order").expect("a message");
    assert_eq!((bytes(&arrived), arrived.header().source), (b"good morning".to_vec(), 10));
    drop(arrived);
    let mut refused = |to, id| a.try_send(to, id, Kind::Inline, &[b"?"]).expect_err("refused");
    assert_eq!(refused(1, Some(12)), Refused::Gone);
    assert_eq!(refused(2, None), Refused::Gone);
    assert_eq!(refused(3, None), Refused::Gone);
    assert_eq!(a.try_send(1, None, Kind::Inline, &[&[0; 32 << 10]]), Err(Refused::TooLong));
    drop(b);
    assert_eq!(a.try_send(1, Some(11), Kind::Inline, &[b"?"]), Err(Refused::Gone));
    let mut b = join(&members, 12, 1);
    assert_eq!(a.try_send(1, Some(11), Kind::Inline, &[b"?"]), Err(Refused::Gone));
    a.try_send(1, Some(12), Kind::Inline, &[b"!"]).expect("room");
    a.try_send(1, None, Kind::Inline, &[b"!"]).expect("room");
    a.try_send(0, None, Kind::Inline, &[b"to myself"]).expect("room");
    assert_eq!(bytes(&b.try_receive().expect("in order").expect("a message")), b"!");
    assert_eq!(bytes(&b.try_receive().expect("in order").expect("a message")), b"!");
    assert!(b.try_receive().expect("in order").is_none());
    assert_eq!(bytes(&a.try_receive().expect("in order").expect("a message")), b"to myself");
}

#[test]
fn a_waiter_for_room_learns_of_a_killed_receiver() {
    let members = members(2);
    let mut port = join(&members, 1, 0);
    let pid = child(|| {
        let _port = join(&again(&members), 2, 1);
        std::thread::sleep(Duration::from_secs(60));
    });
    let card = Card { id: 2, group: 0 };
    while members.find(card).is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let line = [0; 50];
    while port.try_send(1, Some(2), Kind::Inline, &[&line]) != Err(Refused::Full) {}
    let end = Instant::now() + Duration::from_millis(50);
    let sent = port.send(1, Some(2), Kind::Inline, &[&line], Some(end), |_| ());
    assert_eq!(sent, Err(Refused::Full));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            kill(pid);
        });
        let sent = port.send(1, Some(2), Kind::Inline, &[&line], soon(), |_| ());
        assert_eq!(sent, Err(Refused::Dead));
    });
    // A new way finds out at once.
    drop(port);
    let sent = join(&members, 1, 0).try_send(1, Some(2), Kind::Inline, &[&line]);
    assert_eq!(sent, Err(Refused::Dead));
}

/// Sends `count` messages to the other before it receives any itself, but for those that
/// come while it waits for room. Then all must have come, in order.
fn flood(port: &mut Port, to: u16, count: u64) {
    let next = Cell::new(0);
    let take = |arrived: Arrived<'_>| {
        assert_eq!(
            bytes(&arrived),
            [next.replace(next.get() + 1); 40].map(u64::to_le_bytes).concat()
        );
    };
    for n in 0..count {
        let text = [n; 40].map(u64::to_le_bytes).concat();
        port.send(to, None, Kind::Inline, &[&text], None, take).expect("it lives");
    }
    while next.get() < count {
        take(port.receive(soon()).expect("in order").expect("a message in time"));
    }
}

#[test]
fn two_tasks_that_fill_each_others_buffers_both_finish() {
    const COUNT: u64 = 50_000;
    let members = members(2);
    let mut port = join(&members, 1, 0);
    let pid = child(|| {
        let mut port = join(&again(&members), 2, 1);
        flood(&mut port, 0, COUNT);
    });
    while members.find(Card { id: 2, group: 0 }).is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    flood(&mut port, 1, COUNT);
    assert_eq!(reap(pid), 0);
}

/// One waits for room at another, who does not receive but sends.
#[test]
fn messages_that_arrive_during_a_wait_for_room_are_delivered_at_once() {
    let members = members(2);
    let (mut a, mut b) = (join(&members, 1, 0), join(&members, 2, 1));
    while a.try_send(1, None, Kind::Inline, &[&[0; 50]]) != Err(Refused::Full) {}
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300)); // by then a sleeps its longest nap
            let sent_us = (0..20).map(|_| {
                let begin = Instant::now();
                b.try_send(0, None, Kind::Inline, &[b"ping"]).expect("room");
                std::thread::sleep(Duration::from_millis(2));
                begin
            });
            let begins: Vec<_> = sent_us.collect();
            while b.try_receive().expect("in order").is_some() {}
            begins
        });
        let mut times = Vec::new();
        let take = |arrived: Arrived<'_>| {
            assert_eq!(bytes(&arrived), b"ping");
            times.push(Instant::now());
        };
        a.send(1, None, Kind::Inline, &[&[0; 50]], soon(), take).expect("room in the end");
        // Naps of 20 ms would give them over in two or three lots.
        let gaps = times.windows(2).filter(|pair| pair[1] - pair[0] > Duration::from_millis(1));
        assert!(times.len() == 20 && gaps.count() > 10, "{times:?}");
    });
}

#[test]
fn a_doorbell_ends_this_wait_or_the_next_one() {
    let members = members(1);
    let mut port = join(&members, 1, 0);
    let bell = port.bell();
    bell.ring();
    let begin = Instant::now();
    assert!(port.receive(soon()).expect("in order").is_none());
    std::thread::scope(|scope| {
        for pause in [0, 1, 20, 200] {
            let bell = bell.clone();
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(pause));
                bell.ring();
            });
            assert!(port.receive(soon()).expect("in order").is_none());
        }
    });
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    // It has ended one wait, not two; and messages come first.
    bell.ring();
    port.try_send(0, None, Kind::Inline, &[b"hi"]).expect("room");
    assert!(port.receive(soon()).expect("in order").is_some());
    assert!(port.receive(soon()).expect("in order").is_none());
    let end = Instant::now() + Duration::from_millis(30);
    assert!(port.receive(Some(end)).expect("in order").is_none());
    assert!(Instant::now() >= end);
}

#[test]
fn a_wait_ends_with_a_message_or_when_a_word_has_changed() {
    let members = members(2);
    let (mut port, mut other) = (join(&members, 1, 0), join(&members, 2, 1));
    let word = || members.window().word32(members.window().plain().start).expect("plain memory");
    assert!(port.receive_while(word(), 7, soon()).expect("in order").is_none());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Long after it has gone to sleep.
            std::thread::sleep(Duration::from_millis(20));
            other.try_send(0, Some(1), Kind::Inline, &[b"first"]).expect("room");
            std::thread::sleep(Duration::from_millis(20));
            word().store(1, SeqCst);
            futex::wake(word());
        });
        let begin = Instant::now();
        let arrived = port.receive_while(word(), 0, soon()).expect("in order").expect("a message");
        assert_eq!(bytes(&arrived), b"first");
        drop(arrived);
        assert!(port.receive_while(word(), 0, soon()).expect("in order").is_none());
        assert!(begin.elapsed() < Duration::from_millis(900), "{:?}", begin.elapsed());
    });
}

#[test]
fn a_doorbell_does_not_keep_a_waiter_for_room_awake() {
    let members = members(2);
    let (mut a, b) = (join(&members, 1, 0), join(&members, 2, 1));
    while a.try_send(1, None, Kind::Inline, &[&[0; 50]]) != Err(Refused::Full) {}
    a.bell().ring();
    let before = cpu_time();
    let end = Some(Instant::now() + Duration::from_millis(400));
    assert_eq!(a.send(1, None, Kind::Inline, &[&[0; 50]], end, |_| ()), Err(Refused::Full));
    assert!(cpu_time() - before < Duration::from_millis(100), "{:?}", cpu_time() - before);
    assert!(a.receive(soon()).expect("in order").is_none(), "the bell ends the next wait");
    drop(b);
}

#[test]
fn a_forked_child_does_not_use_its_parents_port() {
    let members = members(2);
    let mut port = join(&members, 1, 0);
    let pid = child(|| {
        assert_eq!(port.try_send(0, None, Kind::Inline, &[b"?"]), Err(Refused::Forked));
        assert_eq!(port.receive(None).expect_err("refused"), Broken::Forked);
        assert_eq!(port.try_receive().expect_err("refused"), Broken::Forked);
        drop(join(&members, 2, 1));
    });
    assert_eq!(reap(pid), 0);
    port.try_send(0, None, Kind::Inline, &[b"still here"]).expect("room");
    assert!(port.try_receive().expect("in order").is_some());
}
