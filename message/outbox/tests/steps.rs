//! Operations of random kinds in a row, by threads as ranks. (The model `steps_model` has few.)
#![cfg(not(loom))]

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::AcqRel;
use std::time::Duration;

use outbox::group::{Group, Wait};
use outbox::outbox::{DATA_MAX, Location, Outbox, Publish};
use sync::doorbell::Doorbell;
use sync::wait::WaitPolicy;

#[derive(Default)]
struct Waiter(WaitPolicy);

impl Publish for Waiter {
    fn publish(word: &AtomicU64, number: u64, doorbell: &Doorbell) {
        word.swap(number, AcqRel);
        doorbell.ring();
    }

    fn ring(doorbell: &Doorbell) {
        doorbell.ring();
    }
}

impl Wait for Waiter {
    fn wait(&mut self, outbox: &Outbox, _: bool, ready: impl Fn(&Outbox) -> bool) {
        while self.0.poll(|| ready(outbox).then_some(())).is_none() {
            let rings = outbox.doorbell.about_to_sleep();
            if ready(outbox) {
                return self.0.found();
            }
            // A lost wake-up makes the test exceed its time.
            outbox.doorbell.sleep(rings, Duration::from_secs(1000));
        }
    }
}

/// Returns an outbox, which is memory of zeros.
fn outbox() -> &'static Outbox {
    // SAFETY: the layout has a size, and an outbox may be all zero.
    unsafe { &*std::alloc::alloc_zeroed(std::alloc::Layout::new::<Outbox>()).cast::<Outbox>() }
}

fn byte(step: usize, rank: usize, at: usize) -> u8 {
    (step * 7 + rank * 31 + at * 13) as u8
}

/// Publishes data of a step, as data or by its location.
fn publish(group: &mut Group<Waiter>, number: u64, data: &mut [u8]) {
    let (from, bytes) = (data.as_mut_ptr(), data.len());
    if bytes <= DATA_MAX {
        // SAFETY: the data has this length.
        unsafe { group.publish_data(number, from, bytes) }
    } else {
        group.publish_location(number, Location { from, to: std::ptr::null_mut(), bytes })
    }
}

fn check(group: &Group<Waiter>, number: u64, rank: usize, step: usize) {
    let published = group.published(rank, number);
    // SAFETY: the data stays until this rank is done.
    let data = unsafe { std::slice::from_raw_parts(published.data(), published.bytes()) };
    for (at, found) in data.iter().enumerate() {
        assert_eq!(*found, byte(step, rank, at), "step {step}, rank {rank}");
    }
}

fn take_steps(mut group: Group<Waiter>, seed: u64) {
    let (mut random, me) = (fastrand::Rng::with_seed(seed), group.rank);
    for step in 0..3000 {
        let (kind, root) = (random.u8(..4), random.usize(..group.ranks));
        let is_small = random.bool();
        let bytes = random.usize(..if is_small { 64 } else { 2 * DATA_MAX });
        let mut data: Vec<u8> = (0..bytes).map(|at| byte(step, me, at)).collect();
        let number = group.step();
        match kind {
            0 => {
                group.publish_nothing(number);
                group.meet(number);
                group.finish();
            }
            1 if me == root => {
                publish(&mut group, number, &mut data);
                group.finish();
                group.wait_done(number);
            }
            1 => {
                group.await_published(root, number);
                check(&group, number, root, step);
                group.finish();
            }
            _ => {
                publish(&mut group, number, &mut data);
                group.meet(number);
                for rank in 0..group.ranks {
                    check(&group, number, rank, step);
                }
                if bytes <= DATA_MAX { group.finish() } else { group.finish_all() }
            }
        }
    }
    group.leave();
}

#[test]
fn random_steps_read_the_data_of_their_own_step() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    for (ranks, is_crowded) in [(2, false), (2, true), (3, false), (6, true)] {
        let outboxes: Vec<_> = (0..ranks).map(|_| outbox()).collect();
        std::thread::scope(|scope| {
            for rank in 0..ranks {
                let outboxes = outboxes.clone().into();
                let group = Group::new(rank, outboxes, is_crowded, Waiter::default());
                scope.spawn(move || take_steps(group, seed));
            }
        });
        assert!(outboxes.iter().all(|outbox| outbox.has_been_left(ranks as u32 - 1)));
    }
}
