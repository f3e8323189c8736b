//! Loans in advance: a borrower reads behind its lender, or out of its memory, and has what was
//! sent or an error, whatever the lender does afterwards, and whenever it dies. `NAGAYA_SEED=n`
//! repeats a run's choices.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use fastrand::Rng;
use fcp::advance::Advance;
use fcp::error::{Lost, Refused};
use fcp::header::Plan;
use fcp::member::{Card, Members};
use fcp::port::Port;
use sync::ring::Kind;

mod children;
use children::{
    again, child, eventually, join, kill, kill_and_replace, members_of, reap, seed, soon,
};

const LENDABLE: usize = 16 << 20;
const LENGTH_MAX: usize = 2 << 20;
/// Bytes of a piece, of which the last may have fewer.
const PIECE: usize = 20_000;

fn members(most: u16) -> Arc<Members> {
    members_of(Plan { members: most, messages: 256 << 10, lendable: LENDABLE, listed: false })
}

fn send(port: &mut Port, to: u16, text: &[u8], pieces: &[&[u8]]) -> Result<(), Refused> {
    port.send_in_advance(to, None, &[text], pieces, soon(), |_| ())
}

/// The next loan, unless its lender died before all was there; and the text with it.
fn advance(port: &mut Port) -> Option<(u64, Option<Advance>)> {
    let mut arrived = port.receive(soon()).expect("in order")?;
    let mut text = [0; 8];
    arrived.read(0, &mut text);
    Some((u64::from_le_bytes(text), arrived.advance()))
}

/// Reads all in up to four pieces, by whatever way each comes.
fn read(advance: &Advance, random: &mut Rng, reach: bool) -> Result<Vec<u8>, Lost> {
    let mut bytes = vec![0; advance.length()];
    let mut at = 0;
    while at < bytes.len() {
        let left = bytes.len() - at;
        let now = if random.u64(..4) == 0 { left } else { 1 + random.usize(..left) };
        match random.u64(..4) {
            0 => {
                advance.settle(at + now, |_| reach)?;
                bytes[at..at + now].copy_from_slice(advance.bytes(at..at + now));
            }
            _ => advance.read(at, &mut bytes[at..at + now], |_| reach)?,
        }
        at += now;
    }
    Ok(bytes)
}

/// A number, over and over.
fn fill(bytes: &mut [u8], number: u64) {
    for word in bytes.chunks_mut(8) {
        word.copy_from_slice(&number.to_le_bytes()[..word.len()]);
    }
}

fn is_full_of(bytes: &[u8], number: u64) -> bool {
    bytes.chunks(8).all(|word| *word == number.to_le_bytes()[..word.len()])
}

/// Sends messages for ever, in pieces that are overwritten as soon as they are sent; the next
/// one when it is asked for. Pauses often, since a fast sender has written a whole message before
/// its borrower looks.
fn send_for_ever(port: &mut Port, to: u16, first: u64) {
    pause_often();
    let mut random = Rng::with_seed(first);
    let mut source = vec![0; LENGTH_MAX];
    for number in first.. {
        let length = 8 * (1 + random.usize(..LENGTH_MAX / 8));
        fill(&mut source[..length], number);
        let pieces: Vec<_> = source[..length].chunks(PIECE).collect();
        send(port, to, &number.to_le_bytes(), &pieces).expect("room");
        source.fill(0xee);
        drop(port.receive(None).expect("in order"));
    }
}

/// Makes the process pause each millisecond, wherever it is, for a third of one.
fn pause_often() {
    extern "C" fn pause(_: i32) {
        let time = libc::timespec { tv_sec: 0, tv_nsec: 300_000 };
        // SAFETY: nanosleep may be called in a handler of signals; the time is on our stack.
        unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
    }
    let interval = libc::timeval { tv_sec: 0, tv_usec: 1_000 };
    let timer = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: zero is valid for a sigaction. The handler has no parameters but the signal, and
    // calls nothing that a handler must not.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = pause as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()), 0);
        assert_eq!(libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()), 0);
    }
}

