//! What becomes of a system call: it is made where the thread runs, or at the origin by the
//! thread's own identity there, or answered by us.
//!
//! All of this runs on the program's threads: no libc, no thread area, no memory of our own but
//! the desk's.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::addresses::{PAGE, Wish};
use crate::desk::{Call, Request, Seat};
use crate::edges::{self, RESTART};
use crate::frame::Laid;
use crate::here::Here;
use crate::signals::OURS;
use crate::{
    actions, alternate_stack, clocks, descriptors, direct, exe, inherit, limits, moves, processes,
    processors, raw, robust, segments, shadow, shared, sharing, signals, threads,
};

/// `arch_prctl`'s codes that are answered where the thread runs: `ARCH_SET_FS`, `ARCH_GET_FS`,
/// `ARCH_GET_CPUID`, `ARCH_GET_XCOMP_SUPP`, `ARCH_GET_XCOMP_PERM`. GS is ours, and shadow stacks
/// know nothing of our ways back.
const OF_THREADS: [u64; 5] = [0x1002, 0x1003, 0x1011, 0x1021, 0x1022];
/// `ARCH_REQ_XCOMP_PERM`: larger registers (AMX), of a whole process.
const LARGER_REGISTERS: u64 = 0x1023;

/// Calls that libc does not name yet.
const URETPROBE: i64 = 335;
const UPROBE: i64 = 336;
const MAP_SHADOW_STACK: i64 = 453;
const FUTEX_WAKE: i64 = 454;
const FUTEX_WAIT: i64 = 455;
const FUTEX_REQUEUE: i64 = 456;
/// The last that we know of (Linux 6.17). Where later ones belong nobody can say.
const LAST: i64 = 469;

/// Where a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// By the thread that makes it, on its node.
    Local,
    /// At the origin.
    Origin,
    /// At the origin, where it changes the memory map of all nodes.
    Memory,
    /// By us.
    Ours,
    /// Nowhere, with this error: it cannot work over several machines.
    Refused(raw::Errno),
}

/// Where this one is. Documented in docs/span.md, call by call.
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

/// Makes a call of a thread that runs here, and was stopped at it with these registers.
///
/// # Safety
/// On the thread's stack for handlers; the frame is the kernel's; arguments are as the program gave
/// them.
pub unsafe fn answer(here: &Here, seat: &Seat, frame: *mut libc::ucontext_t, call: Call) -> i64 {
    let at_origin = here.node == 0;
    if !at_origin && sharing::needs_origin(&call) {
        seat.go_to(0);
        return RESTART;
    }
    // SAFETY: as the caller says, for all of these.
    unsafe {
        match place(call.number) {
            _ if call.number == moves::CALL => moves::call(here, seat, call.arguments),
            Where::Local => local(here, seat, call),
            Where::Refused(errno) => -i64::from(errno),
            Where::Ours => ours(here, seat, frame, call),
            Where::Origin | Where::Memory if !at_origin => here.desk.ask(seat, Request::Call(call)),
            Where::Origin => at_origin_itself(here, call),
            Where::Memory => memory(here, seat, call),
        }
    }
}

/// Makes a call at the origin, for a thread that runs elsewhere.
///
/// # Safety
/// By its shadow; arguments are as the program gave them.
pub unsafe fn for_another(here: &Here, seat: &Seat, call: Call) -> i64 {
    // SAFETY: as the caller says, for all of these.
    unsafe {
        match (place(call.number), call.number as i64) {
            (Where::Memory, _) => memory(here, seat, call),
            (_, libc::SYS_clone) => threads::clone(here, seat, call),
            (_, libc::SYS_rt_sigaction) => actions::set(call.arguments),
            (Where::Ours, _) => files(here, seat, call),
            _ => at_origin_itself(here, call),
        }
    }
}

/// The kernel's call, but for the name of the program's file.
///
/// # Safety
/// At the origin; arguments are as the program gave them.
unsafe fn at_origin_itself(here: &Here, call: Call) -> i64 {
    let executes = [libc::SYS_execve, libc::SYS_execveat].contains(&(call.number as i64));
    let limits_memory = executes && limits::are_of_kernel();
    // SAFETY: by this function's contract.
    let result = unsafe { direct::call(here, exe::redirect(here, call)) };
    if limits_memory {
        limits::are_ours_again();
    }
    result
}

