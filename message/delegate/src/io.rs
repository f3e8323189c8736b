//! Ready-made operations on files and sockets that the delegatee has opened, or that requesters
//! have passed to it. The kernel reads and writes the requester's memory directly, without a copy.
//!
//! All addresses of vectors, names and buffers must be in the requester's segment, which the
//! delegatee holds. Elsewhere, the memory could have another owner before the kernel writes. The
//! kernel reports EFAULT for unmapped addresses. An operation that waits for a socket checks from
//! time to time if the requester still needs the result.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use libc::{c_int, c_void, iovec, msghdr};
use rustix::io::Errno;

use crate::delegatee::{Delegatee, Job, OPERATIONS, READY_MADE};
use crate::error::Error;
use crate::passed;

/// `PVAS_DELEGATE_PREADV` and so on.
pub const PREADV: u32 = OPERATIONS - READY_MADE;
/// See [`PREADV`].
pub const PWRITEV: u32 = PREADV + 1;
/// See [`PREADV`].
pub const SENDMSG: u32 = PREADV + 2;
/// See [`PREADV`].
pub const RECVMSG: u32 = PREADV + 3;

/// Largest number of vectors in a request (IOV_MAX).
const VECTORS_MAX: usize = 1024;
/// Interval of the checks for a cancellation while an operation waits for a socket.
const CHECK_MS: c_int = 20;

/// `struct pvas_delegate_file_io`: the payload of [`PREADV`] and [`PWRITEV`].
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FileIo {
    /// [`Whose`] descriptor.
    pub fd: c_int,
    /// Flags of preadv2(2) and pwritev2(2).
    pub flags: c_int,
    /// Offset in the file, in bytes.
    pub offset: i64,
    /// Address of the vectors.
    pub vectors: u64,
    /// Number of vectors.
    pub count: u64,
}

/// `struct pvas_delegate_socket_io`: the payload of [`SENDMSG`] and [`RECVMSG`].
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SocketIo {
    /// [`Whose`] descriptor.
    pub fd: c_int,
    /// Flags of sendmsg(2) and recvmsg(2).
    pub flags: c_int,
    /// Address of a `struct msghdr`.
    pub message: u64,
}

/// The descriptors that requesters may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The delegatee's own descriptors.
    Ours,
    /// Only the descriptors that the requester has passed.
    Passed,
}

/// A descriptor that remains open during an operation.
enum Descriptor {
    Ours(c_int),
    Passed(Arc<OwnedFd>),
}

impl Descriptor {
    fn of(job: &Job<'_>, whose: Whose, number: c_int) -> Result<Self, Errno> {
        match whose {
            Whose::Ours => Ok(Self::Ours(number)),
            Whose::Passed => passed::descriptor(job.requester, number).map(Self::Passed),
        }
    }

    fn raw(&self) -> c_int {
        match self {
            Self::Ours(number) => *number,
            Self::Passed(descriptor) => descriptor.as_raw_fd(),
        }
    }
}

/// Registers the operations that read and write files.
pub fn serve_files(delegatee: &Delegatee, whose: Whose) -> Result<(), Error> {
    delegatee.register(PREADV, Some(Box::new(move |job| file(job, whose, libc::preadv2))))?;
    delegatee.register(PWRITEV, Some(Box::new(move |job| file(job, whose, libc::pwritev2))))
}

/// Registers the operations on sockets.
pub fn serve_sockets(delegatee: &Delegatee, whose: Whose) -> Result<(), Error> {
    delegatee.register(SENDMSG, Some(Box::new(move |job| send(job, whose))))?;
    delegatee.register(RECVMSG, Some(Box::new(move |job| receive(job, whose))))
}

/// Returns the payload as a `T`. Error: EINVAL if it has another length.
///
/// # Safety
/// Every pattern of bits is a `T`.
unsafe fn arguments<T: Copy>(job: &Job<'_>) -> Result<T, Errno> {
    if job.payload.len() != size_of::<T>() {
        return Err(Errno::INVAL);
    }
    // SAFETY: the length was just compared, and the caller says that all byte patterns are valid.
    Ok(unsafe { job.payload.as_ptr().cast::<T>().read_unaligned() })
}

/// Copies the requester's vectors and checks the copy, so that they cannot change after the check.
fn vectors(job: &Job<'_>, address: u64, count: usize) -> Result<Vec<iovec>, Errno> {
    if count > VECTORS_MAX {
        return Err(Errno::INVAL);
    }
    let mut vectors = vec![iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; count];
    // SAFETY: an iovec has an address and a length: all byte patterns are valid.
    unsafe { job.memory.values(address, &mut vectors)? };
    let is_inside = |vector: &iovec| {
        vector.iov_len == 0 || job.memory.has(vector.iov_base as u64, vector.iov_len as u64)
    };
    if !vectors.iter().all(is_inside) {
        return Err(Errno::FAULT);
    }
    vectors.iter().for_each(|v| job.memory.populate(v.iov_base as u64, v.iov_len as u64));
    Ok(vectors)
}

