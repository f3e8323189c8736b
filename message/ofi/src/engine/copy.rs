//! Copies between our memory and another task's.
//!
//! They are made by process_vm_readv and process_vm_writev: between tasks of one mm the gate
//! answers these by one copy in user space, with the loop that is fastest for the size; a bad
//! address is an error, where plain loads and stores would end the task.

use std::sync::atomic::Ordering::Relaxed;

use control::Identity;
use rustix::io::Errno;

use crate::engine::space::Here;
use crate::protocol::parts::{PARTS, Part};

/// The process whose memory is to be named: our own where it is the same.
fn process(here: &Here, whom: Identity, is_far: bool) -> libc::pid_t {
    if !is_far {
        return here.pid;
    }
    here.task.control.slot(whom.id).pid.load(Relaxed) as libc::pid_t
}

fn vector(parts: &[Part]) -> ([libc::iovec; PARTS], usize) {
    let mut all = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS];
    for (to, from) in all.iter_mut().zip(parts) {
        *to = libc::iovec { iov_base: from.address as *mut _, iov_len: from.length as usize };
    }
    (all, parts.len().min(PARTS))
}

/// Which way to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From there to here.
    Pull,
    /// From here to there.
    Push,
}

/// Copies `bytes` between buffers that have as much, ours `here` and `there` that of a task
/// which the caller holds. Error: EFAULT.
pub fn copy(
    us: &Here,
    whom: Identity,
    is_far: bool,
    way: Way,
    here: &[Part],
    there: &[Part],
    bytes: u64,
) -> Result<(), Errno> {
    if bytes == 0 {
        return Ok(());
    }
    let pid = process(us, whom, is_far);
    let (here, here_count) = vector(here);
    let (there, there_count) = vector(there);
    // SAFETY: the buffers are their owners', who have asked for it; a bad address is an error.
    let copied = unsafe {
        let call = match way {
            Way::Pull => libc::process_vm_readv,
            Way::Push => libc::process_vm_writev,
        };
        call(pid, here.as_ptr(), here_count as u64, there.as_ptr(), there_count as u64, 0)
    };
    if copied == bytes as isize { Ok(()) } else { Err(Errno::FAULT) }
}

/// The first `bytes` of a buffer.
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
