//! How soon a thread that serves others gets a processor on which the program computes.
//!
//! Since Linux 6.6 a thread keeps its processor for a slice (a millisecond and more) against
//! others that wake: a program's thread that has just begun to compute would keep the agent
//! waiting whom others ask for its pages. Since Linux 6.12 one that asks for shorter slices may
//! go first, but only while it has had no more than its share; one that answers many has. So it
//! also asks for a larger share, which root gets, and whom RLIMIT_NICE allows it.

/// The shortest that the kernel gives.
const SLICE_NS: u64 = 100_000;
/// So much less nice than others: nearly ten times their share, of what it seldom uses.
const LESS_NICE: i32 = 10;
/// The least that there is.
const NICE_MIN: i32 = -20;

/// Asks for short slices for this thread, and to be less nice. Kernels that do not know them
/// ignore it; a thread that the user has given a policy of its own keeps it.
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

/// How this thread is scheduled.
fn attributes() -> Option<libc::sched_attr> {
    // SAFETY: a plain structure of numbers.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let bytes = size_of_val(&attributes);
    // SAFETY: the kernel writes so many bytes at most.
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
        // Others tell nothing.
        assert_eq!(after.sched_runtime, if before.sched_runtime == 0 { 0 } else { SLICE_NS });
        let allowed = [before.sched_nice, (before.sched_nice - LESS_NICE).max(NICE_MIN)];
        assert!(allowed.contains(&after.sched_nice));
    }
}
