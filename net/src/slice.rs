//! Scheduling of a thread that serves others on a processor on which the program computes.
//!
//! Since Linux 6.6 a thread keeps its processor for a slice (a millisecond or more) when other
//! threads wake up. So a program's thread that has just begun to compute would delay the agent,
//! and with it all nodes that request its pages. Since Linux 6.12 a thread that requests shorter
//! slices may run first, but only if it has not had more than its share; a busy agent has. So it
//! also requests a larger share, which root and RLIMIT_NICE allow.

/// The shortest that the kernel gives.
const SLICE_NS: u64 = 100_000;
/// The decrease of the nice value: about ten times the share of others, which is seldom used.
const LESS_NICE: i32 = 10;
/// The least that there is.
const NICE_MIN: i32 = -20;

/// Requests short slices and a lower nice value for this thread. Kernels without these features
/// ignore the request. A thread with a scheduling policy of the user keeps it.
pub fn shorten() {
    let Some(mut attributes) = attributes() else { return };
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attributes.sched_runtime = SLICE_NS;
    let nice = attributes.sched_nice;
    for nice in [(nice - LESS_NICE).max(NICE_MIN), nice] {
        attributes.sched_nice = nice;
        // SAFETY: of this thread; as the kernel gave it, but for numbers.
        if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } == 0 {
            return;
        }
    }
}

/// Returns the scheduling attributes of this thread.
fn attributes() -> Option<libc::sched_attr> {
    // SAFETY: a plain structure of numbers.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let bytes = size_of_val(&attributes);
    // SAFETY: the kernel writes at most `bytes` bytes, the size of `attributes`.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, bytes, 0) };
    (got == 0).then_some(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_short_where_the_kernel_knows_them() {
        let before = attributes().expect("a thread can be asked");
        shorten();
        let after = attributes().expect("a thread can be asked");
        // Other kernels report 0.
        assert_eq!(after.sched_runtime, if before.sched_runtime == 0 { 0 } else { SLICE_NS });
        let allowed = [before.sched_nice, (before.sched_nice - LESS_NICE).max(NICE_MIN)];
        assert!(allowed.contains(&after.sched_nice));
    }
}
