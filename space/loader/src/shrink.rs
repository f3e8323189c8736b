//! Detects files that become shorter while the loader reads their mappings.
//!
//! The kernel forbids writes to a program's file while it executes the program, but not while the
//! loader maps it. An access beyond the new end of the file raises SIGBUS, which would end the
//! process that loads, such as a node server with all its tasks. The handler of this module puts
//! zeros in place of the lost pages, and the loader then refuses the program.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use nagaya_layout::PAGE_SIZE;

/// The addresses that are being read; empty if there are none.
static START: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);
/// A page in them was lost.
static IS_LOST: AtomicBool = AtomicBool::new(false);
/// Held by the thread that reads.
static READER: Mutex<()> = Mutex::new(());

/// Installs the handler of SIGBUS, and unblocks the signal in the calling thread: a blocked SIGBUS
/// ends the process. The process must have no handler of its own; where no loader reads, the signal
/// keeps its default action.
pub fn install() {
    let set = 1u64 << (libc::SIGBUS - 1);
    // SAFETY: a zeroed sigaction is valid. The handler takes three arguments, as SA_SIGINFO
    // requires, and makes only async-signal-safe calls. `set` is a u64, and the kernel's sigset has
    // eight bytes.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_UNBLOCK, &raw const set, 0, 8);
    }
}

/// Mapped parts of a file that are being read. Only one thread of the process reads at a time.
pub(crate) struct Reading {
    _reader: MutexGuard<'static, ()>,
}

impl Reading {
    /// Begins to read the mapping of a file at `start..end`.
    pub(crate) fn begin(start: u64, end: u64) -> Self {
        let reader = READER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        IS_LOST.store(false, Ordering::SeqCst);
        START.store(start, Ordering::SeqCst);
        END.store(end, Ordering::SeqCst);
        Self { _reader: reader }
    }

    /// Returns true if pages of the mapping were lost so far.
    pub(crate) fn is_lost(&self) -> bool {
        IS_LOST.load(Ordering::SeqCst)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        END.store(0, Ordering::SeqCst);
        START.store(0, Ordering::SeqCst);
    }
}

/// Maps zeros from the lost page to the end of the mapping that is read. Elsewhere the signal gets
/// its default action, and the instruction raises it again.
extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    let (start, end) = (START.load(Ordering::SeqCst), END.load(Ordering::SeqCst));
    // SAFETY: with SA_SIGINFO the kernel passes a filled-in siginfo.
    let address = unsafe { (*info).si_addr() } as u64;
    let page = address & !(PAGE_SIZE - 1);
    if (start..end).contains(&address) {
        let size = end.next_multiple_of(PAGE_SIZE) - page;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the range lies in the mapping that the thread of `Reading` made and reads. It has
        // no pages of the file any more.
        let at = unsafe { libc::mmap(page as *mut _, size as usize, protection, flags, -1, 0) };
        if at != libc::MAP_FAILED {
            return IS_LOST.store(true, Ordering::SeqCst);
        }
    }
    // SAFETY: the default action has no handler.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn a_file_that_shrinks_reads_as_zeros_and_is_noticed() {
        install();
        let file = tempfile();
        let bytes = vec![7u8; 4 * PAGE_SIZE as usize];
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe {
            let (size, protection) = (bytes.len(), libc::PROT_READ);
            libc::mmap(
                std::ptr::null_mut(),
                size,
                protection,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        let reading = Reading::begin(at as u64, at as u64 + bytes.len() as u64);
        // SAFETY: `at` has four pages.
        let byte =
            |page: usize| unsafe { at.cast::<u8>().add(page * PAGE_SIZE as usize).read_volatile() };
        assert_eq!((byte(0), byte(3), reading.is_lost()), (7, 7, false));
        file.set_len(2 * PAGE_SIZE).unwrap();
        assert_eq!((byte(1), reading.is_lost()), (7, false));
        assert_eq!((byte(2), byte(3), reading.is_lost()), (0, 0, true));
    }

    fn tempfile() -> std::fs::File {
        let path = std::env::temp_dir().join(format!("nagaya-shrink-{}", std::process::id()));
        let mut options = std::fs::File::options();
        let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file
    }
}
