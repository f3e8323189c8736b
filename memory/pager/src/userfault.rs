//! The kernel's userfaultfd(2). Only this file opens it and calls its ioctls.
//!
//! A range is registered for three kinds of faults: *missing* (the memory has no page), *minor*
//! (the memory has the page, but this view does not map it yet), and *write-protect*. With a full
//! descriptor, threads that fault inside a system call also wait. With an unprivileged one, the
//! system call fails.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use linux_raw_sys::general::*;
use linux_raw_sys::ioctl::*;
use rustix::fd::FromRawFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl;
use rustix::mm::{UserfaultfdFlags, userfaultfd};

use crate::access::Stops;
use crate::error::PagerError;

/// The features that shared memory needs: Linux 5.19.
const FEATURES: u32 = UFFD_FEATURE_PAGEFAULT_FLAG_WP
    | UFFD_FEATURE_MISSING_SHMEM
    | UFFD_FEATURE_MINOR_SHMEM
    | UFFD_FEATURE_WP_HUGETLBFS_SHMEM
    | UFFD_FEATURE_THREAD_ID
    | UFFD_FEATURE_EXACT_ADDRESS;
/// `UFFDIO_CONTINUE_MODE_WP`, which the headers of Linux 6.4 define. It came with the feature, so
/// the feature bit tests for it.
const CONTINUE_WRITE_PROTECTED: u64 = 1 << 1;
const CAN_CONTINUE_WRITE_PROTECTED: u32 = UFFD_FEATURE_WP_UNPOPULATED;
/// `UFFDIO_COPY_MODE_WP`.
const COPY_WRITE_PROTECTED: u64 = 1 << 1;
/// `UFFDIO_WRITEPROTECT_MODE_WP`.
const PROTECT: u64 = 1 << 0;
/// `USERFAULTFD_IOC_NEW`: a new one, by /dev/userfaultfd.
const NEW: ioctl::Opcode = USERFAULTFD_IOC << 8;
/// Messages that one read takes.
const BATCH: usize = 16;

/// An open userfaultfd of this process.
pub struct Userfault {
    descriptor: OwnedFd,
    /// A page can be mapped for reading only in one step.
    pub maps_to_read: bool,
}

/// A thread was stopped.
pub struct Stopped {
    /// The address of the fault.
    pub address: usize,
    /// It wants to write.
    pub writes: bool,
    /// Its ID.
    pub thread: u32,
}

impl Userfault {
    pub fn new(stops: Stops) -> Result<Self, PagerError> {
        // A handshake without requested features returns all features. A descriptor accepts one
        // handshake.
        let features = handshake(&open(stops)?, 0)?;
        if features & u64::from(FEATURES) != u64::from(FEATURES) {
            return Err(PagerError::Old);
        }
        let descriptor = open(stops)?;
        handshake(&descriptor, FEATURES)?;
        let maps_to_read = features & u64::from(CAN_CONTINUE_WRITE_PROTECTED) != 0;
        Ok(Self { descriptor, maps_to_read })
    }