/// # Safety
/// As for [`answer`].
unsafe fn local(here: &Here, seat: &Seat, call: Call) -> i64 {
    // SAFETY: as the caller says, for all of these.
    unsafe {
        match call.number as i64 {
            libc::SYS_getcpu => processors::get(call),
            libc::SYS_membarrier => barrier(call),
            libc::SYS_sched_yield | libc::SYS_getrandom => edges::call(call.number, call.arguments),
            _ => clocks::call(here, seat, call),
        }
    }
}

/// membarrier: which a process has to ask for before; a program has done so on some node.
///
/// # Safety
/// As for [`answer`].
unsafe fn barrier(call: Call) -> i64 {
    // SAFETY: as the caller says.
    unsafe {
        let result = raw::call(call.number, call.arguments);
        if result != -i64::from(libc::EPERM) {
            return result;
        }
        let [command, ..] = call.arguments;
        // So the commands to ask for it are numbered.
        raw::call(call.number, [command << 1, 0, 0, 0, 0, 0]);
        raw::call(call.number, call.arguments)
    }
}

/// # Safety
/// As for [`answer`].
unsafe fn ours(here: &Here, seat: &Seat, frame: *mut libc::ucontext_t, call: Call) -> i64 {
    let a = call.arguments;
    // SAFETY: as the caller says, for all of these.
    unsafe {
        match call.number as i64 {
            libc::SYS_rt_sigreturn => signals::return_from_handler(here, seat, frame),
            libc::SYS_rt_sigprocmask => set_mask(here, seat, frame, a),
            libc::SYS_rt_sigaction if here.node == 0 => actions::set(a),
            libc::SYS_rt_sigaction => here.desk.ask(seat, Request::Call(call)),
            libc::SYS_sigaltstack => alternate_stack::call(seat, frame, a[0], a[1]),
            libc::SYS_arch_prctl => match a[0] {
                LARGER_REGISTERS if here.nodes == 1 => raw::call(call.number, a),
                // Other nodes' threads would not have them.
                LARGER_REGISTERS => -i64::from(libc::EOPNOTSUPP),
                code if OF_THREADS.contains(&code) => raw::call(call.number, a),
                _ => -i64::from(libc::EPERM),
            },
            libc::SYS_prctl => match a[0] as i32 {
                libc::PR_SET_SECCOMP | libc::PR_SET_MM | libc::PR_SET_MDWE => {
                    -i64::from(libc::EPERM)
                }
                threads::DISPATCH => -i64::from(libc::EPERM),
                _ if here.node != 0 => here.desk.ask(seat, Request::Call(call)),
                _ => raw::call(call.number, a),
            },
            libc::SYS_rseq => -i64::from(libc::ENOSYS),
            libc::SYS_set_robust_list => robust::set(seat, a),
            libc::SYS_get_robust_list => robust::get(seat, a),
            libc::SYS_set_tid_address => {
                seat.clear_tid.store(a[0], Ordering::Relaxed);
                seat.tid.load(Ordering::Relaxed).into()
            }
            libc::SYS_gettid => seat.tid.load(Ordering::Relaxed).into(),
            libc::SYS_futex => futex(here, seat, a),
            libc::SYS_clone | libc::SYS_clone3 => threads::begin(here, seat, frame, call),
            libc::SYS_fork | libc::SYS_vfork => {
                let shares = libc::CLONE_VM | libc::CLONE_VFORK;
                let flags = if call.number == libc::SYS_fork as u64 { 0 } else { shares };
                let (flags, area) = ((flags | libc::SIGCHLD) as u64, threads::thread_area());
                processes::begin(here, seat, frame, flags, [0; 2], 0, area)
            }
            libc::SYS_exit => threads::end(seat, a[0] as i32),
            libc::SYS_exit_group => here.desk.ask(seat, Request::End(a[0] as i32)),
            _ if here.node != 0 => here.desk.ask(seat, Request::Call(call)),
            _ => files(here, seat, call),
        }
    }
}

