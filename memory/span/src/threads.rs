//! The program's threads: how they begin, on which node, and end.
//!
//! Each has a kernel's thread at the origin, which is its identity there: its thread ID, its
//! part in what the kernel knows of the process. One that runs elsewhere has only a *shadow* at
//! the origin, which makes the system calls of the other half under its own name.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::context::Context;
use crate::desk::{Call, Request, Seat};
use crate::here::Here;
use crate::signals::{self, block};
use crate::{alternate_stack, calls, processes, processors, raw, robust, scheduling, shadow};

/// `PR_SET_SYSCALL_USER_DISPATCH` (Linux 5.11).
pub const DISPATCH: i32 = 59;
const DISPATCH_ON: u64 = 1;
/// `arch_prctl`'s codes.
const SET_FS: u64 = 0x1002;
const GET_FS: u64 = 0x1003;

/// The flags that pthread_create gives, without which a thread is none of ours.
const WANTED: u64 = (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND) as u64;

/// The kernel's `struct clone_args`, as far as we need it.
#[derive(Clone, Copy)]
#[repr(C)]
struct Arguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
}

/// clone or clone3, by a thread that runs here.
///
/// # Safety
/// As for [`calls::answer`].
pub unsafe fn begin(here: &Here, seat: &Seat, frame: *mut libc::ucontext_t, call: Call) -> i64 {
    let a = call.arguments;
    // SAFETY: as the caller says, for all of these.
    unsafe {
        let wanted = match call.number as i64 {
            libc::SYS_clone3 if a[1] < size_of::<Arguments>() as u64 => {
                return -i64::from(libc::EINVAL);
            }
            libc::SYS_clone3 => (a[0] as *const Arguments).read_unaligned(),
            _ => Arguments {
                flags: a[0],
                pidfd: a[2],
                child_tid: a[3],
                parent_tid: a[2],
                exit_signal: a[0] & 0xff,
                stack: a[1],
                stack_size: 0,
                tls: a[4],
            },
        };
        let stack = wanted.stack + wanted.stack_size;
        let is_set = |flag: i32| wanted.flags & flag as u64 != 0;
        let area = if is_set(libc::CLONE_SETTLS) { wanted.tls } else { thread_area() };
        if wanted.flags & WANTED != WANTED {
            let flags = wanted.flags & !0xff | wanted.exit_signal;
            // As clone(2) has it.
            let parent = if is_set(libc::CLONE_PIDFD) { wanted.pidfd } else { wanted.parent_tid };
            let tids = [parent, wanted.child_tid];
            return processes::begin(here, seat, frame, flags, tids, stack, area);
        }
        if Context::take(seat, frame, area).is_err() {
            return -i64::from(libc::ENOMEM);
        }
        let context = &mut *Context::registers(seat.context());
        // A new thread does not inherit it.
        context.uc_stack = alternate_stack::NONE;
        let registers = &mut context.uc_mcontext.gregs;
        registers[libc::REG_RSP as usize] = stack as i64;
        registers[libc::REG_RAX as usize] = 0;
        let or_0 = |flag, address| if is_set(flag) { address } else { 0 };
        let call = Call {
            number: libc::SYS_clone as u64,
            arguments: [
                or_0(libc::CLONE_PARENT_SETTID, wanted.parent_tid),
                or_0(libc::CLONE_CHILD_SETTID, wanted.child_tid),
                or_0(libc::CLONE_CHILD_CLEARTID, wanted.child_tid),
                0,
                0,
                0,
            ],
        };
        match here.node {
            0 => clone(here, seat, call),
            _ => here.desk.ask(seat, Request::Call(call)),
        }
    }
}

/// At the origin: a new thread, whose context stands at the seat of who makes it. Arguments are
/// where its ID goes (two places), and where a zero is to stand at its end.
///
/// # Safety
/// By that thread, or its shadow.
pub unsafe fn clone(here: &Here, seat: &Seat, call: Call) -> i64 {
    let [parent_tid, child_tid, clear_tid, ..] = call.arguments;
    let place = here.desk.ask(seat, Request::Place);
    if place < 0 {
        return place;
    }
    let new = here.desk.seat(place as u32);
    new.node.store((place >> 32) as u32, Ordering::Relaxed);
    new.clear_tid.store(clear_tid, Ordering::Relaxed);
    processors::inherit(new, seat);
    new.wait_until_left();
    new.forget();
    // SAFETY: the seat is given to us for this; its area is the new thread's, which begins when
    // it is told.
    unsafe {
        std::ptr::copy_nonoverlapping(seat.context(), new.context(), 1);
        // A signal would find it without a seat.
        let mask = block(!0);
        let tid = raw::thread(new.kernel_word(), new.stack_end(), first, place as u32 as usize);
        block(mask);
        if tid < 0 {
            here.desk.ask(seat, Request::Vacate(place as u32));
            return tid;
        }
        new.tid.store(tid as i32, Ordering::Relaxed);
        for address in [parent_tid, child_tid].into_iter().filter(|&address| address != 0) {
            (*(address as *const AtomicU32)).store(tid as u32, Ordering::SeqCst);
        }
        new.wake();
        tid
    }
}

