//! The way in which PEs of a node wait for each other. A waiter sleeps on the doorbell of the PE
//! that it waits for.
//!
//! The fence of a wake-up is made by the PE that publishes. It takes some ns there. A fence by the
//! waiter in all processes (see `wait`) takes 10 µs and more in a virtual machine, and where other
//! work wants the processors, a PE sleeps in most operations.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::AcqRel;

use outbox::group::Wait;
use outbox::outbox::{Outbox, Publish};
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

impl Publish for Waiter {
    #[inline(always)]
    fn publish(word: &AtomicU64, number: u64, doorbell: &Doorbell) {
        // An exchange, since the doorbell needs a full fence.
        word.swap(number, AcqRel);
        doorbell.ring();
    }

    fn ring(doorbell: &Doorbell) {
        doorbell.ring();
    }
}

impl Wait for Waiter {
    #[inline]
    fn wait(&mut self, outbox: &Outbox, _: bool, ready: impl Fn(&Outbox) -> bool) {
        let mut found = || ready(outbox).then_some(());
        if self.policy.poll(&mut found).is_none() {
            let about_to_sleep = |doorbell: &Doorbell| Some(doorbell.about_to_sleep());
            wait::sleep(self.job, &outbox.doorbell, about_to_sleep, &mut self.policy, &mut found);
        }
    }
}