fn ask_for_more(port: &mut Port) {
    port.try_send(1, None, Kind::Inline, &[b"more"]).expect("room");
}

/// Messages that are read before they are all there, some while their sender is stopped.
#[test]
fn received_data_is_unaffected_by_the_senders_next_write() {
    let seed = seed();
    for reach in [true, false] {
        let members = members(2);
        let mut port = join(&members, 0);
        let pid = child(|| send_for_ever(&mut join(&again(&members), 1), 0, 1));
        let mut random = Rng::with_seed(seed);
        let end = Instant::now() + Duration::from_secs(20);
        let (mut messages, mut early) = (0, 0);
        while early < 50 || messages < 200 {
            assert!(Instant::now() < end, "{messages} messages, {early} early, reach {reach}");
            let (number, advance) = advance(&mut port).expect("a message");
            let advance = advance.expect("its lender lives");
            let stops = reach && random.bool();
            if stops {
                signal(pid, libc::SIGSTOP);
            }
            early += u64::from(!advance.is_full());
            let length = advance.length();
            let bytes = match stops {
                // All in one: what is left of it could be as little as must be waited for.
                true => {
                    let mut bytes = vec![0; length];
                    let there = advance.is_full() || length >= 1 << 16;
                    if there {
                        advance.read(0, &mut bytes, |_| true).expect("its lender lives");
                    }
                    signal(pid, libc::SIGCONT);
                    if !there {
                        advance.read(0, &mut bytes, |_| true).expect("its lender lives");
                    }
                    bytes
                }
                false => read(&advance, &mut random, reach).expect("its lender lives"),
            };
            assert!(is_full_of(&bytes, number), "not message {number}");
            assert!(advance.settle(length, |_| reach).is_ok());
            assert!(is_full_of(advance.bytes(0..length), number), "{number}, once more");
            messages += 1;
            ask_for_more(&mut port);
        }
        kill(pid);
        println!("{messages} messages, {early} before they were written, reach {reach}");
    }
}

/// A borrower that is stopped in the middle of copying out of its lender's memory, until the
/// lender has long written something else there.
#[test]
fn a_borrower_that_is_late_reads_what_was_sent() {
    let mut random = Rng::with_seed(seed());
    let members = members(2);
    let at = members.window().plain().start;
    let received = members.window().word64(at).expect("in the window");
    let borrower = child(|| {
        let mut port = join(&again(&members), 0);
        let mut bytes = vec![0; LENGTH_MAX];
        loop {
            let (number, advance) = advance(&mut port).expect("a message");
            let advance = advance.expect("its lender lives");
            let bytes = &mut bytes[..advance.length()];
            advance.read(0, bytes, |_| true).expect("its lender lives");
            let mut pieces = bytes.chunks(PIECE);
            assert!(pieces.all(|piece| piece[..8] == number.to_le_bytes()), "not {number}");
            received.fetch_add(1, SeqCst);
            ask_for_more(&mut port);
        }
    });
    eventually("it joins", || members.entry(0).is_some());
    let lender = child(|| send_for_ever(&mut join(&again(&members), 1), 0, 1));
    eventually("messages come", || received.load(SeqCst) > 10);
    for _ in 0..1000 {
        std::thread::sleep(Duration::from_micros(random.u64(..2000)));
        signal(borrower, libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(1));
        signal(borrower, libc::SIGCONT);
    }
    assert!(!children::has_ended(borrower), "it failed");
    kill(borrower);
    kill(lender);
    println!("{} messages", received.load(SeqCst));
}

fn signal(pid: libc::pid_t, signal: i32) {
    // SAFETY: our own child.
    unsafe { libc::kill(pid, signal) };
}

