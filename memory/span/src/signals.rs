//! Delivery of the program's signals, on all nodes.
//!
//! The origin's kernel decides. Each thread has a kernel thread there, with the thread's mask. So
//! the kernel chooses the receiver of a signal, holds blocked signals, and interrupts calls. A
//! shadow forwards the signal to its thread, which runs the handler. Until the thread has
//! acknowledged it, the shadow blocks all signals: at most one signal is under way to a thread.
//!
//! A signal that stops a thread in code of Nagaya is stored ([`Slot::set_signal`]) and handled on
//! the way back to the program, as the kernel does for a thread in a system call. The handler's
//! frame is a copy of the frame of the SIGSYS that caught the call.
//!
//! Nagaya builds the frames of the program's handlers on the program's stacks. The kernel's frames
//! all lie on the [stack of Nagaya's handlers](crate::alternate_stack).

use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::Ordering;

use libc::{c_int, siginfo_t, ucontext_t};

use crate::addresses::PAGE;
use crate::call::{self, Call};
use crate::context::{self, Context};
use crate::here::Here;
use crate::request::Request;
use crate::signal::{ALL, Action, OURS, Signal, block, send};
use crate::slot::Slot;
use crate::{alternate_stack, clocks, dispositions, edges, jump, mask, raw};

/// Bytes of the kernel's `ucontext`; its siginfo follows.
const CONTEXT_BYTES: usize = offset_of!(ucontext_t, uc_sigmask) + 8;
/// The flags that are clear when a handler starts: DF, TF, RF.
const FLAGS_CLEARED: i64 = 0x1_0500;
/// Bytes of the kernel's `struct rt_sigframe`: return address, context and siginfo.
const FRAME_BYTES: usize = 8 + CONTEXT_BYTES + size_of::<[u64; 16]>();
/// The mask of signals that code of Nagaya raises by bad addresses of the program.
const FAULTS: u64 = 1 << (libc::SIGSEGV - 1) | 1 << (libc::SIGBUS - 1);
/// Bytes below the stack pointer that functions may use.
const RED_ZONE: usize = 128;

/// Returns true if the signal is a fault of an instruction.
fn is_fault(signal: c_int, info: &siginfo_t) -> bool {
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];
    faults.contains(&signal) && info.si_code > 0
}

/// Nagaya's handler: at the origin of all signals that the program handles, on other nodes of
/// faults. All other signals are blocked in it.
pub unsafe extern "C" fn signalled(
    number: c_int,
    info: *const siginfo_t,
    frame: *mut ucontext_t,
) -> ! {
    let (here, slot) = (Here::get(), Slot::current());
    // SAFETY: the kernel passes a valid siginfo and frame; only threads with a slot get signals.
    unsafe {
        clocks::set_back(slot, frame, false);
        let pc = (*frame).uc_mcontext.gregs[libc::REG_RIP as usize] as u64;
        if here.is_program(pc) {
            if here.node == 0 {
                let action = dispositions::of(number);
                if !action.is_handler() {
                    without_handler(&action, number, is_fault(number, &*info));
                    edges::leave(frame)
                }
                enter(here, slot, frame, &action, number)
            }
            // The kernel sets no more words for a fault.
            let fault = info.cast::<[u64; 6]>().read();
            here.table.request(slot, Request::Call(Call { number: call::FAULT, arguments: fault }));
            edges::leave(frame)
        }
        if is_fault(number, &*info) {
            if jump::end_peek(frame) {
                edges::resume(frame)
            }
            bad_address(slot, frame, number)
        }
        let action = dispositions::of(number);
        if !action.is_handler() {
            without_handler(&action, number, false);
            edges::look_again(frame, false);
            jump::look_again(frame, false);
            edges::resume(frame)
        }
        let mask = (&raw mut (*frame).uc_sigmask).cast::<u64>();
        if slot.has(Slot::SIGNAL) {
            // A second one, sent by kill(2), waits until the first has been handled.
            *mask |= 1 << (number - 1);
            send_again(number, info);
            edges::resume(frame)
        }
        slot.set_signal(&Signal { action, info: *info.cast() });
        slot.keep_mask(mask::of(frame));
        // A bad address of the program must still give EFAULT.
        *mask = ALL & !FAULTS | *mask & FAULTS;
        edges::look_again(frame, true);
        jump::look_again(frame, true);
        edges::resume(frame)
    }
}

