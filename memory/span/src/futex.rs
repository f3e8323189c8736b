//! futex(2) on words that threads of all nodes use.
//!
//! Threads at the origin wait in the origin's kernel, as they do without Nagaya. Threads on other
//! nodes wait in the [queues](crate::futex_queues) of the origin's agent. A thread that wakes
//! others looks for both kinds: the agent's wake-up ([`wake_in_kernel`]) includes the kernel's
//! waiters, and a thread at the origin asks the kernel only if no thread waits elsewhere. A waiter
//! in the kernel reads the word under the lock that a wake-up takes, and memory is sequentially
//! consistent: so the waiter either sees the new value, or is woken.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::edges::{self, RESTART};
use crate::here::Here;
use crate::request::Request;
use crate::slot::{Awaited, Slot};
use crate::{clock_offsets, futex_queues, raw, shared};

/// As futex(2): words of all nodes' threads.
///
/// # Safety
/// As for [`calls::answer`](crate::calls::answer).
pub unsafe fn call(here: &Here, slot: &Slot, a: [u64; 6]) -> i64 {
    // If other processes can wait, too, the kernel has the waiters.
    if here.nodes == 1 || shared::contains(a[0]) {
        // SAFETY: this function requires the program's arguments; the kernel checks addresses.
        return unsafe { edges::call(libc::SYS_futex as u64, a) };
    }
    let operation = a[1] as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    let bits = match operation {
        libc::FUTEX_WAIT_BITSET | libc::FUTEX_WAKE_BITSET => a[5] as u32,
        _ => u32::MAX,
    };
    let (word, value) = (a[0], a[2] as u32);
    if bits == 0 || !word.is_multiple_of(4) {
        return -i64::from(libc::EINVAL);
    }
    // SAFETY: the address is a word of the program.
    let now = || unsafe { (*(word as *const AtomicU32)).load(Ordering::SeqCst) };
    let ask = |request| here.table.request(slot, request);
    if here.node == 0 {
        // SAFETY: this function has the same contract.
        return unsafe { at_origin(here, slot, operation, a) };
    }
    match operation {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {
            if now() != value {
                return -i64::from(libc::EAGAIN);
            }
            let is_real = a[1] as i32 & libc::FUTEX_CLOCK_REALTIME != 0;
            let is_absolute = operation == libc::FUTEX_WAIT_BITSET;
            // SAFETY: a time of the program's, or none.
            let until = unsafe { Until::of(a[3], is_absolute, is_real) };
            slot.woken.store(0, Ordering::SeqCst);
            ask(Request::Enqueue { word, bits });
            if now() != value {
                return if ask(Request::Cancel) == 1 { -i64::from(libc::EAGAIN) } else { 0 };
            }
            wait(here, slot, &until)
        }
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => {
            ask(Request::Wake { word, count: value, bits })
        }
        libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE => {
            if operation == libc::FUTEX_CMP_REQUEUE && now() != a[5] as u32 {
                return -i64::from(libc::EAGAIN);
            }
            ask(Request::Requeue { word, count: value, to: a[4], moved: a[3] as u32 })
        }
        libc::FUTEX_WAKE_OP => {
            // SAFETY: the address is a word of the program.
            let Some(wakes) = (unsafe { change(a[4], a[5] as u32) }) else {
                return -i64::from(libc::ENOSYS);
            };
            let woken = ask(Request::Wake { word, count: value, bits });
            let others = Request::Wake { word: a[4], count: a[3] as u32, bits };
            woken + if wakes { ask(others) } else { 0 }
        }
        // Priorities are a kernel's.
        _ => -i64::from(libc::ENOSYS),
    }
}

/// The same for a thread at the origin.
///
/// # Safety
/// As for [`call`].
unsafe fn at_origin(here: &Here, slot: &Slot, operation: i32, a: [u64; 6]) -> i64 {
    let kernel = || {
        let clock = a[1] & libc::FUTEX_CLOCK_REALTIME as u64;
        let arguments = [a[0], private(operation) | clock, a[2], a[3], a[4], a[5]];
        // SAFETY: `call` requires the program's arguments; the kernel checks addresses.
        unsafe { edges::call(libc::SYS_futex as u64, arguments) }
    };
    let bits = if operation == libc::FUTEX_WAKE_BITSET { a[5] as u32 } else { u32::MAX };
    let wake = |word: u64, count: u32, bits: u32| match futex_queues::may_have_waiters(word) {
        true => here.table.request(slot, Request::Wake { word, count, bits }),
        false => wake_in_kernel(word, count, bits),
    };
    match operation {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => kernel(),
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => wake(a[0], a[2] as u32, bits),
        libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE => {
            if !futex_queues::may_have_waiters(a[0]) {
                return kernel();
            }
            // SAFETY: the address is a word of the program.
            let now = unsafe { (*(a[0] as *const AtomicU32)).load(Ordering::SeqCst) };
            if operation == libc::FUTEX_CMP_REQUEUE && now != a[5] as u32 {
                return -i64::from(libc::EAGAIN);
            }
            let (word, to, count, moved) = (a[0], a[4], a[2] as u32, a[3] as u32);
            here.table.request(slot, Request::Requeue { word, count, to, moved })
        }
        // The kernel would not wait for the page that it changes.
        libc::FUTEX_WAKE_OP => {
            // SAFETY: the address is a word of the program.
            let Some(wakes) = (unsafe { change(a[4], a[5] as u32) }) else {
                return -i64::from(libc::ENOSYS);
            };
            let woken = wake(a[0], a[2] as u32, u32::MAX);
            woken + if wakes { wake(a[4], a[3] as u32, u32::MAX) } else { 0 }
        }
        // Priorities are a kernel's.
        _ => -i64::from(libc::ENOSYS),
    }
}

