//! System calls of the program's threads: made where the thread runs, made at the origin by the
//! thread's shadow, or emulated by Nagaya, as `call_table` decides.
//!
//! This code runs on the program's threads. It uses no libc, no thread area, and no memory except
//! the thread's slot.

use std::sync::atomic::Ordering;

use crate::call::Call;
use crate::call_table::{self, Where};
use crate::edges::{self, RESTART};
use crate::here::Here;
use crate::request::Request;
use crate::slot::Slot;
use crate::{
    affinity, alternate_stack, clocks, descriptors, direct, exe, futex, kernel_threads, limits,
    mask, memory_calls, migrate, processes, raw, robust, sharing, sigaction, signals, threads,
};

/// The codes of arch_prctl(2) that are made where the thread runs: `ARCH_SET_FS`, `ARCH_GET_FS`,
/// `ARCH_GET_CPUID`, `ARCH_GET_XCOMP_SUPP`, `ARCH_GET_XCOMP_PERM`. Nagaya uses GS, and its returns
/// to the program would violate a shadow stack.
const OF_THREADS: [u64; 5] = [0x1002, 0x1003, 0x1011, 0x1021, 0x1022];
/// `ARCH_REQ_XCOMP_PERM`: larger registers (AMX), of a whole process.
const LARGER_REGISTERS: u64 = 0x1023;

/// Makes the call at which a thread of this node was caught with these registers.
///
/// # Safety
/// Runs in the SIGSYS handler of the slot's thread. `frame` is that signal's, and `call` has the
/// arguments that the program gave.
pub unsafe fn answer(here: &Here, slot: &Slot, frame: *mut libc::ucontext_t, call: Call) -> i64 {
    let at_origin = here.node == 0;
    if !at_origin && sharing::needs_origin(&call) {
        slot.set_destination(0);
        return RESTART;
    }
    // SAFETY: this function has the same contract as the callees. Arguments are the program's: a
    // bad address is a fault in a call, which `signals::bad_address` turns into EFAULT.
    unsafe {
        match call_table::place(call.number) {
            _ if call.number == migrate::CALL => migrate::call(here, slot, call.arguments),
            Where::Local => local(here, slot, call),
            Where::Refused(errno) => -i64::from(errno),
            Where::Ours => ours(here, slot, frame, call),
            Where::Origin | Where::Memory if !at_origin => {
                here.table.request(slot, Request::Call(call))
            }
            Where::Origin => at_origin_itself(here, call),
            Where::Memory => memory_calls::call(here, slot, call),
        }
    }
}

/// Makes a call at the origin, for a thread of another node.
///
/// # Safety
/// Runs on the thread's shadow; `call` has the arguments that the program gave.
pub unsafe fn for_another(here: &Here, slot: &Slot, call: Call) -> i64 {
    // SAFETY: this function has the same contract as the callees. Arguments are the program's: a
    // bad address is a fault in a call, which `signals::bad_address` turns into EFAULT.
    unsafe {
        match (call_table::place(call.number), call.number as i64) {
            (Where::Memory, _) => memory_calls::call(here, slot, call),
            (_, libc::SYS_clone) => threads::clone(here, slot, call),
            (_, libc::SYS_rt_sigaction) => sigaction::set(call.arguments),
            (Where::Ours, _) => files(here, slot, call),
            _ => at_origin_itself(here, call),
        }
    }
}

/// Makes the kernel's call, with the program's file for names of `/proc/self/exe`.
///
/// # Safety
/// Runs at the origin; `call` has the arguments that the program gave.
unsafe fn at_origin_itself(here: &Here, call: Call) -> i64 {
    let executes = [libc::SYS_execve, libc::SYS_execveat].contains(&(call.number as i64));
    if executes {
        wait_for_beginners(here);
    }
    let limits_memory = executes && limits::are_of_kernel();
    // SAFETY: this function has the same contract as the callees.
    let result = unsafe { direct::call(here, exe::redirect(&here.exe, here.table, call)) };
    if limits_memory {
        limits::are_ours_again();
    }
    result
}