fn answer(result: isize) -> Result<i64, Errno> {
    if result >= 0 { Ok(result as i64) } else { Err(last()) }
}

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

type FileCall = unsafe extern "C" fn(c_int, *const iovec, c_int, i64, c_int) -> isize;

fn file(job: &Job<'_>, whose: Whose, call: FileCall) -> Result<i64, Errno> {
    // SAFETY: `FileIo` consists of integers: all byte patterns are valid.
    let FileIo { fd, flags, offset, vectors: at, count } = unsafe { arguments(job)? };
    if offset < 0 {
        return Err(Errno::INVAL); // -1 would mean the file position, and accept pipes
    }
    let descriptor = Descriptor::of(job, whose, fd)?;
    let vectors = vectors(job, at, usize::try_from(count).map_err(|_| Errno::INVAL)?)?;
    // SAFETY: `vectors` has checked that all buffers are in the segment of the requester, which
    // `Delegatee::work` holds during the operation.
    answer(unsafe {
        call(descriptor.raw(), vectors.as_ptr(), vectors.len() as c_int, offset, flags)
    })
}

/// A socket operation: descriptor, flags, the address of the requester's header, a checked copy of
/// that header, and the vectors that the copy names.
struct Message {
    fd: c_int,
    _descriptor: Descriptor,
    flags: c_int,
    at: u64,
    header: msghdr,
    _vectors: Vec<iovec>,
}

fn message(job: &Job<'_>, whose: Whose) -> Result<Message, Errno> {
    // SAFETY: `SocketIo` consists of integers: all byte patterns are valid.
    let SocketIo { fd, flags, message: at } = unsafe { arguments(job)? };
    let descriptor = Descriptor::of(job, whose, fd)?;
    // SAFETY: a `msghdr` consists of integers and addresses, for which zero is valid.
    let mut header: msghdr = unsafe { std::mem::zeroed() };
    // SAFETY: for the same reason, all byte patterns are valid.
    unsafe { job.memory.values(at, std::slice::from_mut(&mut header))? };
    // Control data would concern the delegatee's descriptors and credentials. A receive that waits
    // for all bytes could not be cancelled.
    if header.msg_controllen != 0 || flags & libc::MSG_WAITALL != 0 {
        return Err(Errno::INVAL);
    }
    let named = u64::from(header.msg_namelen);
    if !header.msg_name.is_null() && !job.memory.has(header.msg_name as u64, named) {
        return Err(Errno::FAULT);
    }
    job.memory.populate(header.msg_name as u64, named);
    let mut vectors = vectors(job, header.msg_iov as u64, header.msg_iovlen)?;
    header.msg_iov = vectors.as_mut_ptr();
    header.msg_control = std::ptr::null_mut();
    let (fd, _descriptor) = (descriptor.raw(), descriptor);
    Ok(Message { fd, _descriptor, flags, at, header, _vectors: vectors })
}

/// Repeats a call while the socket would block, unless the requester or the socket is non-blocking.
fn repeat(
    job: &Job<'_>,
    message: &Message,
    events: i16,
    mut call: impl FnMut(c_int) -> isize,
) -> Result<i64, Errno> {
    loop {
        let result = answer(call(message.flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL));
        if result != Err(Errno::AGAIN) || message.flags & libc::MSG_DONTWAIT != 0 {
            return result;
        }
        // SAFETY: F_GETFL takes no argument in memory.
        let status = unsafe { libc::fcntl(message.fd, libc::F_GETFL) };
        if status < 0 || status & libc::O_NONBLOCK != 0 {
            return result;
        }
        let mut poll = libc::pollfd { fd: message.fd, events, revents: 0 };
        // SAFETY: `poll` is one live entry.
        unsafe { libc::poll(&raw mut poll, 1, CHECK_MS) };
        if job.is_cancelled() {
            return Err(Errno::CANCELED);
        }
    }
}

fn send(job: &Job<'_>, whose: Whose) -> Result<i64, Errno> {
    let message = message(job, whose)?;
    repeat(job, &message, libc::POLLOUT, |flags| {
        // SAFETY: `message` has checked that all that the header names is in the segment of the
        // requester, which is held during the operation.
        unsafe { libc::sendmsg(message.fd, &raw const message.header, flags) }
    })
}

fn receive(job: &Job<'_>, whose: Whose) -> Result<i64, Errno> {
    let message = message(job, whose)?;
    let mut header = message.header;
    let received = repeat(job, &message, libc::POLLIN, |flags| {
        header = message.header;
        // SAFETY: `message` has checked that all that the header names is in the segment of the
        // requester, which is held during the operation.
        unsafe { libc::recvmsg(message.fd, &raw mut header, flags) }
    })?;
    let write = |offset: usize, bytes: &[u8]| job.memory.write(message.at + offset as u64, bytes);
    write(std::mem::offset_of!(msghdr, msg_namelen), &header.msg_namelen.to_ne_bytes())?;
    write(std::mem::offset_of!(msghdr, msg_flags), &header.msg_flags.to_ne_bytes())?;
    Ok(received)
}

const _: () = assert!(size_of::<*mut c_void>() == size_of::<u64>());
