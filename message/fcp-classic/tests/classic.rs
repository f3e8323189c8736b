//! FCP and FCP plus send messages by ID and group, of any length, in order, with full buffers and
//! with members killed at any instant. `NAGAYA_SEED=n` repeats a run's choices.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use fastrand::Rng;
use fcp::error::{Broken, Refused};
use fcp::header::Plan;
use fcp::mail::{Mail, Received};
use fcp::member::{Card, Members};
use fcp::port::Port;
use fcp::protocol::Protocol;
use fcp_classic::port;

#[path = "../../fcp/tests/children/mod.rs"]
mod children;
use children::{again, child, eventually, kill, kill_and_replace, members_of, reap, seed, soon};

fn members(most: u16) -> Arc<Members> {
    members_of(Plan { members: most, messages: 128 << 10, lendable: 0, listed: true })
}

fn join(members: &Arc<Members>, id: u32, group: u32, cached: bool) -> By {
    let protocol = if cached { Protocol::FcpPlus } else { Protocol::Fcp };
    let port = port::join(protocol, members, Card { id, group }, None).expect("a free entry");
    By(Mail::new(port))
}

/// A port that sends to the members that the table lists: their entries do not matter.
struct By(Mail);

impl By {
    fn send(&mut self, id: u32, bytes: &[u8], until: Option<Instant>) -> Result<(), Refused> {
        self.0.send(u16::MAX, Some(id), bytes, until)
    }
}

fn receive(By(mail): &mut By, from: &[u32]) -> (u32, Vec<u8>) {
    let mut bytes = vec![0; 1 << 20];
    let received = mail.receive(&mut bytes, from, soon()).expect("in order").expect("in time");
    bytes.truncate(received.length);
    (received.source, bytes)
}

#[test]
fn ids_and_groups_find_each_other_by_both_protocols_at_once() {
    let members = members(5);
    let refused = Port::join(&members, Card::default(), None).expect_err("FCP II's is another");
    assert!(refused.to_string().contains("of this protocol"), "{refused}");
    let [mut a, mut b] = [false, true].map(|cached| join(&members, 70_000, 0, cached));
    drop(b);
    b = join(&members, 9, 0, true);
    let mut c = join(&members, 9, 1, false);
    a.send(9, b"to b", soon()).expect("room");
    assert_eq!(c.send(70_000, b"?", soon()), Err(Refused::Gone));
    c.send(9, b"to myself", soon()).expect("room");
    let sent = b.send(70_000, &[7; 100_000], Some(Instant::now()));
    assert_eq!(sent, Err(Refused::Full), "nobody makes room, and the time is over");
    std::thread::scope(|scope| {
        scope.spawn(|| b.send(70_000, &[8; 100_000], soon()).expect("in parts"));
        assert!(receive(&mut a, &[]) == (9, vec![8; 100_000]));
    });
    assert_eq!(receive(&mut b, &[]), (70_000, b"to b".to_vec()));
    assert_eq!(receive(&mut c, &[9]), (9, b"to myself".to_vec()));
    // The cache notices the new owner of the entry.
    drop(a);
    assert_eq!(b.send(70_000, b"?", soon()), Err(Refused::Gone));
    let mut a = join(&members, 70_000, 0, false);
    for (n, id) in [70_001, 70_002].into_iter().enumerate() {
        join(&members, id, 0, true).send(70_000, &[n as u8], soon()).expect("room");
    }
    b.send(70_000, b"", soon()).expect("room");
    assert_eq!(a.0.select(&[70_002], None), Ok(Some(Received { source: 70_002, length: 1 })));
    assert_eq!(receive(&mut a, &[70_002]), (70_002, vec![1]));
    assert_eq!(receive(&mut a, &[]), (70_001, vec![0]));
    assert_eq!(receive(&mut a, &[]), (9, vec![]));
    assert_eq!(a.0.select(&[], Some(Instant::now())), Ok(None));
    let pid = child(|| {
        assert_eq!(a.send(9, b"?", None), Err(Refused::Forked));
        assert_eq!(a.0.receive(&mut [], &[], None), Err(Broken::Forked));
    });
    assert_eq!(reap(pid), 0);
}

#[test]
fn two_tasks_that_fill_each_others_buffers_both_finish() {
    const COUNT: u32 = 3000;
    let members = members(2);
    let flood = |mut classic: By, to: u32| {
        for n in 0..COUNT {
            classic.send(to, &n.to_le_bytes().repeat(100), soon()).expect("room in time");
        }
        for n in 0..COUNT {
            assert_eq!(receive(&mut classic, &[to]).1, n.to_le_bytes().repeat(100));
        }
        classic // the other may still send to us
    };
    let first = join(&members, 1, 0, false);
    let pid = child(|| {
        let classic = flood(join(&again(&members), 2, 0, true), 1);
        std::thread::sleep(Duration::from_millis(200));
        drop(classic);
    });
    while members.find(Card { id: 2, group: 0 }).is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(flood(first, 2));
    assert_eq!(reap(pid), 0);
}

