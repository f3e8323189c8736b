//! How long a thread keeps its processor against others that wake: shadows, who serve other nodes,
//! shortly (see [`net::slice`]), the program's threads as the kernel has it. A new thread has
//! what the one had that made it, which may be the agent, who may also be less nice.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::raw;

/// Of threads that serve.
const SLICE_NS: u64 = 100_000;

/// How nice the process was to others when it began.
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

/// Slices of so many ns for this thread. Kernels before 6.12 ignore this.
fn slices(ns: u64) {
    change(|attributes| std::mem::replace(&mut attributes.sched_runtime, ns) != ns);
}

/// Changes how this thread is scheduled, if `change` says that it has changed something. As
/// [`net::slice::shorten`]: who has a policy of its own keeps it.
fn change(change: impl FnOnce(&mut libc::sched_attr) -> bool) {
    // SAFETY: a plain structure of numbers.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let bytes = size_of_val(&attributes) as u64;
    let at = &raw mut attributes as u64;
    // SAFETY: the kernel writes so many bytes at most.
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
        // Older kernels tell nothing, and other policies have none.
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
            // To be nicer everybody may.
            NICE.fetch_add(1, Ordering::Relaxed);
            begins();
            (attributes().sched_nice, NICE.load(Ordering::Relaxed))
        });
        let (nice, expected) = nice.join().expect("a thread");
        assert_eq!(nice, expected.min(19));
    }
}
