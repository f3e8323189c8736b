//! How a rank waits for another: it looks for a while, lets the MPI go on with what else there
//! is, and then sleeps.
//!
//! A peer may be late since it waits for a message of ours, which the MPI can only bring to an
//! end while somebody calls it. So whoever waits does, now and then; and no sleep is long.
//!
//! An operation that need not wait must make progress, too: a program may repeat collective
//! operations until a message of its own has been delivered, as it can with the MPI's own. So
//! each operation ends with a call of the MPI, unless the last one was moments ago. A barrier
//! always calls the MPI: after it a program may test for a message or an epoch that another rank
//! completed before the barrier, and expect true (mpi4py's testStartCompletePostTest).

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use sync::wait::{self, Naps, WaitPolicy};

use crate::mpi::{Handle, Mpi, SUCCESS, mpi};
use crate::seat::Seat;

/// How long to spin before sleeping, where there is a processor for each rank.
const BUSY: Duration = Duration::from_micros(200);
/// Polls between two calls of the MPI meanwhile.
const POLLS: u32 = 64;
/// Yields of the processor before sleeping, where there is not.
const YIELDS: u32 = 50;
/// The first sleep, and the longest.
const NAP: Duration = Duration::from_micros(100);
const SLEEP: Duration = Duration::from_millis(1);

/// Most time between two calls of the MPI while operations do not wait, in ticks of the
/// processor's time-stamp counter: some 10 µs. So a call takes a few percent of it at most.
const PROGRESS_TICKS: u64 = 1 << 15;

/// Waits until the rank of this seat is ready.
#[inline]
pub fn wait(seat: &Seat, policy: &mut WaitPolicy, is_crowded: bool, ready: impl Fn(&Seat) -> bool) {
    if policy.poll(|| ready(seat).then_some(())).is_none() {
        wait_long(seat, is_crowded, ready);
    }
}

#[cold]
fn wait_long(seat: &Seat, is_crowded: bool, ready: impl Fn(&Seat) -> bool) {
    // Where tasks share processors, the one that we wait for mostly waits for ours.
    let found = || ready(seat).then_some(());
    if is_crowded && wait::poll_and_yield(YIELDS, found).is_some() {
        return;
    }
    let begin = Instant::now();
    let mut naps = Naps::new(NAP, SLEEP);
    loop {
        progress();
        if !is_crowded && begin.elapsed() < BUSY {
            if wait::poll_times(POLLS, found).is_some() {
                return;
            }
            continue;
        }
        let rings = seat.bell.about_to_sleep();
        if ready(seat) {
            return;
        }
        seat.bell.sleep(rings, naps.next_nap());
        if ready(seat) {
            return;
        }
    }
}

/// A request that is never complete: to test it is to let the MPI go on. (To probe would not do:
/// a message that is there already is found without.)
static NEVER: Mutex<Option<Handle>> = Mutex::new(None);

extern "C" fn query(_: *mut c_void, _: *mut c_void) -> c_int {
    SUCCESS
}
extern "C" fn free(_: *mut c_void) -> c_int {
    SUCCESS
}
extern "C" fn cancel(_: *mut c_void, _: c_int) -> c_int {
    SUCCESS
}

/// Makes the request. Once more does nothing.
pub fn prepare(mpi: &Mpi) {
    let mut never = NEVER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if never.is_none() {
        let mut request: Handle = 0;
        // SAFETY: the callbacks need nothing; a request is written that has room.
        let made =
            unsafe { (mpi.grequest_start)(query, free, cancel, ptr::null_mut(), &mut request) };
        *never = (made == SUCCESS).then_some(request);
    }
}

/// The time-stamp counter at the last call of `progress`.
static LAST: AtomicU64 = AtomicU64::new(0);

fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Calls the MPI at the end of an operation, unless the last call was moments ago.
#[inline]
pub fn finish() {
    if ticks().wrapping_sub(LAST.load(Relaxed)) > PROGRESS_TICKS {
        progress();
    }
}

/// Calls the MPI once, so that it makes progress, unless another thread is doing so.
#[cold]
pub fn progress() {
    LAST.store(ticks(), Relaxed);
    let Ok(mut never) = NEVER.try_lock() else { return };
    if let Some(request) = never.as_mut() {
        let mpi = mpi();
        let mut done: c_int = 0;
        // SAFETY: a request that is not complete.
        unsafe { (mpi.test)(request, &mut done, mpi.status_ignore()) };
    }
}