/// Sends a signal to this thread with the siginfo that came with it.
fn send_again(number: c_int, info: *const siginfo_t) {
    // SAFETY: both calls take no pointers but `info`, which is the kernel's.
    unsafe {
        let ids = [libc::SYS_getpid, libc::SYS_gettid];
        let [process, thread] = ids.map(|call| raw::call(call as u64, [0; 6]) as u64);
        let arguments = [process, thread, number as u64, info as u64, 0, 0];
        raw::call(libc::SYS_rt_tgsigqueueinfo as u64, arguments);
    }
}

/// Gives a signal that the program does not handle its effect. One that ends the program does so
/// when the thread resumes and unblocks it.
fn without_handler(action: &Action, number: c_int, is_fault: bool) {
    if is_fault {
        // The instruction is repeated, and faults with the default effect.
        dispositions::reset(number);
    } else if action.handler == libc::SIG_DFL as u64 {
        dispositions::reset(number);
        // SAFETY: gettid(2) has no arguments.
        let itself = unsafe { raw::call(libc::SYS_gettid as u64, [0; 6]) };
        send(itself as i32, number);
    }
}

/// Nagaya's code has faulted at an address that the program gave it: the call fails with EFAULT.
///
/// # Safety
/// As for [`signalled`].
unsafe fn bad_address(slot: &Slot, frame: *mut ucontext_t, signal: c_int) -> ! {
    // SAFETY: the frames are the kernel's. Code that uses the program's addresses in a call holds
    // nothing that must be released.
    unsafe {
        let call = slot.caught_frame();
        if slot.guard.load(Ordering::Relaxed) != 0 {
            edges::end_guarded(slot, frame);
            edges::resume(frame)
        }
        if call.is_null() {
            // This is an error of Nagaya: it ends the process by its signal.
            dispositions::reset(signal);
            edges::resume(frame)
        }
        (*call).uc_mcontext.gregs[libc::REG_RAX as usize] = -i64::from(libc::EFAULT);
        edges::leave(call)
    }
}

/// Runs the handler of the signal that the slot holds.
///
/// # Safety
/// Runs on the way back to the program; the thread would resume with `frame`.
pub unsafe fn deliver(here: &Here, slot: &Slot, frame: *mut ucontext_t) {
    let Some(signal) = slot.take_signal() else { return };
    slot.take_mask();
    // SAFETY: a siginfo follows the context in every frame.
    unsafe {
        let to = frame.cast::<u8>().add(CONTEXT_BYTES).cast::<[u64; 16]>();
        to.write_unaligned(signal.info);
        enter(here, slot, frame, &signal.action, signal.number())
    }
}