/// Waits until all nodes have begun, before the origin executes another program. That ends the
/// job's connections, and a node that still begins would report it as an error.
fn wait_for_beginners(here: &Here) {
    let nap = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // At most 30 s.
    for _ in 0..30_000 {
        if here.table.all_have_begun() {
            return;
        }
        let arguments = [std::ptr::from_ref(&nap) as u64, 0, 0, 0, 0, 0];
        // SAFETY: the kernel reads `nap`, which lives until the call returns.
        unsafe { raw::call(libc::SYS_nanosleep as u64, arguments) };
    }
}

/// # Safety
/// As for [`answer`].
unsafe fn local(here: &Here, slot: &Slot, call: Call) -> i64 {
    // SAFETY: this function has the same contract as the callees. Arguments are the program's: a
    // bad address is a fault in a call, which `signals::bad_address` turns into EFAULT.
    unsafe {
        match call.number as i64 {
            libc::SYS_getcpu => affinity::get(call),
            libc::SYS_membarrier => barrier(call),
            libc::SYS_sched_yield | libc::SYS_getrandom => edges::call(call.number, call.arguments),
            _ => clocks::call(here, slot, call),
        }
    }
}

/// Makes membarrier(2). A process must register for it before; the program has done so on some
/// node, perhaps not on this one.
///
/// # Safety
/// As for [`answer`].
unsafe fn barrier(call: Call) -> i64 {
    // SAFETY: membarrier(2) takes no pointers.
    unsafe {
        let result = raw::call(call.number, call.arguments);
        if result != -i64::from(libc::EPERM) {
            return result;
        }
        let [command, ..] = call.arguments;
        // The command that registers for a command is the next bit.
        raw::call(call.number, [command << 1, 0, 0, 0, 0, 0]);
        raw::call(call.number, call.arguments)
    }
}

/// # Safety
/// As for [`answer`].
unsafe fn ours(here: &Here, slot: &Slot, frame: *mut libc::ucontext_t, call: Call) -> i64 {
    let a = call.arguments;
    // SAFETY: this function has the same contract as the callees. Arguments are the program's: a
    // bad address is a fault in a call, which `signals::bad_address` turns into EFAULT.
    unsafe {
        match call.number as i64 {
            libc::SYS_rt_sigreturn => signals::return_from_handler(here, slot, frame),
            libc::SYS_rt_sigprocmask => mask::set(here, slot, frame, a),
            libc::SYS_rt_sigaction if here.node == 0 => sigaction::set(a),
            libc::SYS_rt_sigaction => here.table.request(slot, Request::Call(call)),
            libc::SYS_sigaltstack => alternate_stack::call(slot, frame, a[0], a[1]),
            libc::SYS_arch_prctl => match a[0] {
                LARGER_REGISTERS if here.nodes == 1 => raw::call(call.number, a),
                // A thread could not move to a node that has not enabled them.
                LARGER_REGISTERS => -i64::from(libc::EOPNOTSUPP),
                code if OF_THREADS.contains(&code) => raw::call(call.number, a),
                _ => -i64::from(libc::EPERM),
            },
            libc::SYS_prctl => match a[0] as i32 {
                libc::PR_SET_SECCOMP | libc::PR_SET_MM | libc::PR_SET_MDWE => {
                    -i64::from(libc::EPERM)
                }
                kernel_threads::DISPATCH => -i64::from(libc::EPERM),
                _ if here.node != 0 => here.table.request(slot, Request::Call(call)),
                _ => raw::call(call.number, a),
            },
            libc::SYS_rseq => -i64::from(libc::ENOSYS),
            libc::SYS_set_robust_list => robust::set(slot, a),
            libc::SYS_get_robust_list => robust::get(slot, a),
            libc::SYS_set_tid_address => {
                slot.clear_tid.store(a[0], Ordering::Relaxed);
                slot.tid.load(Ordering::Relaxed).into()
            }
            libc::SYS_gettid => slot.tid.load(Ordering::Relaxed).into(),
            libc::SYS_futex => futex::call(here, slot, a),
            libc::SYS_clone | libc::SYS_clone3 => threads::begin(here, slot, frame, call),
            libc::SYS_fork | libc::SYS_vfork => {
                let shares = libc::CLONE_VM | libc::CLONE_VFORK;
                let flags = if call.number == libc::SYS_fork as u64 { 0 } else { shares };
                let (flags, area) = ((flags | libc::SIGCHLD) as u64, kernel_threads::thread_area());
                processes::begin(here, slot, frame, flags, [0; 2], 0, area)
            }
            libc::SYS_exit => threads::end(slot, a[0] as i32),
            libc::SYS_exit_group => here.table.request(slot, Request::Exit(a[0] as i32)),
            _ if here.node != 0 => here.table.request(slot, Request::Call(call)),
            _ => files(here, slot, call),
        }
    }
}