/// Calls on descriptors and names that must not touch ours, or are of all nodes.
///
/// # Safety
/// At the origin.
unsafe fn files(here: &Here, seat: &Seat, call: Call) -> i64 {
    let a = call.arguments;
    let is_bell = |descriptor: u64| here.desk.is_bell(descriptor as i32);
    // SAFETY: as the caller says, for all of these.
    unsafe {
        match call.number as i64 {
            libc::SYS_close if is_bell(a[0]) => -i64::from(libc::EBADF),
            libc::SYS_dup2 | libc::SYS_dup3 if is_bell(a[1]) => -i64::from(libc::EBADF),
            libc::SYS_close => descriptors::close(a[0]..=a[0], || raw::call(call.number, a)),
            libc::SYS_dup2 | libc::SYS_dup3 => {
                descriptors::close(a[1]..=a[1], || raw::call(call.number, a))
            }
            libc::SYS_close_range => {
                let (first, last) = (a[0] as u32, a[1] as u32);
                if a[2] & libc::CLOSE_RANGE_UNSHARE as u64 != 0 {
                    descriptors::are_of_threads();
                }
                let bell = here.desk.bell() as u32;
                let range = |from: u32, to: u32| {
                    let (from, to) = (u64::from(from), u64::from(to));
                    descriptors::close(from..=to, || {
                        raw::call(call.number, [from, to, a[2], 0, 0, 0])
                    })
                };
                if !(first..=last).contains(&bell) {
                    return range(first, last);
                }
                let range = |from: u32, to: u32| if from <= to { range(from, to) } else { 0 };
                let below = if bell == 0 { 0 } else { range(first, bell - 1) };
                below.min(range(bell.saturating_add(1), last))
            }
            libc::SYS_getrlimit | libc::SYS_setrlimit | libc::SYS_prlimit64 => {
                let result = limits::call(call.number, a);
                open_stack(here, seat);
                result
            }
            libc::SYS_sched_getaffinity | libc::SYS_sched_setaffinity => {
                processors::affinity(here, seat, call)
            }
            libc::SYS_open => {
                processors::open(here, a[0], a[1]).unwrap_or_else(|| at_origin_itself(here, call))
            }
            libc::SYS_openat => {
                processors::open(here, a[1], a[2]).unwrap_or_else(|| at_origin_itself(here, call))
            }
            libc::SYS_readlink | libc::SYS_readlinkat => {
                exe::read_link(here, &call).unwrap_or_else(|| edges::call(call.number, a))
            }
            _ => raw::call(call.number, a),
        }
    }
}

/// Opens what the main thread's stack may have more after its limit has been raised.
fn open_stack(here: &Here, seat: &Seat) {
    if let Some((closed, protection)) = limits::closed_stack() {
        let (start, bytes) = (closed.start, closed.end - closed.start);
        if here.desk.ask(seat, Request::Protect { start, bytes, protection }) == 0 {
            limits::stack_is_open(start);
        }
    }
}

/// The mask that the thread will have when it goes on.
///
/// # Safety
/// A signal's frame.
pub unsafe fn mask_of(frame: *const libc::ucontext_t) -> u64 {
    // SAFETY: as the caller says; the kernel's masks are 8 bytes.
    unsafe { (&raw const (*frame).uc_sigmask).cast::<u64>().read() & !OURS }
}

/// The shadow has the mask, too: 0, or [`RESTART`] if a signal comes first.
pub fn tell_mask(here: &Here, seat: &Seat, before: u64, after: u64) -> i64 {
    if here.node == 0 || before == after {
        return 0;
    }
    let call = Call { number: shadow::MASK, arguments: [after, 0, 0, 0, 0, 0] };
    let result = here.desk.ask(seat, Request::Call(call));
    if seat.has(Seat::SIGNAL) { RESTART } else { result }
}

/// The mask stands in the frame.
///
/// # Safety
/// As for [`answer`].
unsafe fn set_mask(here: &Here, seat: &Seat, frame: *mut libc::ucontext_t, a: [u64; 6]) -> i64 {
    if a[3] != 8 {
        return -i64::from(libc::EINVAL);
    }
    // SAFETY: pointers are the program's.
    unsafe {
        let (before, new) = (mask_of(frame), a[1] as *const u64);
        let mut after = before;
        if !new.is_null() {
            let new = new.read_unaligned() & !OURS;
            after = match a[0] as i32 {
                libc::SIG_BLOCK => before | new,
                libc::SIG_UNBLOCK => before & !new,
                libc::SIG_SETMASK => new,
                _ => return -i64::from(libc::EINVAL),
            };
        }
        let told = tell_mask(here, seat, before, after);
        if told != 0 {
            return told;
        }
        (&raw mut (*frame).uc_sigmask).cast::<u64>().write(after);
        if a[2] != 0 {
            (a[2] as *mut u64).write_unaligned(before);
        }
    }
    0
}