/// Enters the program's handler as the kernel does; `frame` is the state that it interrupts.
///
/// # Safety
/// The frame's siginfo is that of the signal; all signals of the program are blocked, or the
/// thread's shadow blocks them.
unsafe fn enter(
    here: &Here,
    slot: &Slot,
    frame: *mut ucontext_t,
    action: &Action,
    number: c_int,
) -> ! {
    // SAFETY: the frame is valid by this function's contract; `build_frame` returns a complete
    // frame on a stack of the program.
    unsafe {
        let mut mask = *(&raw const (*frame).uc_sigmask).cast::<u64>() | action.mask;
        if !action.has(libc::SA_NODEFER) {
            mask |= 1 << (number - 1);
        }
        mask &= !OURS;
        if here.node != 0 {
            // The next signal interrupts the handler at its first instruction.
            block(!0);
            let taken = [mask, 0, 0, 0, 0, 0];
            here.table.request(slot, Request::Call(Call { number: call::TAKEN, arguments: taken }));
            slot.recheck_flags();
        }
        if !action.is_handler() {
            edges::resume(frame)
        }
        let Some(new) = build_frame(here, slot, frame, action) else { overflows(here, slot) };
        let mut entry = std::mem::MaybeUninit::<ucontext_t>::zeroed();
        let entry = entry.as_mut_ptr();
        std::ptr::copy_nonoverlapping(new.cast::<u8>(), entry.cast(), CONTEXT_BYTES);
        (*entry).uc_mcontext.fpregs = std::ptr::null_mut();
        (*entry).uc_stack = alternate_stack::enter(slot, frame);
        *(&raw mut (*entry).uc_sigmask).cast::<u64>() = mask;
        let registers = &mut (*entry).uc_mcontext.gregs;
        let mut set = |register: c_int, value: i64| registers[register as usize] = value;
        set(libc::REG_RIP, action.handler as i64);
        set(libc::REG_RSP, new as i64 - 8);
        set(libc::REG_RDI, number.into());
        set(libc::REG_RSI, new as i64 + CONTEXT_BYTES as i64);
        set(libc::REG_RDX, new as i64);
        set(libc::REG_RAX, 0);
        registers[libc::REG_EFL as usize] &= !FLAGS_CLEARED;
        raw::go_on(entry)
    }
}

/// Copies a frame to where the kernel would have put it without Nagaya: to the program's alternate
/// stack if SA_ONSTACK is set and the thread is not on it, else below the red zone of the present
/// stack. Returns `None` if there is no room.
///
/// # Safety
/// `frame` is the kernel's, on the thread's handler stack.
unsafe fn build_frame(
    here: &Here,
    slot: &Slot,
    frame: *mut ucontext_t,
    action: &Action,
) -> Option<*mut ucontext_t> {
    // SAFETY: the frame is the kernel's, and so are the vector registers that it names (see
    // `keep_vectors`). Below the red zone the program's stack is free, and so is all of its
    // alternate stack, which it is not on.
    unsafe {
        let stack = alternate_stack::of_program(slot, frame);
        let pointer = (*frame).uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
        let below = pointer.wrapping_sub(RED_ZONE);
        let enters = action.has(libc::SA_ONSTACK) && alternate_stack::is_entered(&stack, below);
        let is_on = enters || alternate_stack::contains(&stack, pointer);
        // In a child of vfork the kernel has put the frame there.
        let is_in_place = alternate_stack::has(&stack, frame as usize) == is_on;
        if alternate_stack::is_child(slot, frame) && is_in_place {
            frame.cast::<u64>().sub(1).write(action.restorer);
            return Some(frame);
        }
        let end = if enters { stack.ss_sp as usize + stack.ss_size } else { below };
        let vectors = (*frame).uc_mcontext.fpregs.cast::<u8>();
        let vectors_bytes = context::vectors_bytes(vectors);
        let new_vectors = end.wrapping_sub(vectors_bytes) & !63;
        let start = (new_vectors.wrapping_sub(FRAME_BYTES) & !15).wrapping_sub(8);
        if start > end || is_on && !alternate_stack::has(&stack, start) {
            return None;
        }
        // A fault here would end this node only. The origin's kernel must end the program.
        if here.node != 0 && !can_be_written(start..end) {
            return None;
        }
        let new = (start + 8) as *mut ucontext_t;
        let bytes = CONTEXT_BYTES + size_of::<[u64; 16]>();
        std::ptr::copy_nonoverlapping(frame.cast::<u8>(), new.cast(), bytes);
        if vectors_bytes > 0 {
            std::ptr::copy_nonoverlapping(vectors, new_vectors as *mut u8, vectors_bytes);
            (*new).uc_mcontext.fpregs = new_vectors as *mut _;
        }
        (*new).uc_stack = stack;
        (start as *mut u64).write(action.restorer);
        Some(new)
    }
}

