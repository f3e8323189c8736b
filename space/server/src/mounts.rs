//! Mount namespaces of stubs. A task starts in the mount namespace and root directory of its stub
//! if these differ from the server's.
//!
//! The server's thread enters them, opens the program, clones the task, which inherits both, and
//! returns. The kernel allows that with CAP_SYS_ADMIN and CAP_SYS_CHROOT in the user namespace that
//! owns the mount namespaces. The task keeps the server's rights, which equal the stub's
//! ([`crate::identity`]).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{chroot, fchdir};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// A mount namespace and a root directory in it.
#[derive(Debug)]
pub struct Mounts {
    namespace: OwnedFd,
    root: OwnedFd,
}

impl Mounts {
    /// Returns the mounts of the calling thread.
    pub fn of_this_thread() -> Result<Self, Errno> {
        let open = |path, flags| openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty());
        Ok(Self {
            namespace: open("/proc/thread-self/ns/mnt", OFlags::RDONLY)?,
            root: open("/", OFlags::PATH | OFlags::DIRECTORY)?,
        })
    }

    /// Wraps descriptors, in the order of [`Mounts::descriptors`].
    pub fn from_descriptors(namespace: OwnedFd, root: OwnedFd) -> Self {
        Self { namespace, root }
    }

    /// Returns the descriptors of the namespace and of the root directory.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.namespace.as_fd(), self.root.as_fd()]
    }

    /// Moves the calling thread to these mounts. Its working directory becomes the root directory.
    fn enter(&self) -> Result<(), Errno> {
        let kind = Some(LinkNameSpaceType::Mount);
        move_into_link_name_space(self.namespace.as_fd(), kind)?;
        fchdir(&self.root)?;
        chroot(".")
    }
}

/// A visit of the calling thread to a stub's mounts. Dropping it returns the thread to its own
/// mounts.
#[derive(Debug)]
pub struct Visit {
    own: Mounts,
    directory: OwnedFd,
}

impl Visit {
    /// Enters `mounts`. After an error the thread is where it was.
    pub fn new(mounts: &Mounts) -> Result<Self, Errno> {
        // SAFETY: the call only ends the sharing of root and working directory with the server's
        // other threads, none of which changes them.
        unsafe { unshare_unsafe(UnshareFlags::FS)? };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, ".", flags, Mode::empty())?;
        let own = Mounts::of_this_thread()?;
        // Entering the own mounts first checks that the thread is allowed to return.
        own.enter()?;
        let visit = Self { own, directory };
        mounts.enter()?;
        Ok(visit)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        // `Visit::new` made the same call with success. In foreign mounts the server must not serve
        // any stub.
        self.own.enter().expect("the server returns to its own mount namespace");
        // A failure is harmless, because the server uses absolute paths.
        let _ = fchdir(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_to_what_is_no_namespace_fails_and_changes_nothing() {
        std::thread::spawn(|| {
            let before = std::fs::read_link("/proc/thread-self/ns/mnt").expect("a link");
            let file = || std::fs::File::open("/proc/self/status").expect("a file").into();
            assert!(Visit::new(&Mounts::from_descriptors(file(), file())).is_err());
            assert_eq!(std::fs::read_link("/proc/thread-self/ns/mnt").expect("a link"), before);
            assert!(std::path::Path::new("/proc/self/status").exists());
        })
        .join()
        .expect("the thread ends");
    }
}
