//! Messages of any length: by the ring, straight out of the sender's memory, and in parts
//! where that is not allowed. Nobody's death tears one. `NAGAYA_SEED=n` repeats a run's choices.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use fastrand::Rng;
use fcp::error::Refused;
use fcp::header::Plan;
use fcp::mail::{Mail, Received};
use fcp::member::{Card, Members};
use fcp::port::Port;
use sync::ring::Kind;

mod children;
use children::{again, child, eventually, kill, kill_and_replace, members_of, reap, seed, soon};

const LONG: usize = 5 << 20;

fn members(most: u16) -> Arc<Members> {
    members_of(Plan { members: most, messages: 512 << 10, lendable: 0, listed: false })
}

fn join(members: &Arc<Members>, index: u16) -> Mail {
    let card = Card { id: 100 + u32::from(index), group: 0 };
    Mail::new(Port::join(members, card, Some(index)).expect("a place"))
}

/// A message of `length` bytes that tell where they belong.
fn message(seed: u64, length: usize) -> Vec<u8> {
    let words = (0..length.div_ceil(8) as u64).flat_map(|n| (seed ^ n << 20).to_le_bytes());
    words.take(length).collect()
}

fn receive(mail: &mut Mail, from: &[u32]) -> (u32, Vec<u8>) {
    let mut bytes = vec![0; LONG];
    let received = mail.receive(&mut bytes, from, soon()).expect("in order").expect("in time");
    bytes.truncate(received.length);
    (received.source, bytes)
}

/// Sends messages of all sizes to `to` while the same come from there.
fn exchange(mail: &mut Mail, to: u16, rounds: u64) {
    let mut next = 0;
    let lengths = [0, 1, 4000, 70_000, 9, 1 << 20, 33_000, LONG];
    for n in 0..rounds {
        let length = lengths[n as usize % lengths.len()];
        mail.send(to, None, &message(n, length), soon()).expect("it lives");
        if n % 3 == 0 {
            let (_, bytes) = receive(mail, &[]);
            assert!(bytes == message(next, lengths[next as usize % lengths.len()]), "{next}");
            next += 1;
        }
    }
    for n in next..rounds {
        let (_, bytes) = receive(mail, &[]);
        assert!(bytes == message(n, lengths[n as usize % lengths.len()]), "message {n}");
    }
}

/// Two exchange messages; the second may be made different before it begins.
fn two(rounds: u64, before: impl FnOnce()) {
    let members = members(2);
    let mut mail = join(&members, 0);
    let pid = child(|| {
        let mut mail = join(&again(&members), 1);
        before();
        exchange(&mut mail, 0, rounds);
    });
    eventually("it joins", || members.entry(1).is_some());
    exchange(&mut mail, 1, rounds);
    assert_eq!(reap(pid), 0);
}

#[test]
fn two_tasks_that_exchange_large_messages_both_finish() {
    two(100, || ());
}