/// As futex(2): words of all nodes' threads.
///
/// # Safety
/// As for [`answer`].
pub unsafe fn futex(here: &Here, seat: &Seat, a: [u64; 6]) -> i64 {
    // Where other processes can wait, too, the kernel knows who does.
    if here.nodes == 1 || shared::contains(a[0]) {
        // SAFETY: as the caller says.
        return unsafe { edges::call(libc::SYS_futex as u64, a) };
    }
    let operation = a[1] as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    let bits = match operation {
        libc::FUTEX_WAIT_BITSET | libc::FUTEX_WAKE_BITSET => a[5] as u32,
        _ => u32::MAX,
    };
    let (word, value) = (a[0], a[2] as u32);
    if bits == 0 || !word.is_multiple_of(4) {
        return -i64::from(libc::EINVAL);
    }
    // SAFETY: a word of the program's.
    let now = || unsafe { (*(word as *const AtomicU32)).load(Ordering::SeqCst) };
    let ask = |request| here.desk.ask(seat, request);
    match operation {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {
            if now() != value {
                return -i64::from(libc::EAGAIN);
            }
            let is_real = a[1] as i32 & libc::FUTEX_CLOCK_REALTIME != 0;
            let is_absolute = operation == libc::FUTEX_WAIT_BITSET;
            // SAFETY: a time of the program's, or none.
            let until = unsafe { Until::of(a[3], is_absolute, is_real) };
            seat.woken.store(0, Ordering::SeqCst);
            ask(Request::Enqueue { word, bits });
            if now() != value {
                return if ask(Request::Cancel) == 1 { -i64::from(libc::EAGAIN) } else { 0 };
            }
            wait(here, seat, &until)
        }
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => {
            ask(Request::Wake { word, count: value, bits })
        }
        libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE => {
            if operation == libc::FUTEX_CMP_REQUEUE && now() != a[5] as u32 {
                return -i64::from(libc::EAGAIN);
            }
            ask(Request::Requeue { word, count: value, to: a[4], moved: a[3] as u32 })
        }
        libc::FUTEX_WAKE_OP => {
            // SAFETY: a word of the program's.
            let Some(wakes) = (unsafe { change(a[4], a[5] as u32) }) else {
                return -i64::from(libc::ENOSYS);
            };
            let woken = ask(Request::Wake { word, count: value, bits });
            let others = Request::Wake { word: a[4], count: a[3] as u32, bits };
            woken + if wakes { ask(others) } else { 0 }
        }
        // Priorities are a kernel's.
        _ => -i64::from(libc::ENOSYS),
    }
}

/// Waits in line until it is woken, or it is time, or a signal has come.
fn wait(here: &Here, seat: &Seat, until: &Until) -> i64 {
    let mut why = 0;
    while seat.woken.load(Ordering::SeqCst) == 0 && why == 0 {
        if let Some(signal) = seat.signal() {
            let restarts = until.time.is_none() && signal.action.has(libc::SA_RESTART);
            why = if restarts { RESTART } else { -i64::from(libc::EINTR) };
            break;
        }
        let left = until.left();
        if left.is_some_and(|left| left.tv_sec < 0) {
            why = -i64::from(libc::ETIMEDOUT);
            break;
        }
        // SAFETY: a thread that makes a call has sat down.
        unsafe { edges::sleep(&seat.woken, 0, left.as_ref()) };
    }
    match why {
        0 => 0,
        _ if here.desk.ask(seat, Request::Cancel) == 1 => why,
        _ => 0,
    }
}

/// When a wait ends at the latest.
struct Until {
    clock: libc::clockid_t,
    time: Option<libc::timespec>,
}

impl Until {
    /// # Safety
    /// The address of a time, or 0.
    unsafe fn of(time: u64, is_absolute: bool, is_real: bool) -> Self {
        let clock = if is_real { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC };
        if time == 0 {
            return Self { clock, time: None };
        }
        // SAFETY: as the caller says.
        let time = unsafe { (time as *const libc::timespec).read_unaligned() };
        let time = if is_absolute { time } else { clocks::sum(time, clocks::now(clock)) };
        Self { clock, time: Some(time) }
    }

    /// What is left; negative when it is over.
    fn left(&self) -> Option<libc::timespec> {
        self.time.map(|time| clocks::difference(time, clocks::now(self.clock)))
    }
}

