//! Reads another process's memory. Between tasks of one space, Nagaya's gate copies in user space;
//! between ordinary processes, the kernel copies.

use rustix::io::Errno;

/// Copies from another process's memory. It fails if that process has ended, or if the system
/// forbids it.
pub(crate) fn read(pid: u32, address: usize, to: &mut [u8]) -> Result<(), Errno> {
    let mut done = 0;
    while done < to.len() {
        let left = &mut to[done..];
        let (here, length) = (left.as_mut_ptr().cast(), left.len());
        let here = libc::iovec { iov_base: here, iov_len: length };
        let there = address.wrapping_add(done);
        let there =
            libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(there), iov_len: length };
        // SAFETY: the call writes at most `length` bytes into `left`; `there` is an address of the
        // other process, which the call checks. (The gate of a space answers libc's system call.)
        let copied = unsafe { libc::process_vm_readv(pid as libc::pid_t, &here, 1, &there, 1, 0) };
        match usize::try_from(copied) {
            Ok(0) => return Err(Errno::FAULT),
            Ok(copied) => done += copied,
            Err(_) => {
                let error = std::io::Error::last_os_error();
                return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
            }
        }
    }
    Ok(())
}