/// From now on, `process_vm_readv` is refused in this process.
fn forbid_reading_others() {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let jump = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        step(load, 0, 0, 0),
        step(jump, 0, 1, libc::SYS_process_vm_readv as u32),
        step(answer, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        step(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: numbers, and a program that stays during the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

#[test]
fn where_memory_cannot_be_read_large_messages_come_in_parts() {
    two(40, forbid_reading_others);
}

#[test]
fn unprivileged_users_send_by_reading_or_in_parts() {
    for dumpable in [1, 0] {
        let pid = child(|| {
            // SAFETY: numbers.
            unsafe {
                if libc::geteuid() == 0 {
                    assert_eq!(libc::setresgid(65534, 65534, 65534), 0);
                    assert_eq!(libc::setresuid(65534, 65534, 65534), 0);
                }
                // Who cannot be dumped cannot be read, either.
                assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, dumpable, 0, 0, 0), 0);
            }
            two(24, || ());
        });
        assert_eq!(reap(pid), 0, "dumpable {dumpable}");
    }
}

#[test]
fn messages_are_received_from_whom_one_asks() {
    let members = members(4);
    let [mut a, mut b, mut c] = [0, 1, 2].map(|index| join(&members, index));
    b.send(0, Some(100), &message(1, 100), soon()).expect("room");
    c.send(0, Some(100), &message(2, 100), soon()).expect("room");
    b.send(0, Some(100), &message(3, 100), soon()).expect("room");
    let pid = child(|| {
        let mut mail = join(&again(&members), 3);
        mail.send(0, Some(100), &message(4, LONG), None).expect("it lives");
    });
    assert_eq!(receive(&mut a, &[102, 555]), (102, message(2, 100)));
    let found = a.select(&[103], soon()).expect("in order").expect("in time");
    assert_eq!(found, Received { source: 103, length: LONG });
    assert_eq!(a.select(&[], None), Ok(Some(Received { source: 101, length: 100 })));
    assert!(receive(&mut a, &[103]) == (103, message(4, LONG)));
    assert_eq!(reap(pid), 0);
    let mut few = [0; 10];
    let received = a.receive(&mut few, &[], None).expect("in order").expect("a message");
    assert_eq!((received.length, &few[..]), (100, &message(1, 100)[..10]));
    c.send(0, None, b"last", soon()).expect("room");
    assert_eq!(a.select(&[102], None), Ok(Some(Received { source: 102, length: 4 })));
    assert_eq!(receive(&mut a, &[]), (101, message(3, 100)));
    assert_eq!(receive(&mut a, &[]), (102, b"last".to_vec()));
    let end = Some(Instant::now() + Duration::from_millis(20));
    assert_eq!(a.receive(&mut few, &[], end), Ok(None));
    assert_eq!(a.send(3, Some(104), b"?", None), Err(Refused::Gone));
    assert_eq!(a.send(3, None, &message(0, LONG), None), Err(Refused::Gone));
}

#[test]
fn an_offer_without_a_taker_is_withdrawn_in_time() {
    let members = members(2);
    let (mut a, mut b) = (join(&members, 0), join(&members, 1));
    let end = Some(Instant::now() + Duration::from_millis(30));
    assert_eq!(a.send(1, None, &message(0, LONG), end), Err(Refused::Full));
    a.send(1, None, b"next", None).expect("room");
    assert_eq!(receive(&mut b, &[]), (100, b"next".to_vec()));
}

#[test]
fn a_sender_learns_that_its_receiver_was_killed() {
    let members = members(2);
    let mut mail = join(&members, 0);
    let pid = child(|| {
        let _mail = join(&again(&members), 1);
        std::thread::sleep(Duration::from_secs(60));
    });
    eventually("it joins", || members.entry(1).is_some());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            kill(pid);
        });
        assert_eq!(mail.send(1, None, &message(0, LONG), soon()), Err(Refused::Dead));
    });
}

#[test]
fn forged_offers_and_parts_give_no_message() {
    let members = members(2);
    let mut a = Port::join(&members, Card { id: 1, group: 0 }, Some(0)).expect("a place");
    let mut b = join(&members, 1);
    let mut random = Rng::with_seed(seed());
    for kind in [Kind::Remote, Kind::Part] {
        for n in 0..2000 {
            let mut words = [0; 4].map(|_: u64| random.u64(..) >> random.u64(..64));
            words[3] %= 4;
            let bytes = words.map(u64::to_le_bytes);
            let length = if kind == Kind::Part { n % 32 } else { 32 };
            // A part that is all of its message is one (NAGAYA_SEED=20904411136).
            if kind == Kind::Part && words[2] == 0 && length as u64 == words[1].saturating_add(24) {
                continue;
            }
            a.try_send(1, None, kind, &[&bytes.as_flattened()[..length]]).expect("room");
            let got = b.receive(&mut [0; 8], &[], Some(Instant::now()));
            assert_eq!(got, Ok(None), "{kind:?} of {length}: {words:x?}");
        }
    }
}

