//! Waiting for a change in this PE's memory.
//!
//! A waiter polls as the wait policy decides, then sleeps on the doorbell of its control block. A
//! PE that writes into another one's memory loads the doorbell's flag after the write, and wakes
//! the sleepers if it is set. It needs no fence for that: the waiter makes one in all processes at
//! once (membarrier) before it sleeps.

use std::cell::Cell;
use std::time::Duration;

use sync::doorbell::Doorbell;
use sync::wait::{DOUBT, WaitPolicy};

use crate::job::Job;
use crate::remote::driver::Driver;

thread_local! {
    /// The policy of this thread, while it does not wait.
    static POLICY: Cell<Option<WaitPolicy>> = Cell::default();
}

/// Sleep of a waiter if the kernel refuses membarrier: no wake-up is certain then.
const NAP: Duration = Duration::from_micros(100);

/// Waits until `found` returns a value.
#[inline]
pub fn until<T>(job: &Job, mut found: impl FnMut() -> Option<T>) -> T {
    match found() {
        Some(value) => value,
        None => until_long(job, &mut found),
    }
}

#[cold]
fn until_long<T>(job: &Job, found: &mut dyn FnMut() -> Option<T>) -> T {
    // At the end of the main thread the value is gone before the last wait.
    let policy = POLICY.try_with(Cell::take).ok().flatten();
    let mut policy = policy.unwrap_or_else(|| job.wait_policy());
    let mut driver = Driver::default();
    let value = match policy.poll(|| found_or_driven(job, &mut driver, found)) {
        Some(value) => value,
        None => {
            driver.rest();
            let doorbell = &job.block().doorbell;
            sleep(job, doorbell, Doorbell::about_to_sleep_unfenced, &mut policy, found)
        }
    };
    let _ = POLICY.try_with(|of_thread| of_thread.set(Some(policy)));
    value
}

/// Returns the value of `found`. If there is none, drives the agent of the node, if this PE has it,
/// and looks again.
fn found_or_driven<T>(
    job: &Job,
    driver: &mut Driver,
    found: &mut dyn FnMut() -> Option<T>,
) -> Option<T> {
    match found() {
        None if job.far.is_some() && driver.drive() => found(),
        value => value,
    }
}

/// Waits until `found` returns a value, after a poll in vain. Writers ring this doorbell.
/// `about_to_sleep` suits the way in which they ring.
#[cold]
pub fn sleep<T>(
    job: &Job,
    doorbell: &Doorbell,
    about_to_sleep: impl Fn(&Doorbell) -> Option<u32>,
    policy: &mut WaitPolicy,
    found: &mut dyn FnMut() -> Option<T>,
) -> T {
    loop {
        match about_to_sleep(doorbell) {
            Some(rings) => {
                if let Some(value) = found() {
                    policy.found();
                    return value;
                }
                doorbell.sleep(rings, DOUBT);
            }
            None => std::thread::sleep(NAP),
        }
        job.check_peers();
        if let Some(far) = &job.far {
            far.nudge();
        }
        let mut driver = Driver::default();
        if let Some(value) = policy.poll(|| found_or_driven(job, &mut driver, found)) {
            return value;
        }
        driver.rest();
    }
}
