//! How long a thread keeps its processor against others that wake: shadows, who serve other nodes,
//! shortly (see [`fabric::slice`]), the program's threads as the kernel has it. A new thread has
//! what the one had that made it, which may be the agent.

use crate::raw;

/// Of threads that serve.
const SLICE_NS: u64 = 100_000;

/// This thread computes from now on.
pub fn computes() {
    // The kernel's own.
    slices(0);
}

/// This thread serves from now on.
pub fn serves() {
    slices(SLICE_NS);
}

/// Slices of so many ns for this thread. As [`fabric::slice::shorten`]: who has a policy of its
/// own keeps it, and kernels before 6.12 ignore this.
fn slices(ns: u64) {
    // SAFETY: a plain structure of numbers.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let bytes = size_of_val(&attributes) as u64;
    let attributes = &raw mut attributes;
    let at = attributes as u64;
    // SAFETY: the kernel writes so many bytes at most, and reads them, as it gave them but for
    // a number.
    unsafe {
        let got = raw::call(libc::SYS_sched_getattr as u64, [0, at, bytes, 0, 0, 0]);
        let is_ordinary = (*attributes).sched_policy == libc::SCHED_OTHER as u32;
        if got == 0 && is_ordinary && (*attributes).sched_runtime != ns {
            (*attributes).sched_runtime = ns;
            raw::call(libc::SYS_sched_setattr as u64, [0, at, 0, 0, 0, 0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice() -> u64 {
        // SAFETY: a plain structure of numbers, into which the kernel writes so many bytes.
        unsafe {
            let mut attributes: libc::sched_attr = std::mem::zeroed();
            let bytes = size_of_val(&attributes);
            let got = libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, bytes, 0);
            assert_eq!(got, 0);
            attributes.sched_runtime
        }
    }

    #[test]
    fn who_computes_has_not_the_slices_of_who_began_it() {
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
}
