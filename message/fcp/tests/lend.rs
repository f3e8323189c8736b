//! Memory that is lent with messages: it comes back, it outlives its lender, and nobody's
//! death tears it. `NAGAYA_SEED=n` repeats a run's choices.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use fastrand::Rng;
use fcp::arrived::Arrived;
use fcp::error::Refused;
use fcp::header::Plan;
use fcp::loan::{Loan, Terms};
use fcp::member::{Card, Members};
use fcp::port::Port;
use sync::ring::Kind;

mod children;
use children::{
    again, child, eventually, join, kill, kill_and_replace, members_of, reap, seed, soon,
};

const LENDABLE: usize = 4 << 20;

fn members(most: u16) -> Arc<Members> {
    members_of(Plan { members: most, messages: 256 << 10, lendable: LENDABLE, listed: false })
}

fn lend(port: &mut Port, to: u16, text: &[u8]) -> Result<(), Refused> {
    let mut block = port.block(text.len()).expect("room");
    block.copy_from_slice(text);
    port.send_lent(to, None, &[b"see ", b"there"], (&block.share(), 0..text.len()), soon(), |_| ())
}

fn loan(port: &mut Port) -> Loan {
    let mut arrived = port.receive(soon()).expect("in order").expect("a message");
    let mut text = vec![0; arrived.header().length as usize];
    arrived.read(0, &mut text);
    assert_eq!((arrived.header().kind, &text[..]), (Kind::Lent, &b"see there"[..]));
    let loan = arrived.loan().expect("a loan");
    assert!(arrived.loan().is_none(), "once only");
    loan
}

#[test]
fn a_block_is_free_again_when_all_have_given_it_back() {
    let members = members(3);
    let [mut a, mut b, mut c] = [0, 1, 2].map(|index| join(&members, index));
    assert!(a.block(LENDABLE).is_none(), "the slots take some of it");
    let whole = LENDABLE * 3 / 4;
    let mut block = a.block(whole).expect("room");
    block[10..13].copy_from_slice(b"abc");
    let memory = block.share();
    for to in [1, 2, 1] {
        let lent = (&memory, 10 + usize::from(to)..13);
        a.send_lent(to, None, &[b"see there"], lent, soon(), |_| ()).expect("room");
    }
    let loans = [loan(&mut b), loan(&mut c), loan(&mut b)];
    assert_eq!(loans.each_ref().map(|loan| &loan[..]), [&b"bc"[..], b"c", b"bc"]);
    drop(memory);
    for loan in loans {
        assert!(a.block(whole).is_none(), "{loan:?} is still out");
    }
    let at = a.block(whole).expect("all came back").as_ptr();
    assert_eq!(a.block(whole).expect("again").as_ptr(), at, "still warm");
    // Who drops the message gives back what it lends.
    lend(&mut a, 1, &vec![1; whole]).expect("room");
    assert!(a.block(whole).is_none());
    drop(b.receive(soon()).expect("in order").expect("a message"));
    assert!(a.block(whole).is_some());
    // And so does a message that does not go out.
    drop(c);
    assert_eq!(lend(&mut a, 2, &vec![1; whole]), Err(Refused::Gone));
    while a.try_send(1, None, Kind::Inline, &[&[0; 50]]) != Err(Refused::Full) {}
    let mut block = a.block(whole).expect("it did not go out");
    block[0] = 1;
    let (memory, now) = (block.share(), Some(Instant::now()));
    assert_eq!(a.send_lent(1, None, &[], (&memory, 0..1), now, |_| ()), Err(Refused::Full));
    drop(memory);
    assert!(a.block(whole).is_some());
}

/// Entry 1 changes its owner all the time. Each message gets there with its loan, or not at all.
#[test]
fn a_new_owner_of_an_entry_gets_no_message_without_its_loan() {
    let members = members(2);
    let mut sender = join(&members, 0);
    let share = |sender: &mut Port| {
        let mut block = sender.block(8).expect("room");
        block.copy_from_slice(b"the data");
        block.share()
    };
    let mut memory = share(&mut sender);
    let (done, end) = (AtomicBool::new(false), soon());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut owners, mut messages) = (0, 0);
            while (owners < 200 || messages < 200) && Some(Instant::now()) < end {
                let mut receiver = join(&members, 1);
                owners += 1;
                let stay = Some(Instant::now() + Duration::from_micros(100));
                while let Some(mut arrived) = receiver.receive(stay).expect("in order") {
                    let loan = arrived.loan().map(|loan| loan.to_vec());
                    done.fetch_or(loan.is_none(), SeqCst);
                    assert_eq!(loan.as_deref(), Some(&b"the data"[..]), "a loan to this owner");
                    messages += 1;
                }
            }
            done.store(true, SeqCst);
            println!("{owners} owners, {messages} messages");
            assert!(messages > 0, "{owners} owners");
        });
        while !done.load(SeqCst) && Some(Instant::now()) < end {
            match sender.try_send_lent(1, None, &[b"see there"], (&memory, 0..8)) {
                Ok(()) | Err(Refused::Gone | Refused::Dead) => {}
                Err(Refused::Full) => {
                    // A block that does not fit makes the sender ask which borrowers have ended.
                    drop(memory);
                    assert!(sender.block(LENDABLE).is_none());
                    memory = share(&mut sender);
                }
                Err(refused) => panic!("{refused:?}"),
            }
        }
    });
}

