//! Reads and writes another process's memory. Between tasks of one space, Nagaya's gate copies in
//! user space; between ordinary processes, the kernel copies.

use rustix::io::Errno;

/// Copies from another process's memory. It fails if that process has ended, or if the system
/// forbids it.
pub(crate) fn read(pid: u32, address: usize, to: &mut [u8]) -> Result<(), Errno> {
    let (start, length) = (to.as_mut_ptr(), to.len());
    transfer(address, length, |done, there| {
        // SAFETY: `done` is less than the length of `to` (`transfer`).
        let rest = unsafe { start.add(done) };
        let here = libc::iovec { iov_base: rest.cast(), iov_len: length - done };
        // SAFETY: the call writes only into the rest of `to`; `there` is an address of the other
        // process, which the call checks. (The gate of a space answers libc's system call.)
        unsafe { libc::process_vm_readv(pid as libc::pid_t, &here, 1, there, 1, 0) }
    })
}

/// Copies to an address of a process of this space.
pub(crate) fn write(pid: u32, address: usize, from: &[u8]) -> Result<(), Errno> {
    transfer(address, from.len(), |done, there| {
        let rest = &from[done..];
        let here = libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
        // SAFETY: the call only reads `rest`. `together` has checked that the address is of a
        // buffer that its owner exposes, and the call reports a bad one as an error.
        unsafe { libc::process_vm_writev(pid as libc::pid_t, &here, 1, there, 1, 0) }
    })
}

/// Makes calls until all is copied. `call` gets the bytes that are copied already, and the rest of
/// the other process's memory.
fn transfer(
    address: usize,
    length: usize,
    mut call: impl FnMut(usize, &libc::iovec) -> isize,
) -> Result<(), Errno> {
    let mut done = 0;
    while done < length {
        let there = address.wrapping_add(done);
        let iov_base = std::ptr::with_exposed_provenance_mut(there);
        match usize::try_from(call(done, &libc::iovec { iov_base, iov_len: length - done })) {
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