/// Makes calls on descriptors and names at the origin: those of Nagaya stay hidden, and some files
/// describe all nodes.
///
/// # Safety
/// Runs at the origin; `call` has the arguments that the program gave.
unsafe fn files(here: &Here, slot: &Slot, call: Call) -> i64 {
    let a = call.arguments;
    let is_doorbell = |descriptor: u64| here.table.is_doorbell(descriptor as i32);
    // SAFETY: this function has the same contract as the callees. Arguments are the program's: a
    // bad address is a fault in a call, which `signals::bad_address` turns into EFAULT.
    unsafe {
        match call.number as i64 {
            libc::SYS_close if is_doorbell(a[0]) => -i64::from(libc::EBADF),
            libc::SYS_dup2 | libc::SYS_dup3 if is_doorbell(a[1]) => -i64::from(libc::EBADF),
            libc::SYS_close => descriptors::close(a[0]..=a[0], || raw::call(call.number, a)),
            libc::SYS_dup2 | libc::SYS_dup3 => {
                descriptors::close(a[1]..=a[1], || raw::call(call.number, a))
            }
            libc::SYS_close_range => {
                let (first, last) = (a[0] as u32, a[1] as u32);
                if a[2] & libc::CLOSE_RANGE_UNSHARE as u64 != 0 {
                    descriptors::are_of_threads();
                }
                let doorbell = here.table.doorbell() as u32;
                let range = |from: u32, to: u32| {
                    let (from, to) = (u64::from(from), u64::from(to));
                    descriptors::close(from..=to, || {
                        raw::call(call.number, [from, to, a[2], 0, 0, 0])
                    })
                };
                if !(first..=last).contains(&doorbell) {
                    return range(first, last);
                }
                let range = |from: u32, to: u32| if from <= to { range(from, to) } else { 0 };
                let below = if doorbell == 0 { 0 } else { range(first, doorbell - 1) };
                below.min(range(doorbell.saturating_add(1), last))
            }
            libc::SYS_getrlimit | libc::SYS_setrlimit | libc::SYS_prlimit64 => {
                let result = limits::call(call.number, a);
                open_stack(here, slot);
                result
            }
            libc::SYS_sched_getaffinity | libc::SYS_sched_setaffinity => {
                affinity::affinity(here, slot, call)
            }
            libc::SYS_open => {
                affinity::open(here, a[0], a[1]).unwrap_or_else(|| at_origin_itself(here, call))
            }
            libc::SYS_openat => {
                affinity::open(here, a[1], a[2]).unwrap_or_else(|| at_origin_itself(here, call))
            }
            libc::SYS_readlink | libc::SYS_readlinkat => {
                exe::read_link(&here.exe, here.table, &call)
                    .unwrap_or_else(|| edges::call(call.number, a))
            }
            _ => raw::call(call.number, a),
        }
    }
}

/// Opens more of the main thread's stack, after the program has raised its limit.
fn open_stack(here: &Here, slot: &Slot) {
    if let Some((closed, protection)) = limits::closed_stack() {
        let (start, bytes) = (closed.start, closed.end - closed.start);
        if here.table.request(slot, Request::Protect { start, bytes, protection }) == 0 {
            limits::stack_is_open(start);
        }
    }
}