#[test]
fn a_loan_is_passed_on_and_its_last_holder_returns_it() {
    let members = members(3);
    let [mut a, mut b, mut c] = [0, 1, 2].map(|index| join(&members, index));
    let whole = LENDABLE * 3 / 4;
    let mut block = a.block(whole).expect("room");
    block[..3].copy_from_slice(b"abc");
    let memory = block.share();
    // Without a message: the terms go another way.
    let terms = Terms::parse(a.lend(1, Some(1), (&memory, 0..3)).expect("a slot").bytes());
    drop(memory);
    assert!(c.loan(terms).is_none(), "it is not lent to c");
    let mut first = b.loan(terms).expect("lent");
    // While c has no room, it stays b's.
    let mut filled = 0;
    while b.try_send(2, None, Kind::Inline, &[&[0; 50]]) != Err(Refused::Full) {
        filled += 1;
    }
    assert_eq!(b.try_hand_on(2, None, &[b"see there"], &mut first), Err(Refused::Full));
    assert_eq!(&first[..], b"abc");
    for _ in 0..filled {
        drop(c.receive(soon()).expect("in order").expect("a message"));
    }
    assert_eq!(b.try_hand_on(2, None, &[b"see there"], &mut first), Ok(()));
    drop(first);
    let last = loan(&mut c);
    assert_eq!(&last[..], b"abc");
    assert!(a.block(whole).is_none(), "c has it");
    drop(last);
    let block = a.block(whole).expect("all came back");
    // One who ends with what was handed on to it has given it back, too.
    let terms = a.lend(1, None, (&block.share(), 0..1)).expect("a slot");
    let mut loan = b.loan(terms).expect("lent");
    assert_eq!(b.try_hand_on(2, None, &[b"see there"], &mut loan), Ok(()));
    drop(c);
    drop(loan);
    assert!(a.block(whole).is_some());
}

#[test]
fn a_loan_outlives_its_lender_at_its_address() {
    let members = members(3);
    let mut port = join(&members, 0);
    let pid = child(|| {
        let mut port = join(&again(&members), 1);
        lend(&mut port, 0, b"from the dead").expect("room");
        std::thread::sleep(Duration::from_secs(60));
    });
    let loan = loan(&mut port);
    kill(pid);
    let card = Card { id: 1, group: 0 };
    let refused = Port::join(&members, card, Some(1)).expect_err("lent").to_string();
    assert!(refused.contains("member 0 still has a loan from place 1"), "{refused}");
    let other = Port::join(&members, card, None).expect("another place");
    assert_eq!(other.peer().index, 2);
    drop(other);
    let mut left = vec![0, 1, 2];
    members.give_back_of_the_dead(&mut left).expect("nothing to give");
    assert_eq!(left, [0, 1], "one lives, of the other something is lent, the third has left");
    assert_eq!(&loan[..], b"from the dead");
    drop(loan);
    let mut next = join(&members, 1);
    lend(&mut next, 0, b"from the living").expect("room");
}

#[test]
fn loans_of_a_dead_borrower_are_returned() {
    let members = members(2);
    let mut port = join(&members, 0);
    let pid = child(|| {
        let mut port = join(&again(&members), 1);
        let _loan = loan(&mut port);
        port.try_send(0, None, Kind::Inline, &[b"have it"]).expect("room");
        std::thread::sleep(Duration::from_secs(60));
    });
    eventually("it joins", || members.entry(1).is_some());
    let whole = LENDABLE * 3 / 4;
    lend(&mut port, 1, &vec![7; whole]).expect("room");
    port.receive(soon()).expect("in order").expect("word");
    assert!(port.block(whole).is_none());
    kill(pid);
    assert!(port.block(whole).is_some());
}

