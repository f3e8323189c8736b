//! The table of system calls: where each is made.

use crate::raw;

/// Calls that libc does not name yet.
const URETPROBE: i64 = 335;
const UPROBE: i64 = 336;
const MAP_SHADOW_STACK: i64 = 453;
const FUTEX_WAKE: i64 = 454;
const FUTEX_WAIT: i64 = 455;
const FUTEX_REQUEUE: i64 = 456;
/// The last known call (Linux 6.17). The treatment of later ones is unknown.
const LAST: i64 = 469;

/// Calls that need a signal frame, or end the thread or its program.
pub const NEED_FRAME: [i64; 11] = [
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// The place where a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// By the thread that makes it, on its node.
    Local,
    /// At the origin.
    Origin,
    /// At the origin, where it changes the memory map of all nodes.
    Memory,
    /// By Nagaya.
    Ours,
    /// Nowhere, with this error: it cannot work over several machines.
    Refused(raw::Errno),
}

/// Returns the place of a call. docs/span.md documents it, call by call.
pub fn place(number: u64) -> Where {
    if let Some(errno) = refusal(number) {
        return Where::Refused(errno);
    }
    match number as i64 {
        libc::SYS_sched_yield
        | libc::SYS_getcpu
        | libc::SYS_clock_gettime
        | libc::SYS_clock_getres
        | libc::SYS_gettimeofday
        | libc::SYS_time
        | libc::SYS_nanosleep
        | libc::SYS_clock_nanosleep
        | libc::SYS_getrandom
        | libc::SYS_membarrier => Where::Local,
        libc::SYS_brk
        | libc::SYS_mmap
        | libc::SYS_munmap
        | libc::SYS_mprotect
        | libc::SYS_mremap
        | libc::SYS_madvise
        | libc::SYS_msync
        | libc::SYS_mlock
        | libc::SYS_mlock2
        | libc::SYS_munlock
        | libc::SYS_mlockall
        | libc::SYS_munlockall
        | libc::SYS_shmat
        | libc::SYS_shmdt => Where::Memory,
        libc::SYS_rt_sigreturn
        | libc::SYS_rt_sigprocmask
        | libc::SYS_rt_sigaction
        | libc::SYS_sigaltstack
        | libc::SYS_arch_prctl
        | libc::SYS_prctl
        | libc::SYS_rseq
        | libc::SYS_set_robust_list
        | libc::SYS_get_robust_list
        | libc::SYS_set_tid_address
        | libc::SYS_gettid
        | libc::SYS_futex
        | libc::SYS_clone
        | libc::SYS_clone3
        | libc::SYS_fork
        | libc::SYS_vfork
        | libc::SYS_exit
        | libc::SYS_exit_group
        | libc::SYS_close
        | libc::SYS_close_range
        | libc::SYS_dup2
        | libc::SYS_dup3
        | libc::SYS_readlink
        | libc::SYS_readlinkat
        | libc::SYS_open
        | libc::SYS_openat
        | libc::SYS_getrlimit
        | libc::SYS_setrlimit
        | libc::SYS_prlimit64
        | libc::SYS_sched_getaffinity
        | libc::SYS_sched_setaffinity => Where::Ours,
        0..=LAST => Where::Origin,
        _ => Where::Refused(libc::ENOSYS),
    }
}

/// The errno of a system call that no program may make here.
fn refusal(number: u64) -> Option<i32> {
    match number as i64 {
        libc::SYS_futex_waitv
        | FUTEX_WAKE
        | FUTEX_WAIT
        | FUTEX_REQUEUE
        | libc::SYS_mseal
        | MAP_SHADOW_STACK
        | URETPROBE
        | UPROBE
        | libc::SYS_process_madvise
        | libc::SYS_modify_ldt
        | libc::SYS_iopl
        | libc::SYS_ioperm
        | libc::SYS_io_uring_setup
        | libc::SYS_io_uring_enter
        | libc::SYS_io_uring_register
        | libc::SYS_userfaultfd
        | libc::SYS_remap_file_pages
        | libc::SYS_pkey_mprotect
        | libc::SYS_pkey_alloc
        | libc::SYS_pkey_free
        | libc::SYS_io_setup => Some(libc::ENOSYS),
        libc::SYS_ptrace | libc::SYS_seccomp => Some(libc::EPERM),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the table of docs/span.md.
    fn table() -> String {
        let rows = [
            ("where the thread runs", Where::Local),
            ("at the origin, on all nodes' memory maps", Where::Memory),
            ("by Nagaya", Where::Ours),
            ("refused with ENOSYS; programs have fallbacks", Where::Refused(libc::ENOSYS)),
            ("refused with EPERM", Where::Refused(libc::EPERM)),
        ];
        let mut all: Vec<_> =
            (0..=LAST as usize).filter_map(syscalls::Sysno::new).map(|it| (it, it.id())).collect();
        let last = all[all.len() - 1];
        assert_eq!(last.1 as i64, LAST);
        let mut text = "| by | calls |\n|---|---|\n".to_owned();
        for (name, of) in rows {
            let here = all.extract_if(.., |(_, number)| place(*number as u64) == of);
            let here: Vec<_> = here.map(|(call, _)| call.name()).collect();
            text += &format!("| {name} | {} |\n", here.join(", "));
        }
        let others = all.iter().find(|(_, number)| place(*number as u64) != Where::Origin);
        assert_eq!(others, None, "in no row");
        let origin = "at the origin, by the thread's own identity there";
        text += &format!("| {origin} | all others, up to {} ({}) |\n", last.0.name(), last.1);
        text
    }

    #[test]
    fn the_table_in_the_documentation_is_that_of_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/span.md");
        let text = std::fs::read_to_string(path).expect("docs/span.md");
        let (before, rest) = text.split_once("| by | calls |\n").expect("a table begins");
        let (old, after) = rest.split_once("\n\n").expect("and ends");
        if std::env::var_os("NAGAYA_WRITE").is_some() {
            std::fs::write(path, format!("{before}{}\n{after}", table())).expect(path);
        } else {
            let old = format!("| by | calls |\n{old}\n");
            assert_eq!(old, table(), "run this test with NAGAYA_WRITE=1 to write it anew");
        }
    }

    #[test]
    fn unknown_calls_are_refused() {
        let refused = Where::Refused(libc::ENOSYS);
        // After the last, between those of old and of new, of x32, and violation.
        for number in [LAST as u64 + 1, 1 << 30, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(place(number), refused);
        }
    }
}
