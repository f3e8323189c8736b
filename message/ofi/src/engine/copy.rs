//! Copies between this task's memory and another task's, and into the program's buffers.
//!
//! Copies between tasks are process_vm_readv(2) and process_vm_writev(2). Between tasks of one mm
//! the gate answers these by one copy in user space, with the fastest loop for the size. A bad
//! address is an error, where plain loads and stores would end the task.

use std::sync::atomic::Ordering::Relaxed;

use control::Identity;
use rustix::io::Errno;

use crate::engine::space::Here;
use crate::protocol::parts::{PARTS, Part, Parts};

/// Returns the process for the system call: this one, where it has the same memory.
fn process(here: &Here, task: Identity, is_far: bool) -> libc::pid_t {
    if !is_far {
        return here.pid;
    }
    here.task.control.slot(task.id).pid.load(Relaxed) as libc::pid_t
}

fn vector(parts: &[Part]) -> ([libc::iovec; PARTS], usize) {
    let mut all = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS];
    for (to, from) in all.iter_mut().zip(parts) {
        *to = libc::iovec { iov_base: from.address as *mut _, iov_len: from.length as usize };
    }
    (all, parts.len().min(PARTS))
}

/// The direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the other task to this one.
    Pull,
    /// From this task to the other one.
    Push,
}

/// Copies `bytes` bytes between `here`, buffers of this task, and `there`, buffers of `task`. The
/// caller holds that task. Both have `bytes` bytes. Error: EFAULT.
pub fn copy(
    us: &Here,
    task: Identity,
    is_far: bool,
    direction: Direction,
    here: &[Part],
    there: &[Part],
    bytes: u64,
) -> Result<(), Errno> {
    debug_assert!(here.len() <= PARTS && there.len() <= PARTS);
    if bytes == 0 {
        return Ok(());
    }
    let pid = process(us, task, is_far);
    let (here, here_count) = vector(here);
    let (there, there_count) = vector(there);
    // SAFETY: `here` are buffers that the program has passed for this operation. The kernel or the
    // gate checks all addresses, and reports a bad one as an error.
    let copied = unsafe {
        let call = match direction {
            Direction::Pull => libc::process_vm_readv,
            Direction::Push => libc::process_vm_writev,
        };
        call(pid, here.as_ptr(), here_count as u64, there.as_ptr(), there_count as u64, 0)
    };
    if copied == bytes as isize { Ok(()) } else { Err(Errno::FAULT) }
}

/// Returns the first `bytes` bytes of a buffer, and the number of its parts.
pub fn cut(parts: &[Part], mut bytes: u64) -> ([Part; PARTS], usize) {
    let mut cut = [Part::default(); PARTS];
    let mut count = 0;
    for (to, from) in cut.iter_mut().zip(parts) {
        if bytes == 0 {
            break;
        }
        *to = Part { address: from.address, length: from.length.min(bytes) };
        bytes -= to.length;
        count += 1;
    }
    (cut, count)
}

/// Copies up to `bytes` bytes into a buffer of the program's. `read` copies the bytes from an
/// offset on into one part.
pub fn scatter(buffer: &Parts, bytes: usize, mut read: impl FnMut(usize, &mut [u8])) {
    let mut done = 0;
    for part in buffer.list() {
        let length = (bytes - done).min(part.length as usize);
        if length == 0 {
            continue;
        }
        // SAFETY: the buffer of a posted receive. By fi_msg(3) and fi_tagged(3), the program leaves
        // it to us until the completion.
        let to = unsafe { std::slice::from_raw_parts_mut(part.address as *mut u8, length) };
        read(done, to);
        done += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_cut_where_the_message_ends() {
        let part = |address, length| Part { address, length };
        let parts = [part(10, 5), part(20, 0), part(30, 7)];
        let list = |bytes| {
            let (cut, count) = cut(&parts, bytes);
            cut[..count].to_vec()
        };
        assert_eq!(list(0), []);
        assert_eq!(list(5), [part(10, 5)]);
        assert_eq!(list(6), [part(10, 5), part(20, 0), part(30, 1)]);
        assert_eq!(list(12), parts);
    }
}