#[test]
fn a_lender_stops_when_no_task_needs_it() {
    let members = members(2);
    let mut port = join(&members, 0);
    let pid = child(|| {
        let mut port = join(&again(&members), 1);
        // Far more than can be lent at once, if they did not come back.
        for number in 0..100_u64 {
            let source = vec![number as u8; LENDABLE / 2];
            let mut sent = Err(Refused::OutOfReach);
            while sent == Err(Refused::OutOfReach) {
                sent = send(&mut port, 0, &number.to_le_bytes(), &[&source]);
            }
            sent.expect("room");
        }
    });
    for number in 0..100 {
        let (text, advance) = advance(&mut port).expect("a message");
        assert_eq!(text, number);
        drop(advance.expect("its lender lives"));
    }
    assert_eq!(reap(pid), 0);
}

#[test]
fn unwritten_data_of_a_dead_lender_is_lost_unless_its_memory_exists() {
    let members = members(2);
    let mut port = join(&members, 0);
    let mut random = Rng::with_seed(seed());
    let (mut lost, mut whole) = (0, 0);
    let end = Instant::now() + Duration::from_secs(20);
    while lost < 5 {
        assert!(Instant::now() < end, "{whole} whole, {lost} lost");
        let pid = child(|| send_for_ever(&mut join(&again(&members), 1), 0, 1));
        for _ in 0..random.u64(..4) {
            drop(advance(&mut port).expect("a message"));
            ask_for_more(&mut port);
        }
        let (number, advance) = advance(&mut port).expect("a message");
        let advance = advance.expect("its lender lives");
        kill(pid);
        // As an ordinary process, of which nothing is left, whatever is said of its PID.
        match read(&advance, &mut random, true) {
            Ok(bytes) => {
                assert!(is_full_of(&bytes, number), "torn");
                whole += 1;
            }
            Err(Lost) => {
                assert!(!advance.is_full());
                assert_eq!(advance.settle(advance.length(), |_| true), Err(Lost));
                lost += 1;
            }
        }
    }
    println!("{whole} whole, {lost} lost");
}

/// Members lend each other memory in advance, and are killed and replaced: whatever somebody
/// has read without an error is what was sent, and all memory comes back.
#[test]
fn members_killed_at_random_instants_tear_no_loan_in_advance() {
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
            let mut port = loop {
                if let Some(port) = place() {
                    break port;
                }
            };
            let mut random = Rng::with_seed(id.into());
            let mut source = vec![0; LENGTH_MAX];
            let mut number = u64::from(id) << 32;
            loop {
                number += 1;
                let length = 8 * (1 + random.usize(..LENGTH_MAX / 8));
                fill(&mut source[..length], number);
                let to = random.u16(..PLACES);
                if to != port.peer().index {
                    let end = Some(Instant::now() + Duration::from_millis(1));
                    let mut came = Vec::new();
                    let text = number.to_le_bytes();
                    let pieces = [&source[..length]];
                    let sent =
                        port.send_in_advance(to, None, &[&text], &pieces, end, |mut arrived| {
                            came.push(arrived.advance());
                        });
                    assert!(!matches!(sent, Err(Refused::TooLong | Refused::Forked)));
                    source.fill(0xee);
                }
                while let Some(mut arrived) = port.try_receive().expect("in order") {
                    let mut text = [0; 8];
                    arrived.read(0, &mut text);
                    let Some(advance) = arrived.advance() else { continue };
                    drop(arrived);
                    let reach = random.bool();
                    if let Ok(bytes) = read(&advance, &mut random, reach) {
                        assert!(is_full_of(&bytes, u64::from_le_bytes(text)), "torn");
                        received.fetch_add(1, SeqCst);
                    }
                }
            }
        })
    };
    let living = u32::from(PLACES) - 2;
    let deaths = kill_and_replace(&mut random, living, Duration::from_secs(5), life);
    let received = received.load(SeqCst);
    println!("{deaths} deaths, {received} loans");
    assert!(deaths > 5 && received > 100, "{deaths} deaths, {received} loans");
    assert_eq!(reap(child(|| drop(join(&again(&members), 0)))), 0, "nobody has a loan now");
}
