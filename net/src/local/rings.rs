//! The memory that two carriers share: a sealed memfd with a ring for each direction.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use sync::mapped::{Mapped, size_of_ring};

/// Lines of a ring: 256 KiB, which fit the second cache of a core.
const LINES: u32 = 1 << 12;
/// The seals: the memory has its size for ever, so no access can fail.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The mapped rings of a connection. Dropped, they are unmapped.
pub struct Rings {
    start: NonNull<u8>,
    /// The ring into which this side writes.
    pub out: Mapped,
    /// The ring from which this side reads.
    pub into: Mapped,
}

// SAFETY: memory that no thread is bound to.
unsafe impl Send for Rings {}

fn bytes_of_ring() -> usize {
    size_of_ring(LINES).next_multiple_of(4096)
}

impl Rings {
    /// Creates rings, and sends them to the other side. This side writes into the first one.
    pub fn create(socket: BorrowedFd<'_>) -> Result<Self, Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("nagaya-net", flags)?;
        rustix::fs::ftruncate(&memory, 2 * bytes_of_ring() as u64)?;
        rustix::fs::fcntl_add_seals(&memory, SEALS)?;
        let rings = Self::map(&memory, true)?;
        let descriptors = [memory.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(socket, &[IoSlice::new(&[1])], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(rings)
    }

    /// Receives the rings that the other side has created. Returns `None` if they have not come.
    pub fn receive(socket: BorrowedFd<'_>) -> Result<Option<Self>, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut parts = [IoSliceMut::new(&mut byte)];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match recvmsg(socket, &mut parts, &mut ancillary, flags) {
            Ok(came) if came.bytes == 1 => {}
            Ok(_) => return Err(Errno::CONNRESET),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(errno) => return Err(errno),
        }
        let memory = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        let memory = memory.ok_or(Errno::PROTO)?;
        let bytes = rustix::fs::fstat(&memory)?.st_size;
        let is_sealed = rustix::fs::fcntl_get_seals(&memory)?.contains(SEALS);
        if bytes != 2 * bytes_of_ring() as i64 || !is_sealed {
            return Err(Errno::PROTO);
        }
        Self::map(&memory, false).map(Some)
    }

    fn map(memory: &OwnedFd, is_creator: bool) -> Result<Self, Errno> {
        let bytes = 2 * bytes_of_ring();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel selects.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, memory, 0)? };
        let start = NonNull::new(start.cast::<u8>()).expect("the kernel maps nothing at 0");
        // SAFETY: both rings lie in the mapping of twice `bytes_of_ring`, which is at least
        // `size_of_ring` and a whole number of pages. It stays mapped until `Drop`, and its seals
        // keep the memory's size. New memory is zero, and both sides use rings of one size.
        let (first, second) =
            unsafe { (Mapped::at(start, LINES), Mapped::at(start.add(bytes_of_ring()), LINES)) };
        let (out, into) = if is_creator { (first, second) } else { (second, first) };
        Ok(Self { start, out, into })
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and unmapped once. The rings are fields of this value.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), 2 * bytes_of_ring()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockets() -> (OwnedFd, OwnedFd) {
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let (unix, stream) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM);
        rustix::net::socketpair(unix, stream, flags, None).expect("a pair of sockets")
    }

    /// Sends memory in place of rings.
    fn send_memory(socket: &OwnedFd, bytes: usize, seals: SealFlags) {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("test", flags).expect("memory");
        rustix::fs::ftruncate(&memory, bytes as u64).expect("room");
        rustix::fs::fcntl_add_seals(&memory, seals).expect("seals");
        let descriptors = [memory.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(socket, &[IoSlice::new(&[1])], &mut ancillary, SendFlags::NOSIGNAL).expect("sent");
    }

    #[test]
    fn rings_are_shared() {
        let (here, there) = sockets();
        assert!(Rings::receive(there.as_fd()).expect("an open socket").is_none());
        let _ours = Rings::create(here.as_fd()).expect("rings");
        assert!(Rings::receive(there.as_fd()).expect("rings").is_some());
    }

    /// The other side could make it shorter, and an access would end this process by SIGBUS.
    #[test]
    fn memory_that_can_change_its_size_is_refused() {
        let right = 2 * bytes_of_ring();
        for (bytes, seals) in [
            (right, SealFlags::empty()),
            (right, SealFlags::GROW),
            (right - 4096, SEALS),
            (0, SEALS),
        ] {
            let (here, there) = sockets();
            send_memory(&here, bytes, seals);
            assert!(
                matches!(Rings::receive(there.as_fd()), Err(Errno::PROTO)),
                "{bytes} {seals:?}"
            );
        }
    }

    #[test]
    fn a_message_without_memory_is_refused() {
        let (here, there) = sockets();
        rustix::net::send(&here, &[1], SendFlags::NOSIGNAL).expect("sent");
        assert!(matches!(Rings::receive(there.as_fd()), Err(Errno::PROTO)));
        drop(here);
        assert!(matches!(Rings::receive(there.as_fd()), Err(Errno::CONNRESET)));
    }
}
