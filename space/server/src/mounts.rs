//! Mount namespaces of stubs: a task starts in the mount namespace and root directory of its stub
//! where these are not the server's.
//!
//! The server's thread goes there, opens the program and clones the task, which inherits both,
//! and returns. The kernel allows that with CAP_SYS_ADMIN and CAP_SYS_CHROOT in the user
//! namespace that owns the mount namespaces. Nothing else of the task changes: its rights are the
//! server's, which are those of the stub ([`crate::identity`]).

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
    /// Those of the calling thread.
    pub fn of_this_thread() -> Result<Self, Errno> {
        let open = |path, flags| openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty());
        Ok(Self {
            namespace: open("/proc/thread-self/ns/mnt", OFlags::RDONLY)?,
            root: open("/", OFlags::PATH | OFlags::DIRECTORY)?,
        })
    }

    /// From descriptors, as [`Mounts::descriptors`] gives them.
    pub fn from_descriptors(namespace: OwnedFd, root: OwnedFd) -> Self {
        Self { namespace, root }
    }

    /// The namespace's and the root directory's descriptor.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.namespace.as_fd(), self.root.as_fd()]
    }

    /// The calling thread goes there. Its working directory becomes the root directory.
    fn enter(&self) -> Result<(), Errno> {
        let kind = Some(LinkNameSpaceType::Mount);
        move_into_link_name_space(self.namespace.as_fd(), kind)?;
        fchdir(&self.root)?;
        chroot(".")
    }
}

/// The calling thread is in the mounts of a stub; dropped, it returns to its own.
#[derive(Debug)]
pub struct Visit {
    own: Mounts,
    directory: OwnedFd,
}

impl Visit {
    /// Goes to `mounts`. On an error the thread is where it was.
    pub fn new(mounts: &Mounts) -> Result<Self, Errno> {
        // SAFETY: this thread's root and working directory are no longer shared with the other
        // threads of the server, none of which changes them.
        unsafe { unshare_unsafe(UnshareFlags::FS)? };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, ".", flags, Mode::empty())?;
        let own = Mounts::of_this_thread()?;
        // Whoever may not return must not go.
        own.enter()?;
        let visit = Self { own, directory };
        mounts.enter()?;
        Ok(visit)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        // Allowed before, and nothing has changed since. In foreign mounts the server must not
        // serve anybody.
        self.own.enter().expect("the server returns to its own mount namespace");
        // Its own programs are named by absolute paths.
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
