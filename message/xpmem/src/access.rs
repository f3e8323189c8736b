//! Access rights to a segment: the mode bits of XPMEM_PERMIT_MODE, checked as the kernel checks
//! those of System V IPC objects.
//!
//! The check prevents mistakes, not attacks: tasks of a space can write each other's memory.

use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgid, getuid};

/// The capability that passes all mode checks (`CAP_IPC_OWNER`).
const CAPABILITY_IPC_OWNER: u32 = 15;

/// User and group that a segment belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Creator {
    /// Real user ID when the task first called the library.
    pub uid: u32,
    /// Real group ID at that time.
    pub gid: u32,
}

impl Creator {
    /// Returns the user and group of the calling process.
    pub fn current() -> Self {
        Self { uid: getuid().as_raw(), gid: getgid().as_raw() }
    }
}

/// Checks that the caller may read and, if `write`, also write a segment of `creator` with these
/// mode bits. Error: EACCES.
pub fn check(mode: u32, creator: Creator, write: bool) -> Result<(), Errno> {
    let wanted = if write { 0o6 } else { 0o4 };
    let granted = granted(mode, creator, geteuid().as_raw(), in_group);
    if wanted & !granted == 0 || has_ipc_owner() { Ok(()) } else { Err(Errno::ACCESS) }
}

/// Returns the three bits of `mode` that apply to this user.
fn granted(mode: u32, creator: Creator, euid: u32, in_group: impl Fn(u32) -> bool) -> u32 {
    let shift = match creator {
        Creator { uid, .. } if uid == euid => 6,
        Creator { gid, .. } if in_group(gid) => 3,
        _ => 0,
    };
    mode >> shift & 0o7
}

fn in_group(gid: u32) -> bool {
    if getegid().as_raw() == gid {
        return true;
    }
    // SAFETY: with size 0, getgroups writes nothing.
    let count = unsafe { libc::getgroups(0, std::ptr::null_mut()) };
    let mut groups = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: `groups` has room for `count` groups.
    let count = unsafe { libc::getgroups(count.max(0), groups.as_mut_ptr()) };
    groups.truncate(usize::try_from(count).unwrap_or(0));
    groups.contains(&gid)
}

fn has_ipc_owner() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.bits() >> CAPABILITY_IPC_OWNER & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_class_that_fits_counts() {
        let creator = Creator { uid: 10, gid: 20 };
        let granted = |mode, euid, group| granted(mode, creator, euid, |gid| gid == group);
        assert_eq!(granted(0o640, 10, 99), 0o6);
        assert_eq!(granted(0o640, 11, 20), 0o4);
        assert_eq!(granted(0o640, 11, 99), 0);
        // The owner's bits count for the owner, even where others may do more.
        assert_eq!(granted(0o066, 10, 20), 0);
        assert_eq!(granted(0o606, 11, 20), 0);
    }
}
