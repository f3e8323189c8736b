//! The steps of a group under loom: a reader of published data never sees that of a later step, and
//! no rank waits for ever. loom reports each access to a slot's data that is not ordered.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p nagaya-outbox --test steps_model --release`.
#![cfg(loom)]

use std::sync::atomic::Ordering::Release;

use loom::thread;
use outbox::atomic::AtomicU64;
use outbox::group::{Group, Wait};
use outbox::outbox::{Outbox, Publish};
use sync::doorbell::Doorbell;

/// Waits without sleep. It publishes by a store, the weakest way.
struct Spin;

impl Publish for Spin {
    fn publish(word: &AtomicU64, number: u64, _: &Doorbell) {
        word.store(number, Release);
    }
    fn ring(_: &Doorbell) {}
}

impl Wait for Spin {
    fn wait(&mut self, outbox: &Outbox, _: bool, ready: impl Fn(&Outbox) -> bool) {
        while !ready(outbox) {
            thread::yield_now();
        }
    }
}

type Rank = Group<Spin>;

/// Runs `part` as each rank of a group, in all interleavings with two preemptions at most.
fn run(ranks: usize, is_crowded: bool, part: fn(&mut Rank)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 20_000;
    builder.check(move || {
        let outboxes: Vec<&'static Outbox> =
            (0..ranks).map(|_| &*Box::leak(Box::new(Outbox::new()))).collect();
        let group = |rank| Group::new(rank, outboxes.clone().into(), is_crowded, Spin);
        let others: Vec<_> = (1..ranks)
            .map(|rank| {
                let mut group = group(rank);
                thread::spawn(move || part(&mut group))
            })
            .collect();
        part(&mut group(0));
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

fn publish(group: &mut Rank, step: u64, value: u64) {
    // SAFETY: a variable of 8 bytes.
    unsafe { group.publish_data(step, std::ptr::from_ref(&value).cast(), 8) };
}

/// The root is up to two steps ahead of the receivers.
fn broadcast(group: &mut Rank, root: usize, value: u64) {
    let step = group.step();
    if group.rank == root {
        publish(group, step, value);
    } else {
        group.await_published(root, step);
        assert_eq!(group.published(root, step).word(), value);
    }
    group.finish();
}

fn sum(group: &mut Rank, value: u64) {
    let step = group.step();
    publish(group, step, value + group.rank as u64);
    group.meet(step);
    let all = (0..group.ranks).map(|rank| group.published(rank, step).word());
    let ranks = group.ranks as u64;
    assert_eq!(all.sum::<u64>(), ranks * value + ranks * (ranks - 1) / 2);
    group.finish();
}

fn barrier(group: &mut Rank) {
    let step = group.step();
    group.publish_nothing(step);
    group.meet(step);
    group.finish();
}

#[test]
fn a_root_does_not_overwrite_data_that_is_read() {
    run(2, false, |group| {
        for value in 1..=4 {
            broadcast(group, 0, value);
        }
    });
}

#[test]
fn roots_may_change() {
    run(2, false, |group| {
        broadcast(group, 0, 1);
        broadcast(group, 1, 2);
        barrier(group);
        broadcast(group, 1, 3);
        broadcast(group, 1, 4);
    });
}

#[test]
fn all_read_the_data_of_all() {
    run(2, false, |group| {
        for value in 1..=3 {
            sum(group, value);
        }
    });
}

#[test]
fn a_crowd_meets_at_rank_0() {
    run(2, true, |group| {
        sum(group, 1);
        broadcast(group, 1, 2);
        group.finish_all();
        sum(group, 3);
    });
}
