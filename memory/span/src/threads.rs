//! The program's threads: their creation and their end.
//!
//! Each thread has a kernel thread at the origin, which gives it its thread ID and its place in the
//! process. If the thread runs on another node, that kernel thread is its *shadow*.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::call::Call;
use crate::context::Context;
use crate::here::Here;
use crate::request::Request;
use crate::signal::block;
use crate::slot::{NO_STACK, Slot};
use crate::{
    affinity, alternate_stack, futex, kernel_threads, processes, raw, robust, scheduling, signals,
};

/// The flags of pthread_create(3). A clone without them makes a process, not a thread.
const WANTED: u64 = (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND) as u64;

/// The first members of the kernel's `struct clone_args`.
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

/// Makes clone(2) or clone3(2), for a thread of this node.
///
/// # Safety
/// As for [`calls::answer`](crate::calls::answer).
pub unsafe fn begin(here: &Here, slot: &Slot, frame: *mut libc::ucontext_t, call: Call) -> i64 {
    let a = call.arguments;
    // SAFETY: the frame is the kernel's, and the slot belongs to this thread, so nothing else uses
    // its context. A bad address of the program is a fault in a call: EFAULT.
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
        let area =
            if is_set(libc::CLONE_SETTLS) { wanted.tls } else { kernel_threads::thread_area() };
        if wanted.flags & WANTED != WANTED {
            let flags = wanted.flags & !0xff | wanted.exit_signal;
            // clone(2) stores the PID descriptor where it would store the parent's copy of the ID.
            let parent = if is_set(libc::CLONE_PIDFD) { wanted.pidfd } else { wanted.parent_tid };
            let tids = [parent, wanted.child_tid];
            return processes::begin(here, slot, frame, flags, tids, stack, area);
        }
        if Context::take(slot.context(), frame, alternate_stack::of_program(slot, frame), area)
            .is_err()
        {
            return -i64::from(libc::ENOMEM);
        }
        let context = &mut *Context::registers(slot.context());
        // A new thread has no alternate stack.
        context.uc_stack = NO_STACK;
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
            0 => clone(here, slot, call),
            _ => here.table.request(slot, Request::Call(call)),
        }
    }
}

/// At the origin: creates a thread with the context in `slot`. Arguments of the call: two addresses
/// to which its ID is stored, and one to which a zero is stored when it has exited.
///
/// # Safety
/// Runs on the thread of `slot`, or on its shadow.
pub unsafe fn clone(here: &Here, slot: &Slot, call: Call) -> i64 {
    let [parent_tid, child_tid, clear_tid, ..] = call.arguments;
    let place = here.table.request(slot, Request::PlaceThread);
    if place < 0 {
        return place;
    }
    let new = here.table.slot(place as u32);
    new.node.store((place >> 32) as u32, Ordering::Relaxed);
    new.clear_tid.store(clear_tid, Ordering::Relaxed);
    affinity::inherit(new, slot);
    new.wait_until_vacant();
    new.reset();
    // SAFETY: the agent has assigned the slot to this call, and its last kernel thread has exited.
    // The new thread waits for `wake` before it uses the context. The addresses are the program's.
    unsafe {
        std::ptr::copy_nonoverlapping(slot.context(), new.context(), 1);
        // A signal handler on the new thread needs the slot, to which it has not attached yet.
        let mask = block(!0);
        let tid = raw::thread(
            new.live_tid_word(),
            new.stack_end(),
            here.thread_entry,
            place as u32 as usize,
        );
        block(mask);
        if tid < 0 {
            here.table.request(slot, Request::ReleaseSlot(place as u32));
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

/// The entry of a thread that another node has sent here, on the stack of its slot.
pub extern "C" fn arrived(index: usize) -> ! {
    let slot = Here::get().table.slot(index as u32);
    slot.attach();
    scheduling::begins();
    // SAFETY: the agent has stored the context that came with the thread.
    unsafe { run(slot) }
}

/// Resumes the program's thread with the context in the slot.
///
/// # Safety
/// The calling thread has attached to the slot and blocks all signals; the context is complete.
pub unsafe fn run(slot: &Slot) -> ! {
    // SAFETY: by this function's contract the context is complete and only this thread uses it.
    unsafe {
        let context = slot.context();
        slot.take_mask();
        kernel_threads::set_thread_area((*context).thread_area);
        scheduling::computes();
        let selector = (Here::get().node != 0).then_some(&slot.selector);
        kernel_threads::dispatch(selector);
        let stack = &mut (*Context::registers(context)).uc_stack;
        *slot.alternate() = *stack;
        *stack = alternate_stack::of_handlers(slot);
        signals::go_on(slot, context)
    }
}

/// Ends a thread. It leaves the program's stack first, which others may unmap as soon as they see
/// the zero.
///
/// # Safety
/// Runs on the slot's thread.
pub unsafe fn end(slot: &Slot, status: i32) -> ! {
    // The thread handles no signal any more.
    block(!0);
    slot.status.store(status, Ordering::Relaxed);
    // SAFETY: the slot's stack is not in use while its thread runs the program; `last` never
    // returns.
    unsafe { raw::leave_to(slot.stack_end(), last, slot.index as usize) }
}

extern "C" fn last(index: usize) -> ! {
    let here = Here::get();
    let slot = here.table.slot(index as u32);
    // SAFETY: this is the slot's thread, and the program's part of it has ended.
    unsafe { robust::owner_dies(here, slot) };
    let word = slot.clear_tid.load(Ordering::Relaxed);
    if word != 0 {
        // SAFETY: the address is the program's (CLONE_CHILD_CLEARTID); the kernel would write
        // there.
        unsafe { (*(word as *const AtomicU32)).store(0, Ordering::SeqCst) };
        let all = i32::MAX as u64;
        let wake = [word, libc::FUTEX_WAKE as u64, all, 0, 0, 0];
        // SAFETY: FUTEX_WAKE reads no memory.
        unsafe { futex::call(here, slot, wake) };
    }
    let status = slot.status.load(Ordering::Relaxed);
    here.table.request(slot, Request::Exited(status));
    kernel_threads::over()
}