/// Makes rt_sigreturn(2) for a thread that was caught with `frame`: it resumes with the frame of
/// its handler. Returns only if a signal must be handled first.
///
/// # Safety
/// `frame` is the kernel's, on the thread's handler stack.
pub unsafe fn return_from_handler(here: &Here, slot: &Slot, frame: *mut ucontext_t) -> i64 {
    // SAFETY: the frame is the kernel's. The program's frame is copied before anything changes, so
    // a fault at a bad stack pointer has no effect.
    unsafe {
        let from = (*frame).uc_mcontext.gregs[libc::REG_RSP as usize] as *const u8;
        let mut to = std::mem::MaybeUninit::<ucontext_t>::uninit();
        let to = to.as_mut_ptr();
        std::ptr::copy_nonoverlapping(from, to.cast(), CONTEXT_BYTES);
        let error = mask::report(here, slot, mask::of(frame), mask::of(to));
        if error != 0 {
            return error;
        }
        let pointer = (*to).uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
        // The kernel ignores an alternate stack that cannot be set, too.
        alternate_stack::set(slot, (*to).uc_stack, pointer);
        (*to).uc_stack = alternate_stack::of_handlers(slot);
        keep_vectors(frame, to);
        std::ptr::copy_nonoverlapping(to.cast::<u8>(), frame.cast(), CONTEXT_BYTES);
        slot.set_caught_frame(std::ptr::null_mut());
        edges::leave(frame)
    }
}

/// Copies the vector registers that `to` names to where `frame` has its own, and names those
/// instead. The handler's frame is no longer in use once its thread has returned, and the next
/// handler's frame is built over it.
///
/// # Safety
/// `frame` is the kernel's; `to` is a copy of a context of the program.
unsafe fn keep_vectors(frame: *const ucontext_t, to: *mut ucontext_t) {
    // SAFETY: the kernel's frame has room for its vector registers; a bad address of the program's
    // is a fault in a call. The two may be one, if a program returns twice by one frame.
    unsafe {
        let own = (*frame).uc_mcontext.fpregs.cast::<u8>();
        let from = (*to).uc_mcontext.fpregs.cast::<u8>();
        let (room, bytes) = (context::vectors_bytes(own), context::vectors_bytes(from));
        // The kernel refuses or converts what has another form.
        if bytes > 0 && bytes == room {
            std::ptr::copy(from, own, bytes);
            (*to).uc_mcontext.fpregs = own.cast();
        }
    }
}

/// Returns true if the thread can write to this unused part of a stack. The kernel checks it
/// without a fault.
fn can_be_written(range: Range<usize>) -> bool {
    let mut at = range.start;
    while at < range.end {
        let arguments = [libc::SIG_BLOCK as u64, 0, at as u64, 8, 0, 0];
        // SAFETY: the kernel writes a mask into unused memory, or fails with EFAULT.
        if unsafe { raw::call(libc::SYS_rt_sigprocmask as u64, arguments) } != 0 {
            return false;
        }
        at = (at + 1).next_multiple_of(PAGE as usize);
    }
    true
}

/// Ends the program with SIGSEGV, as the kernel does without room for a handler's frame.
fn overflows(here: &Here, slot: &Slot) -> ! {
    block(!0);
    let ask =
        |number, arguments| here.table.request(slot, Request::Call(Call { number, arguments }));
    loop {
        if here.node == 0 {
            dispositions::reset(libc::SIGSEGV);
            send(slot.live_tid(), libc::SIGSEGV);
            block(0);
        } else {
            // A blocked fault ends the program.
            ask(call::TAKEN, [ALL, 0, 0, 0, 0, 0]);
            ask(call::FAULT, [libc::SIGSEGV as u64, 0, 0, 0, 0, 0]);
        }
    }
}

/// Resumes a thread that has just come to this node, perhaps with a signal.
///
/// # Safety
/// As for [`raw::go_on`]; SIGSYS is blocked.
pub unsafe fn go_on(slot: &Slot, context: *mut Context) -> ! {
    slot.recheck_flags();
    // SAFETY: the context is complete by this function's contract.
    unsafe { raw::go_on(Context::registers(context)) }
}
