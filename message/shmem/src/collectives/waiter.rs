//! The way in which PEs of a node wait for each other: see `wait`. A waiter sleeps on the doorbell
//! of the PE that it waits for.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Release;

use outbox::group::Wait;
use outbox::outbox::Outbox;
use sync::doorbell::Doorbell;
use sync::wait::WaitPolicy;

use crate::job::Job;
use crate::wait;

/// A waiter of one team.
pub struct Waiter {
    /// The job, whose PEs may die meanwhile.
    pub job: &'static Job,
    /// The policy of these waits.
    pub policy: WaitPolicy,
}

impl Wait for Waiter {
    #[inline(always)]
    fn publish(word: &AtomicU64, number: u64, doorbell: &Doorbell) {
        word.store(number, Release);
        doorbell.ring_unfenced();
    }

    fn ring(doorbell: &Doorbell) {
        doorbell.ring_unfenced();
    }

    #[inline]
    fn wait(&mut self, outbox: &Outbox, _: bool, ready: impl Fn(&Outbox) -> bool) {
        let mut found = || ready(outbox).then_some(());
        if self.policy.poll(&mut found).is_none() {
            wait::sleep(self.job, &outbox.doorbell, &mut self.policy, &mut found);
        }
    }
}