/// The parts of a message come one by one; waits end in between, and others' messages come.
#[test]
fn a_message_whose_parts_come_late_is_whole() {
    let members = members(3);
    let mut a = Port::join(&members, Card { id: 1, group: 0 }, Some(0)).expect("a place");
    let (mut b, mut c) = (join(&members, 1), join(&members, 2));
    let text = message(9, 3000);
    let peer = a.peer();
    let mut part = |from: usize, to: usize| {
        let sender = u64::from(peer.generation) << 32 | u64::from(peer.index);
        let head = [sender, 3000, from as u64].map(u64::to_le_bytes);
        let parts = [head.as_flattened(), &text[from..to]];
        a.try_send(1, None, Kind::Part, &parts).expect("room");
    };
    let mut bytes = vec![0; 4000];
    for asked in [&[1][..], &[]] {
        part(0, 1000);
        let end = Some(Instant::now() + Duration::from_millis(50));
        assert_eq!(b.receive(&mut bytes, &[1], end), Ok(None));
        bytes.fill(0);
        part(1000, 2999);
        c.send(1, None, b"between", None).expect("room");
        b.bell().ring();
        let between = b.receive(&mut bytes, &[102], soon()).expect("in order");
        assert_eq!(between.map(|received| received.source), Some(102));
        bytes.fill(0);
        part(2999, 3000);
        let whole = b.receive(&mut bytes, asked, None).expect("in order");
        // The bell has ended this wait, or the message was there before.
        let whole = whole.or_else(|| b.receive(&mut bytes, asked, None).expect("in order"));
        assert_eq!(whole, Some(Received { source: 1, length: 3000 }));
        assert!(bytes[..3000] == text);
    }
    // Begun anew, the old beginning is forgotten.
    part(0, 1000);
    part(0, 1500);
    part(1500, 3000);
    assert_eq!(b.receive(&mut bytes, &[], None), Ok(Some(Received { source: 1, length: 3000 })));
    assert!(bytes[..3000] == text);
}

/// Members send each other messages of all lengths, each of which is one number, and are
/// killed and replaced. None is ever torn, and nobody hangs.
#[test]
fn members_killed_at_random_instants_tear_no_message() {
    const PLACES: u16 = 4;
    let mut random = Rng::with_seed(seed());
    for refuse in [false, true] {
        let members = members(PLACES);
        let at = members.window().plain().start;
        let life = |id: u32| {
            let members = again(&members);
            child(move || {
                if refuse && id.is_multiple_of(2) {
                    forbid_reading_others();
                }
                let received = members.window().word64(at).expect("in the window");
                let port = Port::join(&members, Card { id, group: 0 }, None).expect("a place");
                let mut mail = Mail::new(port);
                let mut random = Rng::with_seed(id.into());
                let (mut number, mut bytes) = (u64::from(id) << 32, vec![0; 1 << 20]);
                loop {
                    number += 1;
                    let words_max = 1 << random.u64(..17);
                    let words = 1 + random.usize(..words_max);
                    let to = random.u16(..PLACES);
                    let text = number.to_le_bytes().repeat(words);
                    let end = Some(Instant::now() + Duration::from_millis(2));
                    let sent = mail.send(to, None, &text, end);
                    assert!(!matches!(sent, Err(Refused::TooLong | Refused::Forked)));
                    while let Some(got) =
                        mail.receive(&mut bytes, &[], Some(Instant::now())).expect("in order")
                    {
                        let mut words = bytes[..got.length].chunks_exact(8);
                        let number = words.next().expect("a word");
                        assert!(words.all(|word| word == number), "torn");
                        let id = u64::from_le_bytes(number.try_into().expect("8 bytes")) >> 32;
                        assert_eq!(id, got.source.into());
                        received.fetch_add(1, SeqCst);
                    }
                }
            })
        };
        let time = Duration::from_secs(4);
        let deaths = kill_and_replace(&mut random, PLACES.into(), time, life);
        let received = members.window().word64(at).expect("in the window").load(SeqCst);
        println!("{deaths} deaths, {received} messages, refused: {refuse}");
        assert!(deaths > 5 && received > 100, "{deaths} deaths, {received} messages");
    }
}
