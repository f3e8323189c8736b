//! The real carriers in one thread, with errors of system calls that a seed selects.

use std::time::{Duration, Instant};

use fastrand::Rng;
use net::event::Event;
use net::fabric::Fabric;
use net::secret::Secret;
use sync::inject::{self, Call, Injected};

/// Number of seeds of each carrier. A run takes some milliseconds of real time.
const SEEDS: u64 = 20;
/// Number of messages of each side.
const MESSAGES: u64 = 20;
/// Real time until a run counts as hanging.
const TIME_MAX: Duration = Duration::from_secs(60);

fn two(carriers: &str) -> (Fabric, Fabric) {
    let secret = Secret::new([7; 32]);
    let fabric = |id| Fabric::with_carriers(id, &secret, carriers).expect("a fabric");
    (fabric(1), fabric(2))
}

/// Sends messages of random lengths in both directions. Returns the injected errors.
fn exchange(seed: u64, carriers: &str) -> Injected {
    let mut random = Rng::with_seed(seed);
    let (mut one, mut two) = two(carriers);
    inject::set(Some(Injected::new(seed, random.u64(2..12))));
    let peer = one.connect(two.address()).expect("its address");
    let body = |at: u64| vec![at as u8; (at * 7919 % 60_000) as usize];
    for at in 0..MESSAGES {
        one.send(peer, &[at as u8], body(at)).expect("it is queued");
    }
    let (mut received, until) = ([0, 0], Instant::now() + TIME_MAX);
    while received != [MESSAGES; 2] {
        assert!(Instant::now() < until, "seed {seed}: {received:?} messages have come");
        for (side, fabric) in [&mut one, &mut two].into_iter().enumerate() {
            match fabric.poll() {
                Some(Event::Message { from, header, payload }) => {
                    let at = received[side];
                    assert_eq!((header, payload), (vec![at as u8], body(at)));
                    received[side] += 1;
                    if side == 1 {
                        fabric.send(from, &[at as u8], body(at)).expect("it stands");
                    }
                }
                Some(Event::Lost { why, .. }) => panic!("seed {seed}: {why}"),
                _ => {}
            }
        }
    }
    inject::set(None).expect("set above")
}

#[test]
fn messages_arrive_over_tcp_whatever_system_calls_return() {
    let mut all = Injected::new(0, 1);
    (0..SEEDS).for_each(|seed| all.merge(&exchange(seed, "tcp")));
    println!("{:?}", all.counts());
    let is_used = |call| matches!(call, Call::Read | Call::Write);
    let never = all.counts().into_iter().find(|&(call, _, count)| is_used(call) && count == 0);
    assert_eq!(never, None, "an error was never injected");
}

/// The queue of callers stayed readable, so that a process without descriptors did not sleep.
#[test]
fn a_process_that_cannot_accept_sleeps_and_accepts_later() {
    for carrier in ["local", "tcp"] {
        let (mut one, mut two) = two(carrier);
        one.connect(two.address()).expect("its address");
        inject::set(Some(Injected::new(1, 1)));
        let until = Instant::now() + TIME_MAX;
        let mut asleep = 0;
        while asleep < 10 {
            assert!(Instant::now() < until, "{carrier}: it does not sleep");
            one.poll();
            assert!(two.poll().is_none());
            // The caller may not have arrived yet.
            let sleeps = two.arm().expect("it can");
            asleep = if sleeps && two.deadline().is_some() { asleep + 1 } else { 0 };
        }
        inject::set(None);
        while !matches!(one.poll(), Some(Event::Connected(_))) {
            assert!(Instant::now() < until, "{carrier}: it does not accept again");
            two.poll();
        }
    }
}