#[test]
fn a_message_that_tells_of_no_true_loan_gives_none() {
    let members = members(2);
    let (mut a, mut b) = (join(&members, 0), join(&members, 1));
    let mut random = Rng::with_seed(seed());
    let mut forged = |at: u64, length: u64, lender: u16, slot: u16| {
        let ids = u64::from(slot) << 16 | u64::from(lender);
        let terms = [at, length, ids].map(u64::to_le_bytes).concat();
        a.try_send(1, None, Kind::Lent, &[&terms]).expect("room");
        let mut arrived = b.try_receive().expect("in order").expect("a message");
        assert_eq!(arrived.header().length, 0);
        assert!(arrived.loan().is_none());
    };
    forged(0, 8, 0, 1); // nobody has lent it
    forged(u64::MAX, 8, 0, 1);
    forged(8, u64::MAX, 0, 1);
    forged(LENDABLE as u64, 1, 0, 1);
    forged(0, 8, 2, 1);
    forged(0, 8, u16::MAX, u16::MAX);
    forged(0, 8, 0, 0);
    for _ in 0..1000 {
        forged(random.u64(..), random.u64(..), random.u16(..3), random.u16(..));
    }
    a.try_send(1, None, Kind::Lent, &[b"short"]).expect("room");
    b.try_receive().expect_err("no sender writes that");
}

#[test]
fn pages_of_ended_tasks_return_to_the_system() {
    use std::os::unix::fs::MetadataExt;
    let members = members(2);
    let file = members.window().memory().as_fd().try_clone_to_owned().expect("a copy");
    let file = std::fs::File::from(file);
    let pages = || file.metadata().expect("its size").blocks() / 8;
    let mut port = join(&members, 0);
    port.block(LENDABLE / 2).expect("room").fill(1);
    assert!(pages() > 400);
    drop(port);
    assert!(pages() < 300, "{}", pages());
    for lends in [true, false] {
        let pid = child(|| {
            let mut port = join(&again(&members), 0);
            match lends {
                true => lend(&mut port, 0, &[1; LENDABLE / 2]).expect("room"),
                // As one that is killed before it has sent.
                false => port.block(LENDABLE / 2).expect("room").fill(1),
            }
            std::thread::sleep(Duration::from_secs(60));
        });
        eventually("it fills a block", || pages() > 500);
        kill(pid);
        let mut left = vec![0];
        members.give_back_of_the_dead(&mut left).expect("it does");
        assert!(left.is_empty());
        assert!(pages() < 300, "{}, lends {lends}", pages());
    }
}

/// Members lend each other memory, in which every word is the number of the message. They
/// keep some for a while, and are killed and replaced. Nobody ever reads another message's.
#[test]
fn members_killed_at_random_instants_tear_no_loan() {
    const PLACES: u16 = 5;
    let mut random = Rng::with_seed(seed());
    let members = members(PLACES);
    let at = members.window().plain().start;
    let received = members.window().word64(at).expect("in the window");
    let life = |id: u32| {
        let members = again(&members);
        child(move || {
            let received = members.window().word64(at).expect("in the window");
            let place = || Port::join(&members, Card { id, group: 0 }, None).ok();
            // All places but ours may be kept by loans.
            let mut port = loop {
                if let Some(port) = place() {
                    break port;
                }
            };
            let mut random = Rng::with_seed(id.into());
            let mut kept: Vec<(u64, Loan)> = Vec::new();
            let mut number = u64::from(id) << 32;
            let check = |number: u64, loan: &Loan| {
                let words = loan.chunks_exact(8);
                assert!(words.into_iter().all(|word| word == number.to_le_bytes()), "torn");
            };
            loop {
                let mut came = Vec::new();
                let mut take = |mut arrived: Arrived<'_>| {
                    let mut text = [0; 8];
                    arrived.read(0, &mut text);
                    came.push((u64::from_le_bytes(text), arrived.loan().expect("a loan")));
                };
                number += 1;
                let words = 1 + random.usize(..20_000);
                if let Some(mut block) = port.block(words * 8) {
                    block.copy_from_slice(&number.to_le_bytes().repeat(words));
                    let memory = block.share();
                    for _ in 0..random.u64(..3) {
                        let to = random.u16(..PLACES);
                        let end = Some(Instant::now() + Duration::from_millis(1));
                        let lent = (&memory, 0..words * 8);
                        let text = number.to_le_bytes();
                        let sent = port.send_lent(to, None, &[&text], lent, end, &mut take);
                        assert!(!matches!(sent, Err(Refused::TooLong | Refused::Forked)));
                    }
                }
                while let Some(arrived) = port.receive(Some(Instant::now())).expect("in order") {
                    take(arrived);
                }
                for (number, loan) in came {
                    check(number, &loan);
                    received.fetch_add(1, SeqCst);
                    if kept.len() == 8 {
                        let (number, loan) = kept.swap_remove(random.usize(..8));
                        check(number, &loan);
                    }
                    kept.push((number, loan));
                }
            }
        })
    };
    // One place stays free for who comes when all others are kept by loans.
    let living = u32::from(PLACES) - 2;
    let deaths = kill_and_replace(&mut random, living, Duration::from_secs(5), life);
    let received = received.load(SeqCst);
    println!("{deaths} deaths, {received} loans");
    assert!(deaths > 5 && received > 100, "{deaths} deaths, {received} loans");
    assert_eq!(reap(child(|| drop(join(&again(&members), 0)))), 0, "nobody has a loan now");
}