    /// Opens a descriptor that stops no thread: a fault gives SIGBUS.
    pub fn silent(stops: Stops) -> Result<Self, PagerError> {
        let descriptor = open(stops)?;
        handshake(&descriptor, UFFD_FEATURE_SIGBUS | UFFD_FEATURE_MISSING_SHMEM)?;
        Ok(Self { descriptor, maps_to_read: false })
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// For what is missing alone.
    pub fn register_missing(&self, at: Range<usize>) -> Result<(), Errno> {
        let mode = UFFDIO_REGISTER_MODE_MISSING.into();
        let mut argument = uffdio_register { range: range(at), mode, ioctls: 0 };
        // SAFETY: registers a range of a region, to which no thread has access yet.
        unsafe { self.call::<UFFDIO_REGISTER, _>(&mut argument) }
    }

    pub fn register(&self, at: Range<usize>) -> Result<(), Errno> {
        let mode =
            UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP;
        let mut argument = uffdio_register { range: range(at), mode: mode.into(), ioctls: 0 };
        // SAFETY: registers a range of a region, to which no thread has access yet.
        unsafe { self.call::<UFFDIO_REGISTER, _>(&mut argument) }
    }

    /// Ends the registration of a range, and all write protection there; resumes threads.
    pub fn unregister(&self, at: Range<usize>) -> Result<(), Errno> {
        let mut argument = range(at);
        // SAFETY: threads then use the range as other memory.
        unsafe { self.call::<UFFDIO_UNREGISTER, _>(&mut argument) }
    }

    /// Maps pages that the memory has, and resumes threads. Returns the number of mapped bytes, or
    /// an error if it is 0.
    pub fn map(&self, at: Range<usize>, writable: bool) -> Result<usize, Errno> {
        let mode = if writable { 0 } else { CONTINUE_WRITE_PROTECTED };
        let mut argument = uffdio_continue { range: range(at), mode, mapped: 0 };
        // SAFETY: maps pages of a range that is registered.
        match unsafe { self.call::<UFFDIO_CONTINUE, _>(&mut argument) } {
            Ok(()) => Ok(argument.range.len as usize),
            Err(Errno::AGAIN) if argument.mapped > 0 => Ok(argument.mapped as usize),
            Err(error) => Err(error),
        }
    }

    /// Fills absent memory with bytes, maps it, and resumes threads. Returns the number of bytes,
    /// or an error if it is 0.
    pub fn copy(&self, to: usize, bytes: &[u8], writable: bool) -> Result<usize, Errno> {
        let mode = if writable { 0 } else { COPY_WRITE_PROTECTED };
        let (len, src) = (bytes.len() as u64, bytes.as_ptr().addr() as u64);
        let mut argument = uffdio_copy { dst: to as u64, src, len, mode, copy: 0 };
        // SAFETY: reads the bytes; fills pages of a range that is registered.
        match unsafe { self.call::<UFFDIO_COPY, _>(&mut argument) } {
            Ok(()) => Ok(bytes.len()),
            Err(Errno::AGAIN) if argument.copy > 0 => Ok(argument.copy as usize),
            Err(error) => Err(error),
        }
    }

    /// The same with zeros, which threads may write.
    pub fn zero(&self, at: Range<usize>) -> Result<usize, Errno> {
        let mut argument = uffdio_zeropage { range: range(at), mode: 0, zeropage: 0 };
        // SAFETY: fills pages of a range that is registered.
        match unsafe { self.call::<UFFDIO_ZEROPAGE, _>(&mut argument) } {
            Ok(()) => Ok(argument.range.len as usize),
            Err(Errno::AGAIN) if argument.zeropage > 0 => Ok(argument.zeropage as usize),
            Err(error) => Err(error),
        }
    }

    /// Protects against writing; or ends that, and lets threads go on.
    pub fn protect(&self, at: Range<usize>, protects: bool) -> Result<(), Errno> {
        let mode = if protects { PROTECT } else { 0 };
        let mut argument = uffdio_writeprotect { range: range(at), mode };
        loop {
            // SAFETY: protects pages of a range that is registered.
            match unsafe { self.call::<UFFDIO_WRITEPROTECT, _>(&mut argument) } {
                // Another thread maps something at this moment.
                Err(Errno::AGAIN) => continue,
                done => return done,
            }
        }
    }

    /// Lets threads that wait try again.
    pub fn wake(&self, at: Range<usize>) -> Result<(), Errno> {
        let mut argument = range(at);
        // SAFETY: changes nothing.
        unsafe { self.call::<UFFDIO_WAKE, _>(&mut argument) }
    }

    /// Appends the faults since the last call. Never waits.
    pub fn stopped(&self, stopped: &mut Vec<Stopped>) -> Result<(), Errno> {
        let mut messages = [MaybeUninit::<uffd_msg>::uninit(); BATCH];
        loop {
            // SAFETY: the same memory, as bytes that need not be initialized.
            let bytes: &mut [MaybeUninit<u8>] = unsafe {
                std::slice::from_raw_parts_mut(messages.as_mut_ptr().cast(), size_of_val(&messages))
            };
            let count = match rustix::io::read(&self.descriptor, bytes) {
                Ok((filled, _)) => filled.len() / size_of::<uffd_msg>(),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            for message in &messages[..count] {
                // SAFETY: the read returned the size of a whole message, so the kernel has filled
                // it.
                let message = unsafe { message.assume_init() };
                if u32::from(message.event) != UFFD_EVENT_PAGEFAULT {
                    continue;
                }
                // SAFETY: the event is a page fault, whose union field is `pagefault`.
                let fault = unsafe { message.arg.pagefault };
                let writes = UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP;
                stopped.push(Stopped {
                    address: fault.address as usize,
                    writes: fault.flags & u64::from(writes) != 0,
                    // SAFETY: `FEATURES` requested the thread's ID, so the kernel sets `ptid`.
                    thread: unsafe { fault.feat.ptid },
                });
            }
            if count < BATCH {
                return Ok(());
            }
        }
    }

    /// # Safety
    /// `argument` must have the type of the ioctl `OPERATION`, and its effect must be safe.
    unsafe fn call<const OPERATION: ioctl::Opcode, T>(
        &self,
        argument: &mut T,
    ) -> Result<(), Errno> {
        // SAFETY: this function requires the argument's type and a safe effect.
        unsafe { ioctl::ioctl(&self.descriptor, ioctl::Updater::<OPERATION, T>::new(argument)) }
    }
}

fn range(at: Range<usize>) -> uffdio_range {
    uffdio_range { start: at.start as u64, len: at.len() as u64 }
}

/// By the system call, or by the device where only that is allowed.
fn open(stops: Stops) -> Result<OwnedFd, PagerError> {
    // Without NONBLOCK, poll(2) reports POLLERR.
    let mut flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    if stops == Stops::Programs {
        flags |= UserfaultfdFlags::from_bits_retain(UFFD_USER_MODE_ONLY);
    }
    // SAFETY: opens a descriptor. Only ranges of this crate's mappings are registered with it.
    match unsafe { userfaultfd(flags) } {
        Ok(descriptor) => return Ok(descriptor),
        Err(Errno::PERM | Errno::NOSYS) => {}
        Err(why) => return Err(PagerError::System { doing: "open a userfaultfd", why }),
    }
    let device =
        rustix::fs::open("/dev/userfaultfd", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|_| PagerError::Forbidden)?;
    // SAFETY: takes flags and returns a new descriptor, which this function owns.
    unsafe {
        let descriptor = ioctl::ioctl(&device, Opens { flags: flags.bits() })
            .map_err(|_| PagerError::Forbidden)?;
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// Agrees on the version and the requested features. Returns the kernel's features.
fn handshake(descriptor: &OwnedFd, features: u32) -> Result<u64, PagerError> {
    let mut api = uffdio_api { api: UFFD_API.into(), features: features.into(), ioctls: 0 };
    // SAFETY: asks.
    unsafe { ioctl::ioctl(descriptor, ioctl::Updater::<UFFDIO_API, _>::new(&mut api)) }
        .map_err(|_| PagerError::Old)?;
    Ok(api.features)
}

/// An ioctl whose argument is a number, and whose result a descriptor.
struct Opens {
    flags: u32,
}

// SAFETY: as USERFAULTFD_IOC_NEW is documented.
unsafe impl ioctl::Ioctl for Opens {
    type Output = i32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> ioctl::Opcode {
        NEW
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        std::ptr::without_provenance_mut(self.flags as usize)
    }

    unsafe fn output_from_ptr(
        out: ioctl::IoctlOutput,
        _: *mut std::ffi::c_void,
    ) -> rustix::io::Result<i32> {
        Ok(out)
    }
}