/// What FUTEX_WAKE_OP does to a word; whether its old value is as it says.
///
/// # Safety
/// A word of the program's.
unsafe fn change(word: u64, code: u32) -> Option<bool> {
    // SAFETY: as the caller says.
    let word = unsafe { &*(word as *const AtomicU32) };
    let (operation, comparison) = (code >> 28, code >> 24 & 15);
    let signed = |bits: u32| ((bits << 20) as i32 >> 20) as u32;
    let (mut value, compared) = (signed(code >> 12 & 0xfff), signed(code & 0xfff) as i32);
    if operation & 8 != 0 {
        value = 1u32.wrapping_shl(value);
    }
    let change = |old: u32| match operation & 7 {
        0 => Some(value),
        1 => Some(old.wrapping_add(value)),
        2 => Some(old | value),
        3 => Some(old & !value),
        4 => Some(old ^ value),
        _ => None,
    };
    let old = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change).ok()? as i32;
    match comparison {
        0 => Some(old == compared),
        1 => Some(old != compared),
        2 => Some(old < compared),
        3 => Some(old <= compared),
        4 => Some(old > compared),
        5 => Some(old >= compared),
        _ => None,
    }
}

/// madvise's that may as well do nothing. What a program has to rely on (guards, zeros instead of
/// what is there) is none of it.
const ADVICE: [i32; 16] = [
    libc::MADV_NORMAL,
    libc::MADV_RANDOM,
    libc::MADV_SEQUENTIAL,
    libc::MADV_WILLNEED,
    libc::MADV_FREE,
    libc::MADV_MERGEABLE,
    libc::MADV_UNMERGEABLE,
    libc::MADV_HUGEPAGE,
    libc::MADV_NOHUGEPAGE,
    libc::MADV_DONTDUMP,
    libc::MADV_DODUMP,
    libc::MADV_COLD,
    libc::MADV_PAGEOUT,
    libc::MADV_POPULATE_READ,
    libc::MADV_POPULATE_WRITE,
    libc::MADV_COLLAPSE,
];

/// Memory of all nodes.
///
/// # Safety
/// At the origin; arguments are as the program gave them.
unsafe fn memory(here: &Here, seat: &Seat, call: Call) -> i64 {
    let a = call.arguments;
    let ask = |request| here.desk.ask(seat, request);
    let refused = |errno: i32| -i64::from(errno);
    match call.number as i64 {
        libc::SYS_brk => {
            let before = ask(Request::HeapEnd);
            match ask(Request::Break(a[0])) {
                0 => before,
                _ => a[0] as i64,
            }
        }
        // SAFETY: as the caller says.
        libc::SYS_mmap => unsafe { map(here, seat, a) },
        libc::SYS_munmap => ask(Request::Unmap { start: a[0], bytes: a[1] }),
        // SAFETY: as the caller says.
        libc::SYS_mprotect => match unsafe { sharing::protect(a) } {
            0 => ask(Request::Protect { start: a[0], bytes: a[1], protection: a[2] as u32 }),
            error => error,
        },
        // SAFETY: as the caller says.
        libc::SYS_mremap => unsafe { remap(here, seat, a) },
        libc::SYS_madvise => match a[2] as i32 {
            _ if !a[0].is_multiple_of(PAGE) => refused(libc::EINVAL),
            // Not to have zeros there would be seen.
            libc::MADV_DONTNEED | libc::MADV_DONTNEED_LOCKED => {
                let mut done = 0;
                while done < a[1] {
                    match ask(Request::Discard { start: a[0] + done, bytes: a[1] - done }) {
                        error if error < 0 => return error,
                        more => done += more as u64,
                    }
                }
                0
            }
            // SAFETY: as the caller says.
            libc::MADV_REMOVE if shared::contains(a[0]) => unsafe { raw::call(call.number, a) },
            advice if ADVICE.contains(&advice) => 0,
            // SAFETY: as the caller says.
            advice if inherit::ADVICES.contains(&advice) => unsafe {
                sharing::inherit(here, seat, a)
            },
            _ => refused(libc::EINVAL),
        },
        // SAFETY: as the caller says.
        libc::SYS_msync if shared::contains(a[0]) => unsafe { raw::call(call.number, a) },
        // SAFETY: as the caller says.
        libc::SYS_shmat => unsafe { segments::attach(here, seat, a) },
        // SAFETY: as the caller says.
        libc::SYS_shmdt => unsafe { segments::detach(here, seat, a[0]) },
        // What is on other nodes' disks nobody knows.
        libc::SYS_mlockall => refused(libc::EPERM),
        _ => 0,
    }
}