#[test]
fn a_waiter_for_room_learns_of_a_killed_receiver() {
    let members = members(2);
    let mut classic = join(&members, 1, 0, true);
    let pid = child(|| {
        let members = again(&members);
        let mut classic = join(&members, 2, 0, true);
        classic.send(1, b"here", soon()).expect("room");
        std::thread::sleep(Duration::from_secs(60));
    });
    receive(&mut classic, &[]);
    while classic.send(2, &[0; 1000], Some(Instant::now())).is_ok() {}
    kill(pid);
    assert_eq!(classic.send(2, &[0; 1000], soon()), Err(Refused::Dead));
}

#[test]
fn members_killed_at_random_instants_tear_no_message() {
    const PLACES: u16 = 5;
    let mut random = Rng::with_seed(seed());
    let members = members(PLACES);
    let at = members.window().plain().start;
    let life = |id: u32| {
        let members = again(&members);
        child(move || {
            let received = members.window().word64(at).expect("in the window");
            let mut classic = join(&members, id, 0, id.is_multiple_of(2));
            let mut random = Rng::with_seed(id.into());
            let mut bytes = vec![0; 1 << 20];
            loop {
                let words = 1 + random.usize(..2000);
                let text = random.u64(..).to_le_bytes().repeat(words);
                let end = Some(Instant::now() + Duration::from_millis(2));
                if let Some(to) = members.entry(random.u16(..PLACES)) {
                    let sent = classic.send(to.card.id, &text, end);
                    assert!(!matches!(sent, Err(Refused::TooLong | Refused::Forked)));
                }
                while let Some(got) =
                    classic.0.receive(&mut bytes, &[], Some(Instant::now())).expect("in order")
                {
                    let mut words = bytes[..got.length].chunks_exact(8);
                    let number = words.next().expect("a word");
                    assert!(words.all(|word| word == number), "torn");
                    received.fetch_add(1, SeqCst);
                }
            }
        })
    };
    let deaths = kill_and_replace(&mut random, 4, Duration::from_secs(5), life);
    let received = members.window().word64(at).expect("in the window").load(SeqCst);
    println!("{deaths} deaths, {received} messages");
    assert!(deaths > 5 && received > 100, "{deaths} deaths, {received} messages");
}

/// A message, the bell and another word each wake a receiver; room wakes a sender.
#[test]
fn sleepers_are_woken() {
    use std::sync::atomic::AtomicU32;
    use sync::futex;
    use sync::ring::Kind;
    for protocol in [Protocol::Fcp, Protocol::FcpPlus] {
        let members = members(2);
        let join = |id| {
            let card = Card { id, group: 0 };
            port::join(protocol, &members, card, None).expect("a free entry")
        };
        let [mut a, mut b] = [1, 2].map(join);
        assert!(a.try_receive().expect("in order").is_none());
        let mut times = Vec::new();
        let word = AtomicU32::new(0);
        for _ in 0..5 {
            let asleep = Duration::from_millis(5);
            let step = AtomicU32::new(0);
            std::thread::scope(|scope| {
                let bell = a.bell();
                let (a, b, word, step) = (&mut a, &mut b, &word, &step);
                scope.spawn(move || {
                    assert!(a.receive(None).expect("in order").is_none(), "the bell");
                    step.store(1, SeqCst);
                    let end = a.receive_while(word, 0, None).expect("in order");
                    assert!(end.is_none(), "the word");
                    drop(end);
                    step.store(2, SeqCst);
                    let length = a.receive(None).expect("in order").expect("one").header().length;
                    assert_eq!(length, 4);
                    step.store(3, SeqCst);
                });
                let mut wakes = |to: u32, wake: &mut dyn FnMut()| {
                    std::thread::sleep(asleep);
                    let begin = Instant::now();
                    wake();
                    eventually("it is woken", || step.load(SeqCst) == to);
                    times.push((to, begin.elapsed()));
                };
                wakes(1, &mut || bell.ring());
                wakes(2, &mut || {
                    word.store(1, SeqCst);
                    futex::wake(word);
                });
                wakes(3, &mut || {
                    b.try_send(u16::MAX, Some(1), Kind::Inline, &[b"to", b"", b" a"]).expect("room")
                });
            });
            word.store(0, SeqCst);
            while b.try_send(u16::MAX, Some(1), Kind::Inline, &[&[0; 1000]]).is_ok() {}
            std::thread::scope(|scope| {
                let (a, b) = (&mut a, &mut b);
                let waiter = scope.spawn(move || {
                    b.send(u16::MAX, Some(1), Kind::Inline, &[&[0; 1000]], None, |_| ())
                });
                std::thread::sleep(asleep);
                while a.try_receive().expect("in order").is_some() {}
                assert_eq!(waiter.join().expect("it ends"), Ok(()));
            });
            while a.try_receive().expect("in order").is_some() {}
        }
        // A receiver that nobody wakes looks again after a second.
        for step in 1..=3 {
            let fastest = times.iter().filter(|(to, _)| *to == step).map(|(_, time)| time).min();
            assert!(fastest < Some(&Duration::from_millis(500)), "{step}: {times:?}");
        }
    }
}
