//! The time slice of a thread when others wake up. Shadows, which serve other nodes, get a short
//! one (see [`net::slice`]), and the program's threads the kernel's default. A new thread inherits
//! the values of its creator, which may be the agent with its lower nice value.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::raw;

/// Of threads that serve.
const SLICE_NS: u64 = 100_000;

/// The nice value of the process at its start.
static NICE: AtomicI32 = AtomicI32::new(0);

/// To the agent, before it asks for more: new threads are to be as this one is.
pub fn remember() {
    change(|attributes| {
        NICE.store(attributes.sched_nice, Ordering::Relaxed);
        false
    });
}

/// The agent has made this thread for the program.
pub fn begins() {
    change(|attributes| {
        attributes.sched_nice = NICE.load(Ordering::Relaxed);
        true
    });
}

/// This thread computes from now on.
pub fn computes() {
    // The kernel's own.
    slices(0);
}

/// This thread serves from now on.
pub fn serves() {
    slices(SLICE_NS);
}

/// Sets the time slice of this thread, in ns. Kernels before 6.12 ignore this.
fn slices(ns: u64) {
    change(|attributes| std::mem::replace(&mut attributes.sched_runtime, ns) != ns);
}

/// Changes the scheduling of this thread, if `change` returns true. As in [`net::slice::shorten`],
/// a thread with a scheduling policy of the user keeps it.
fn change(change: impl FnOnce(&mut libc::sched_attr) -> bool) {
    // SAFETY: a plain structure of numbers.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let bytes = size_of_val(&attributes) as u64;
    let at = &raw mut attributes as u64;
    // SAFETY: the kernel writes at most this many bytes.
    let got = unsafe { raw::call(libc::SYS_sched_getattr as u64, [0, at, bytes, 0, 0, 0]) };
    let is_ordinary = attributes.sched_policy == libc::SCHED_OTHER as u32;
    if got == 0 && is_ordinary && change(&mut attributes) {
        // SAFETY: of this thread; as the kernel gave it, but for numbers.
        unsafe { raw::call(libc::SYS_sched_setattr as u64, [0, at, 0, 0, 0, 0]) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes() -> libc::sched_attr {
        let mut now = None;
        change(|attributes| {
            now = Some(*attributes);
            false
        });
        now.expect("an ordinary thread")
    }

    fn slice() -> u64 {
        attributes().sched_runtime
    }

    #[test]
    fn a_thread_does_not_inherit_the_time_slices_of_its_creator() {
        let before = slice();
        serves();
        // Older kernels report 0, and other policies have no slice.
        let expected = [SLICE_NS, before];
        assert!(expected.contains(&slice()));
        let inherits = std::thread::spawn(|| {
            let inherited = slice();
            computes();
            (inherited, slice())
        });
        let (inherited, own) = inherits.join().expect("a thread");
        assert!(expected.contains(&inherited));
        assert_eq!(own, before);
    }

    #[test]
    fn a_started_thread_has_the_niceness_of_its_process() {
        let nice = std::thread::spawn(|| {
            remember();
            assert_eq!(NICE.load(Ordering::Relaxed), attributes().sched_nice);
            // Every process may raise its nice value.
            NICE.fetch_add(1, Ordering::Relaxed);
            begins();
            (attributes().sched_nice, NICE.load(Ordering::Relaxed))
        });
        let (nice, expected) = nice.join().expect("a thread");
        assert_eq!(nice, expected.min(19));
    }
}