/// A new thread at the origin, on its own area.
extern "C" fn first(index: usize) -> ! {
    let here = Here::get();
    let seat = here.desk.seat(index as u32);
    while seat.woken.load(Ordering::SeqCst) == 0 {
        raw::sleep(&seat.woken, 0, None);
    }
    seat.sit_down();
    if seat.node.load(Ordering::Relaxed) == here.node {
        // SAFETY: its context was given to it.
        unsafe { run(seat) }
    }
    here.desk.ask(seat, Request::Begin(index as u32));
    shadow::of_context(here, seat)
}

/// A thread that another node has sent here, on its own area.
pub extern "C" fn arrived(index: usize) -> ! {
    let seat = Here::get().desk.seat(index as u32);
    seat.sit_down();
    scheduling::begins();
    // SAFETY: its context came with it.
    unsafe { run(seat) }
}

/// Goes on with the context of the seat, as a thread of the program.
///
/// # Safety
/// By the seat's thread, which has sat down and blocks all signals; the context is whole.
pub unsafe fn run(seat: &Seat) -> ! {
    // SAFETY: as the caller says.
    unsafe {
        let context = seat.context();
        set_thread_area((*context).thread_area);
        scheduling::computes();
        dispatch();
        let stack = &mut (*Context::registers(context)).uc_stack;
        *seat.alternate() = *stack;
        *stack = alternate_stack::of_handlers(seat);
        signals::go_on(seat, context)
    }
}

/// From now on the thread's system calls are signals, but those that this program's own code
/// makes.
///
/// # Safety
/// There is a handler for SIGSYS.
pub unsafe fn dispatch() {
    let ours = raw::ours();
    let arguments = [DISPATCH as u64, DISPATCH_ON, ours.start, ours.end - ours.start, 0, 0];
    // SAFETY: as the caller says.
    unsafe { raw::call(libc::SYS_prctl as u64, arguments) };
}

/// # Safety
/// The thread uses the other one no more.
pub unsafe fn set_thread_area(area: u64) {
    // SAFETY: as the caller says.
    unsafe { raw::call(libc::SYS_arch_prctl as u64, [SET_FS, area, 0, 0, 0, 0]) };
}

/// Of this thread.
pub fn thread_area() -> u64 {
    let mut area = 0u64;
    let arguments = [GET_FS, std::ptr::from_mut(&mut area) as u64, 0, 0, 0, 0];
    // SAFETY: writes a word of ours.
    unsafe { raw::call(libc::SYS_arch_prctl as u64, arguments) };
    area
}

/// The end of a thread. Its stack may go as soon as others see the zero, so it leaves it first.
///
/// # Safety
/// By the seat's thread.
pub unsafe fn end(seat: &Seat, status: i32) -> ! {
    // Nobody is there any more to handle a signal.
    block(!0);
    seat.status.store(status, Ordering::Relaxed);
    // SAFETY: as the caller says; its area holds nothing that is needed.
    unsafe { raw::leave_to(seat.stack_end(), last, seat.index as usize) }
}

extern "C" fn last(index: usize) -> ! {
    let here = Here::get();
    let seat = here.desk.seat(index as u32);
    // SAFETY: the thread has ended, as far as the program goes.
    unsafe { robust::owner_dies(here, seat) };
    let word = seat.clear_tid.load(Ordering::Relaxed);
    if word != 0 {
        // SAFETY: where the program wants it; as the kernel does.
        unsafe { (*(word as *const AtomicU32)).store(0, Ordering::SeqCst) };
        let all = i32::MAX as u64;
        let wake = [word, libc::FUTEX_WAKE as u64, all, 0, 0, 0];
        // SAFETY: wakes.
        unsafe { calls::futex(here, seat, wake) };
    }
    let status = seat.status.load(Ordering::Relaxed);
    here.desk.ask(seat, Request::Gone(status));
    over()
}

/// Ends this thread of the kernel, and nothing else.
pub fn over() -> ! {
    loop {
        // SAFETY: ends the thread, and nothing else.
        unsafe { raw::call(libc::SYS_exit as u64, [0; 6]) };
    }
}
