//! Waiting for another rank: poll, call the MPI so that it makes progress, then sleep.
//!
//! A peer may be late since it waits for a message of this rank, and the MPI completes that message
//! only while it is called. So a waiter calls the MPI regularly, and no sleep is long.
//!
//! An operation that need not wait must make progress, too: a program may repeat collective
//! operations until a message of its own has been delivered, as it can with the MPI's operations.
//! So each operation ends with a call of the MPI, unless the last one was moments ago. A barrier
//! always calls the MPI: after it a program may test for a message or an epoch that another rank
//! completed before the barrier, and expect true (mpi4py's testStartCompletePostTest).

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::time::{Duration, Instant};

use outbox::group::Wait;
use outbox::outbox::{Outbox, Publish};
use sync::doorbell::Doorbell;
use sync::wait::{self, Naps, WaitPolicy, wake};

use crate::abi::{Handle, SUCCESS};
use crate::mpi::{Mpi, mpi};

/// Time to poll while the MPI receives, if each rank has a processor, in wake-ups: as long as a
/// waiter spins.
const POLL_WAKES: u32 = 3;
/// The first nap, in wake-ups. Its end takes a wake-up, so a quarter of the time at most.
const NAP_WAKES: u32 = 4;
/// Number of polls between two calls of the MPI meanwhile.
const POLLS: u32 = 64;
/// A call of the MPI has received something if it takes so many times as long as usual. Measured on
/// an AMD EPYC: of idle calls of MPICH 4.0 and 5.0, Open MPI 4.1 and 5.0, 1 % take 2.2 times the
/// median or more; calls that serve one-sided operations take 3 to 15 times.
const BUSY_FACTOR: u64 = 4;
/// Binary places of such times.
const FRACTION_BITS: u32 = 8;
/// The longest nap between two calls of the MPI.
const NAP_MAX: Duration = Duration::from_millis(1);

/// Longest time between two calls of the MPI while operations do not wait, in ticks of the
/// time-stamp counter: some 10 µs. Calls then take a few percent of the time at most.
const PROGRESS_TICKS: u64 = 1 << 15;

/// Waits as this module describes it.
#[derive(Default)]
pub struct Waiter {
    policy: WaitPolicy,
}

impl Publish for Waiter {
    #[inline]
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
    fn wait(&mut self, outbox: &Outbox, is_crowded: bool, ready: impl Fn(&Outbox) -> bool) {
        if self.policy.poll(|| ready(outbox).then_some(())).is_none() {
            wait_long(outbox, is_crowded, ready);
            self.policy.found();
        }
    }
}

#[cold]
fn wait_long(outbox: &Outbox, is_crowded: bool, ready: impl Fn(&Outbox) -> bool) {
    let found = || ready(outbox).then_some(());
    // While the MPI receives, this rank stays awake: others may wait for its answers, as the
    // origins of one-sided operations do.
    let wake = wake::wake_time();
    let poll_time = POLL_WAKES * wake;
    let new_naps = || Naps::new(NAP_WAKES * wake, NAP_MAX);
    let mut awake_until = Instant::now() + if is_crowded { Duration::ZERO } else { poll_time };
    let mut naps = new_naps();
    call();
    loop {
        while Instant::now() < awake_until {
            if wait::poll_times(POLLS, found).is_some() {
                return;
            }
            if progress() {
                awake_until = Instant::now() + poll_time;
                naps = new_naps();
            }
        }
        let rings = outbox.doorbell.about_to_sleep();
        if ready(outbox) {
            return;
        }
        outbox.doorbell.sleep(rings, naps.next_nap());
        if ready(outbox) {
            return;
        }
        // The caches are cold after a nap, so the time of this call says nothing.
        call();
        awake_until = Instant::now() + wake;
    }
}

/// A request that never completes. A test of it makes the MPI progress. (A probe would not, if it
/// finds a message that has arrived.)
static ENDLESS: Mutex<Option<Handle>> = Mutex::new(None);

extern "C" fn query(_: *mut c_void, _: *mut c_void) -> c_int {
    SUCCESS
}
extern "C" fn free(_: *mut c_void) -> c_int {
    SUCCESS
}
extern "C" fn cancel(_: *mut c_void, _: c_int) -> c_int {
    SUCCESS
}

/// Creates the request, unless it exists.
pub fn prepare(mpi: &Mpi) {
    let mut endless = ENDLESS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if endless.is_none() {
        let mut request: Handle = 0;
        // SAFETY: the callbacks ignore their arguments; MPI writes a handle into `request`.
        let made =
            unsafe { (mpi.grequest_start)(query, free, cancel, ptr::null_mut(), &mut request) };
        *endless = (made == SUCCESS).then_some(request);
    }
}

/// The time-stamp counter at the last call of `progress`.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Returns the time-stamp counter.
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the time-stamp counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Calls the MPI at the end of an operation, unless the last call was moments ago.
#[inline]
pub fn finish() {
    if ticks().wrapping_sub(LAST.load(Relaxed)) > PROGRESS_TICKS {
        progress();
    }
}

/// The estimated time of a call of the MPI that receives nothing, in ticks, as a fixed-point
/// number.
static IDLE: AtomicU64 = AtomicU64::new(0);

/// Calls the MPI once, so that it makes progress, unless another thread is doing so. Returns true
/// if the call took so long that the MPI probably received something. (MPI_Test does not tell.)
#[cold]
pub fn progress() -> bool {
    let Some(ticks) = call() else { return false };
    let spent = ticks << FRACTION_BITS;
    let idle = IDLE.load(Relaxed);
    IDLE.store(next_idle(idle, spent), Relaxed);
    spent / BUSY_FACTOR > idle
}

/// Calls the MPI once, unless another thread is doing so. Returns the time of that, in ticks.
fn call() -> Option<u64> {
    let begin = ticks();
    LAST.store(begin, Relaxed);
    let mut endless = ENDLESS.try_lock().ok()?;
    let request = endless.as_mut()?;
    let mpi = mpi();
    let mut done: c_int = 0;
    // SAFETY: the request is active, and the status is MPI_STATUS_IGNORE.
    unsafe { (mpi.test)(request, &mut done, mpi.status_ignore()) };
    Some(ticks().wrapping_sub(begin))
}

/// Estimates the time of an idle call. Shorter calls lower the estimate quickly and longer ones
/// raise it slowly, so that it is right while most calls receive something.
fn next_idle(idle: u64, spent: u64) -> u64 {
    match idle {
        0 => spent,
        _ if spent < idle => idle - (idle - spent) / 8,
        _ => idle + idle / 512,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_idle_calls_is_found_among_busy_ones() {
        let after = |calls: &[u64]| {
            let all = calls.iter().cycle().take(1000 * calls.len());
            all.fold(0, |idle, call| next_idle(idle, call << FRACTION_BITS)) >> FRACTION_BITS
        };
        assert!((95..=101).contains(&after(&[100])), "{}", after(&[100]));
        assert!((95..=105).contains(&after(&[50_000, 2000, 3000, 100])));
        // The MPI polls more slowly from now on.
        let idle = (0..1000).fold(100 << FRACTION_BITS, |idle, _| next_idle(idle, 300 << 8));
        assert!(idle >> FRACTION_BITS > 280);
    }
}
