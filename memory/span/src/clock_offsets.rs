//! The offset of the origin's clocks from this node's, measured once, and times of the program that
//! include it.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::raw;
use crate::talk::Ready;

pub const SECOND: i64 = 1_000_000_000;
/// Clocks below this number have an offset. Others are of processes and threads.
pub const CLOCKS: usize = 12;
/// The clocks that are measured, each with the clocks that share its offset.
const MEASURED: [&[libc::clockid_t]; 5] = [
    &[libc::CLOCK_REALTIME, libc::CLOCK_REALTIME_COARSE, libc::CLOCK_REALTIME_ALARM],
    &[libc::CLOCK_MONOTONIC, libc::CLOCK_MONOTONIC_COARSE],
    &[libc::CLOCK_MONOTONIC_RAW],
    &[libc::CLOCK_BOOTTIME, libc::CLOCK_BOOTTIME_ALARM],
    &[libc::CLOCK_TAI],
];

/// The offset of each of the origin's clocks: seconds and nanoseconds to add to this node's.
pub static AHEAD: [[AtomicI64; 2]; CLOCKS] = [const { [const { AtomicI64::new(0) }; 2] }; CLOCKS];
/// Returns a string that is equal on nodes with the same clocks; empty if it is unknown.
pub fn identity() -> String {
    // Before Linux 5.6 there is only one time namespace.
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    let identity = |boot| format!("{boot:032x} {}", namespace.display());
    proc::host::boot_id().map_or_else(String::new, identity)
}

/// Returns true if two nodes have the same clocks.
pub fn are_same(one: &Ready, other: &Ready) -> bool {
    !one.clocks.is_empty() && one.clocks == other.clocks
}

/// The values of the measured clocks, in nanoseconds.
pub type Times = [i64; MEASURED.len()];

/// Reads this node's clocks.
pub fn times() -> Times {
    MEASURED.map(|clocks| {
        let now = read(clocks[0]);
        now.tv_sec * SECOND + now.tv_nsec
    })
}

/// Computes the origin's offsets from exchanges with it: this node's clocks before, the origin's,
/// this node's after. The exchange with the shortest round trip counts.
pub fn ahead(exchanges: &[[Times; 3]]) -> Times {
    let took = |[before, _, after]: &&[Times; 3]| after[1] - before[1];
    let shortest = exchanges.iter().min_by_key(took);
    let Some([before, there, after]) = shortest else { return Times::default() };
    std::array::from_fn(|at| there[at] - (before[at] + (after[at] - before[at]) / 2))
}

/// Sets the offsets of the program's clocks.
pub fn set(ahead: Times) {
    for (clocks, ahead) in MEASURED.into_iter().zip(ahead) {
        for &clock in clocks {
            let [seconds, nanoseconds] = &AHEAD[clock as usize];
            seconds.store(ahead.div_euclid(SECOND), Ordering::Relaxed);
            nanoseconds.store(ahead.rem_euclid(SECOND), Ordering::Relaxed);
        }
    }
}

/// Returns the offset of a clock of the origin.
pub fn ahead_of(clock: libc::clockid_t) -> libc::timespec {
    let ahead = usize::try_from(clock).ok().and_then(|clock| AHEAD.get(clock));
    let [tv_sec, tv_nsec] = match ahead {
        Some(ahead) => [ahead[0].load(Ordering::Relaxed), ahead[1].load(Ordering::Relaxed)],
        None => [0, 0],
    };
    libc::timespec { tv_sec, tv_nsec }
}

/// Returns the sum of two times.
pub fn sum(one: libc::timespec, other: libc::timespec) -> libc::timespec {
    let nanoseconds = one.tv_nsec + other.tv_nsec;
    libc::timespec {
        tv_sec: one.tv_sec.saturating_add(other.tv_sec).saturating_add(nanoseconds / SECOND),
        tv_nsec: nanoseconds % SECOND,
    }
}

/// Returns the time from `now` until `until`; negative if that has passed.
pub fn difference(until: libc::timespec, now: libc::timespec) -> libc::timespec {
    let is_more = until.tv_nsec < now.tv_nsec;
    libc::timespec {
        tv_sec: until.tv_sec.saturating_sub(now.tv_sec) - i64::from(is_more),
        tv_nsec: until.tv_nsec - now.tv_nsec + if is_more { SECOND } else { 0 },
    }
}

fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [clock as u64, std::ptr::from_mut(&mut now) as u64, 0, 0, 0, 0];
    // SAFETY: the kernel writes `now`, which lives until the call returns.
    unsafe { raw::call(libc::SYS_clock_gettime as u64, arguments) };
    now
}

/// Returns the time of a clock as the program sees it.
pub fn now(clock: libc::clockid_t) -> libc::timespec {
    sum(read(clock), ahead_of(clock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_exchange_gives_the_clock_offset() {
        let at = |time: i64| Times::from([time, time + 5, time, time, time]);
        let far = [at(100), at(1_000_300), at(300)];
        let near = [at(1000), at(1_001_010), at(1020)];
        assert_eq!(ahead(&[far, near]), [1_000_000; 5]);
        assert_eq!(ahead(&[]), [0; 5]);
    }

    #[test]
    fn times_are_added_and_taken_away() {
        let time = |tv_sec, tv_nsec| libc::timespec { tv_sec, tv_nsec };
        let is = |time: libc::timespec| (time.tv_sec, time.tv_nsec);
        assert_eq!(is(sum(time(1, 600_000_000), time(-3, 500_000_000))), (-1, 100_000_000));
        assert_eq!(is(sum(time(i64::MAX, SECOND - 1), time(0, 1))), (i64::MAX, 0));
        assert_eq!(is(difference(time(5, 0), time(3, 1))), (1, SECOND - 1));
        assert_eq!(is(difference(time(3, 0), time(3, 1))), (-1, SECOND - 1));
    }
}