/// Memory that can be read and written becomes more or less, or goes elsewhere.
///
/// # Safety
/// As for [`memory`].
unsafe fn remap(here: &Here, seat: &Seat, a: [u64; 6]) -> i64 {
    let ask = |request| here.desk.ask(seat, request);
    let up = |bytes: u64| bytes.checked_next_multiple_of(PAGE).unwrap_or(0);
    let (old, old_bytes, bytes, flags) = (a[0], up(a[1]), up(a[2]), a[3] as i32);
    let is_fixed = flags & libc::MREMAP_FIXED != 0;
    let may_move = flags & libc::MREMAP_MAYMOVE != 0;
    let known = libc::MREMAP_FIXED | libc::MREMAP_MAYMOVE;
    let meets = is_fixed && a[4] < old + old_bytes && old < a[4] + bytes;
    if flags & !known == 0
        && (!is_fixed || may_move)
        && bytes > 0
        && !meets
        && shared::contains(old)
    {
        // SAFETY: as the caller says.
        return unsafe { sharing::remap(here, seat, [old, old_bytes, bytes, a[3], a[4], 0]) };
    }
    if flags & !known != 0 || is_fixed && !may_move || old_bytes == 0 || bytes == 0 || meets {
        return -i64::from(libc::EINVAL);
    }
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u32;
    let (is_file, rest) = (false, old_bytes.saturating_sub(bytes));
    let moves = is_fixed || bytes > old_bytes;
    let is_of_file = || ask(Request::Look(old)) & Request::OF_FILE != 0;
    // More of the file would have to be there, and its end where it is.
    if moves && (shared::has_beyond(&(old..old + old_bytes)) || bytes > old_bytes && is_of_file()) {
        return -i64::from(libc::ENOMEM);
    }
    if !is_fixed {
        if rest > 0 {
            ask(Request::Unmap { start: old + bytes, bytes: rest });
        }
        if bytes <= old_bytes {
            return old as i64;
        }
        let (start, bytes, replaces) = (old + old_bytes, bytes - old_bytes, false);
        if ask(Request::MapAt { start, bytes, protection, replaces, is_file }) >= 0 {
            return old as i64;
        }
    }
    let new = match (is_fixed, may_move) {
        (true, _) => {
            let (start, replaces) = (a[4], true);
            ask(Request::MapAt { start, bytes, protection, replaces, is_file })
        }
        (_, true) => ask(Request::Map { bytes, protection, is_file, wish: Wish::default() }),
        _ => -i64::from(libc::ENOMEM),
    };
    if new >= 0 {
        // SAFETY: new memory, and the program's old.
        unsafe { copy(old, new as u64, old_bytes.min(bytes)) };
        ask(Request::Unmap { start: old, bytes: old_bytes });
    }
    new
}