/// An operation on a word of this process only. The memory is no other process's, and the kernel
/// then needs no page of it to find the waiters.
fn private(operation: i32) -> u64 {
    (operation | libc::FUTEX_PRIVATE_FLAG) as u64
}

/// At the origin: wakes at most `count` threads that wait in the kernel at this word for any of
/// these bits. Returns their number.
pub fn wake_in_kernel(word: u64, count: u32, bits: u32) -> i64 {
    let count = count.min(i32::MAX.cast_unsigned()).into();
    let arguments = [word, private(libc::FUTEX_WAKE_BITSET), count, 0, 0, bits.into()];
    // SAFETY: a private wake-up reads no memory.
    unsafe { raw::call(libc::SYS_futex as u64, arguments) }
}

/// At the origin: wakes threads that wait in the kernel at this word, at most `count`, and moves
/// others, at most `moved`, to the word `to`. Returns the number of both.
pub fn requeue_in_kernel(word: u64, count: u32, to: u64, moved: u32) -> i64 {
    let [count, moved] = [count, moved].map(|it| it.min(i32::MAX.cast_unsigned()).into());
    let arguments = [word, private(libc::FUTEX_REQUEUE), count, moved, to, 0];
    // SAFETY: without a comparison the private operation reads no memory.
    unsafe { raw::call(libc::SYS_futex as u64, arguments) }
}

/// Waits in line until it is woken, or it is time, or a signal has come.
fn wait(here: &Here, slot: &Slot, until: &Until) -> i64 {
    let (mut why, mut may_drive) = (0, true);
    while slot.woken.load(Ordering::SeqCst) == 0 && why == 0 {
        if let Some(signal) = slot.signal() {
            let restarts = until.time.is_none() && signal.action.has(libc::SA_RESTART);
            why = if restarts { RESTART } else { -i64::from(libc::EINTR) };
            break;
        }
        // It waits on at the other node. A relative time would begin again.
        if slot.has(Slot::MOVE) && until.can_restart {
            why = RESTART;
            break;
        }
        let left = until.left();
        if left.is_some_and(|left| left.tv_sec < 0) {
            why = -i64::from(libc::ETIMEDOUT);
            break;
        }
        if std::mem::take(&mut may_drive) && here.table.drive(slot, Awaited::WakeUp) {
            continue;
        }
        // SAFETY: a thread that makes a call has sat down.
        unsafe { edges::sleep(&slot.woken, 0, left.as_ref()) };
    }
    match why {
        0 => 0,
        _ if here.table.request(slot, Request::Cancel) == 1 => why,
        _ => 0,
    }
}

/// When a wait ends at the latest.
struct Until {
    clock: libc::clockid_t,
    time: Option<libc::timespec>,
    /// The call may be made again with the same arguments.
    can_restart: bool,
}

impl Until {
    /// # Safety
    /// The address of a time, or 0.
    unsafe fn of(time: u64, is_absolute: bool, is_real: bool) -> Self {
        let clock = if is_real { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC };
        if time == 0 {
            return Self { clock, time: None, can_restart: true };
        }
        // SAFETY: this function requires the address of a time.
        let time = unsafe { (time as *const libc::timespec).read_unaligned() };
        let time =
            if is_absolute { time } else { clock_offsets::sum(time, clock_offsets::now(clock)) };
        Self { clock, time: Some(time), can_restart: is_absolute }
    }

    /// Returns the remaining time; negative when it is over.
    fn left(&self) -> Option<libc::timespec> {
        self.time.map(|time| clock_offsets::difference(time, clock_offsets::now(self.clock)))
    }
}

/// Executes FUTEX_WAKE_OP on a word. Returns the result of the comparison with its old value.
///
/// # Safety
/// `word` must be a word of the program.
unsafe fn change(word: u64, code: u32) -> Option<bool> {
    // SAFETY: this function requires a word of the program.
    let word = unsafe { &*(word as *const AtomicU32) };
    let (operation, comparison) = (code >> 28, code >> 24 & 15);
    let signed = |bits: u32| ((bits << 20) as i32 >> 20) as u32;
    let (mut value, compared) = (signed(code >> 12 & 0xfff), signed(code & 0xfff) as i32);
    if operation & 8 != 0 {
        value = 1u32.wrapping_shl(value);
    }
    let change = |old: u32| match operation & 7 {
        0 => Some(value),
        1 => Some(old.wrapping_add(value)),
        2 => Some(old | value),
        3 => Some(old & !value),
        4 => Some(old ^ value),
        _ => None,
    };
    let old = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change).ok()? as i32;
    match comparison {
        0 => Some(old == compared),
        1 => Some(old != compared),
        2 => Some(old < compared),
        3 => Some(old <= compared),
        4 => Some(old > compared),
        5 => Some(old >= compared),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_changed_as_the_code_says() {
        let code = |operation: u32, comparison: u32, value: u32, compared: u32| {
            operation << 28 | comparison << 24 | (value & 0xfff) << 12 | compared & 0xfff
        };
        let word = AtomicU32::new(5);
        let at = word.as_ptr() as u64;
        // SAFETY: a word that lives.
        unsafe {
            assert_eq!(change(at, code(0, 0, 7, 5)), Some(true));
            assert_eq!(change(at, code(1, 4, u32::MAX, 7)), Some(false));
            assert_eq!(change(at, code(2 | 8, 1, 4, 6)), Some(false));
            assert_eq!(word.load(Ordering::Relaxed), 6 | 16);
            assert_eq!(change(at, code(5, 0, 0, 0)), None);
        }
    }
}
