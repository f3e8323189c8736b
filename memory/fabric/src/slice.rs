//! How soon a thread that serves others gets a processor on which the program computes.
//!
//! Since Linux 6.6 a thread keeps its processor for a slice (a millisecond and more) against
//! others that wake: a program's thread that has just begun to compute would keep the agent
//! waiting whom others ask for its pages. Since Linux 6.12 one that asks for shorter slices may
//! go first. It gets no more time for that.

/// The shortest that the kernel gives.
const SLICE_NS: u64 = 100_000;

/// Asks for short slices for this thread. Kernels that do not know them ignore it; a thread
/// that the user has given a policy of its own keeps it.
pub fn shorten() {
    let Some(mut attributes) = attributes() else { return };
    if attributes.sched_policy == libc::SCHED_OTHER as u32 {
        attributes.sched_runtime = SLICE_NS;
        // SAFETY: of this thread; as the kernel gave it, but for a number.
        let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
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
        let before = attributes().expect("a thread can be asked").sched_runtime;
        shorten();
        let after = attributes().expect("a thread can be asked").sched_runtime;
        // Others tell nothing.
        assert_eq!(after, if before == 0 { 0 } else { SLICE_NS });
    }
}