/// # Safety
/// As for [`memory`].
unsafe fn map(here: &Here, seat: &Seat, a: [u64; 6]) -> i64 {
    let ask = |request| here.desk.ask(seat, request);
    let refused = |errno: i32| -i64::from(errno);
    let (bytes, protection, flags) = (a[1], a[2] as u32, a[3] as i32);
    let is_anonymous = flags & libc::MAP_ANONYMOUS != 0;
    let is_shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
    if bytes == 0 || bytes > i64::MAX as u64 / 2 {
        return refused(if bytes == 0 { libc::EINVAL } else { libc::ENOMEM });
    }
    // Others may write it, or read what we write.
    if is_shared {
        // SAFETY: as the caller says.
        return unsafe { sharing::map(here, seat, a) };
    }
    if !is_anonymous {
        // SAFETY: as the caller says.
        let error = unsafe { sharing::check(a) };
        if error < 0 {
            return error;
        }
    }
    let filling = (libc::PROT_READ | libc::PROT_WRITE) as u32;
    let at_first = if is_anonymous { protection } else { filling };
    let (replaces, is_file) = (flags & libc::MAP_FIXED_NOREPLACE == 0, !is_anonymous);
    let wish = wish(a);
    let given = match flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) {
        0 => ask(Request::Map { bytes, protection: at_first, is_file, wish }),
        _ => {
            let (start, protection) = (a[0], at_first);
            ask(Request::MapAt { start, bytes, protection, replaces, is_file })
        }
    };
    if given < 0 {
        return given;
    }
    let start = given as u64;
    let mut filled = start;
    // SAFETY: memory that was just given, which can be written where anything is.
    unsafe {
        while !is_anonymous && filled < start + bytes {
            let left = start + bytes - filled;
            let from = a[5] + (filled - start);
            let read = raw::call(libc::SYS_pread64 as u64, [a[4], filled, left, from, 0, 0]);
            match read {
                0 => break,
                count if count > 0 => filled += count as u64,
                error if error == refused(libc::EINTR) => {}
                error => {
                    ask(Request::Unmap { start, bytes });
                    return if error == refused(libc::EISDIR) {
                        refused(libc::ENODEV)
                    } else {
                        error
                    };
                }
            }
        }
    }
    let end = filled.next_multiple_of(PAGE);
    if !is_anonymous && end < start + bytes {
        let bytes = start + bytes - end;
        let error = ask(Request::Lay { start: end, bytes, kind: Laid::Beyond });
        if error < 0 {
            ask(Request::Unmap { start, bytes });
            return error;
        }
    }
    if here.names {
        name(here, seat, start, bytes, a);
    }
    if !is_anonymous && protection != filling {
        ask(Request::Protect { start, bytes, protection });
    }
    if protection & libc::PROT_WRITE as u32 == 0 && filled > start && here.nodes > 1 {
        let (descriptor, offset, bytes) = (a[4] as i32, a[5], filled - start);
        ask(Request::Text { descriptor, start, offset, bytes });
    }
    start as i64
}

/// Where a mapping is wanted, of mmap's arguments.
pub fn wish(a: [u64; 6]) -> Wish {
    Wish { hint: a[0], low: a[3] as i32 & libc::MAP_32BIT != 0 }
}

/// Tells what is mapped there.
pub fn name(here: &Here, seat: &Seat, start: u64, bytes: u64, a: [u64; 6]) {
    let (flags, descriptor, offset) = (a[3] as i32, a[4] as i32, a[5]);
    let ask = |name| here.desk.ask(seat, Request::Name { start, bytes, offset, name });
    if flags & libc::MAP_ANONYMOUS == 0 {
        // Memory that is not the program's; of its seat this is not in use now.
        let room = size_of::<crate::context::Context>();
        let name = raw::name_of(descriptor, seat.context().cast(), room);
        if name > 0 {
            ask(name as u32);
        }
    } else if flags & libc::MAP_STACK != 0 {
        ask(0);
    }
}

/// # Safety
/// Memory that can be read, and written; not the same.
unsafe fn copy(from: u64, to: u64, bytes: u64) {
    // SAFETY: as the caller says.
    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/span.md: who makes which call.
    fn table() -> String {
        let rows = [
            ("where the thread runs", Where::Local),
            ("at the origin, on all nodes' memory maps", Where::Memory),
            ("by Nagaya", Where::Ours),
            ("nobody: ENOSYS, for which programs have other ways", Where::Refused(libc::ENOSYS)),
            ("nobody: EPERM", Where::Refused(libc::EPERM)),
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
    fn calls_that_nobody_knows_are_refused() {
        let refused = Where::Refused(libc::ENOSYS);
        // After the last, between those of old and of new, of x32, and nonsense.
        for number in [LAST as u64 + 1, 1 << 30, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(place(number), refused);
        }
    }

    #[test]
    fn a_word_is_changed_as_the_code_says() {
        let code = |operation: u32, comparison: u32, value: u32, compared: u32| {
            operation << 28 | comparison << 24 | (value & 0xfff) << 12 | compared & 0xfff
        };
        let word = AtomicU32::new(5);
        let at = word.as_ptr() as u64;
        // SAFETY: a word that lives.
        unsafe {
            assert_eq!(change(at, code(0, 0, 7, 5)), Some(true));
            assert_eq!(change(at, code(1, 4, u32::MAX, 7)), Some(false));
            assert_eq!(change(at, code(2 | 8, 1, 4, 6)), Some(false));
            assert_eq!(word.load(Ordering::Relaxed), 6 | 16);
            assert_eq!(change(at, code(5, 0, 0, 0)), None);
        }
    }
}
