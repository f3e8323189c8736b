//! Errors of this crate: one line with the failure, its place, and the remedy.

use std::fmt;

use rustix::io::Errno;

/// Why it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PagerError {
    /// userfaultfd(2) is not allowed to this user.
    Forbidden,
    /// The kernel has no userfaultfd, or one that lacks what shared memory needs.
    Old,
    /// The page size, or the place, is no multiple of the system's page size.
    Alignment {
        /// The requested size.
        page_bytes: usize,
    },
    /// The addresses are taken.
    Taken {
        /// The start address.
        start: usize,
        /// The length in bytes.
        bytes: usize,
    },
    /// No memory for a page.
    Memory,
    /// No mapping more.
    Mappings,
    /// More pages than a region has addresses.
    Full,
    /// A page that is there cannot be read.
    Unread {
        /// Its address.
        at: usize,
        /// The system's word for why.
        why: Errno,
    },
    /// Anything else.
    System {
        /// The attempted operation.
        doing: &'static str,
        /// The system's word for why.
        why: Errno,
    },
}

impl fmt::Display for PagerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden => f.write_str(
                "this user may not use userfaultfd, which shared memory needs: let root run \
                 `sysctl vm.unprivileged_userfaultfd=1`, or `chmod a+rw /dev/userfaultfd`, or give \
                 the program CAP_SYS_PTRACE; in a container, allow the system call userfaultfd in \
                 its seccomp profile, too",
            ),
            Self::Old => f.write_str(
                "this kernel's userfaultfd cannot protect shared memory; shared memory needs Linux \
                 5.19 or newer with CONFIG_USERFAULTFD and CONFIG_PTE_MARKER_UFFD_WP",
            ),
            Self::Alignment { page_bytes } => write!(
                f,
                "pages of {page_bytes} bytes: choose them, and where they begin, as multiples of {}",
                rustix::param::page_size()
            ),
            Self::Taken { start, bytes } => write!(
                f,
                "the addresses {start:#x} to {:#x} are in use in this process; choose others for \
                 the shared memory",
                start + bytes
            ),
            Self::Memory => f.write_str(
                "no memory for a page of the shared memory; use less, or more nodes, or raise the \
                 memory limit of this process (ulimit -v) or of its cgroup",
            ),
            Self::Mappings => f.write_str(
                "this process has too many mappings, or too many addresses for its limit; raise \
                 vm.max_map_count (sysctl) or `ulimit -v`",
            ),
            Self::Full => f.write_str("the shared memory is full: no addresses are left for more"),
            Self::Unread { at, why } => write!(
                f,
                "cannot read the page of the shared memory at {at:#x}: {why}; look for broken \
                 memory or swap in this machine's kernel log"
            ),
            Self::System { doing, why } => write!(f, "cannot {doing}: {why}"),
        }
    }
}

impl std::error::Error for PagerError {}
