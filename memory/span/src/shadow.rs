//! The shadow of a thread that runs on another node: its kernel thread at the origin. The shadow
//! makes the thread's system calls, has its signal mask, and forwards its signals.

use std::sync::atomic::Ordering;

use crate::call::{self, Call};
use crate::edges::{self, RESTART};
use crate::here::Here;
use crate::request::Request;
use crate::signal::{ALL, OURS, Signal, block, send};
use crate::slot::Slot;
use crate::{calls, dispositions, kernel_threads, processes, raw, scheduling, threads};

/// Serves the thread, which has this signal mask, until it exits or returns to the origin. The
/// calling kernel thread becomes its shadow; it blocks all signals of the program.
pub fn stand(here: &Here, slot: &Slot, mask: u64) -> ! {
    // The thread has been sent a signal, and has not acknowledged it.
    let mut is_forwarded = false;
    scheduling::serves();
    set_mask(slot, mask);
    loop {
        is_forwarded |= forward_signal(here, slot, is_forwarded);
        let Some(call) = wait_for_call(slot, !is_forwarded) else { continue };
        let a = call.arguments;
        let result = match call.number {
            call::END => {
                block(!0);
                here.table.request(slot, Request::Exited(a[0] as i32));
                kernel_threads::over()
            }
            call::HOME => {
                block(!0);
                // SAFETY: the thread's node sent the context with which it resumes; nothing on this
                // stack is used after that.
                unsafe { threads::run(slot) }
            }
            call::TAKEN => {
                is_forwarded = false;
                slot.clear(Slot::SIGNAL);
                set_mask(slot, a[0]);
                0
            }
            // The thread repeats the call after the handler.
            _ if slot.has(Slot::SIGNAL) => RESTART,
            call::MASK => set_mask(slot, a[0]),
            call::FAULT => fault(slot, a),
            // SAFETY: the child's context came with the call, and the thread waits for the result.
            call::CHILD => unsafe { processes::child(slot, call) },
            // SAFETY: the child's context came with the call, and the thread waits for the result.
            call::FORK => unsafe { processes::fork(here, slot, call) },
            _ => make(&call),
        };
        is_forwarded |= forward_signal(here, slot, is_forwarded);
        here.table.post(slot, Request::Completed(result));
    }
}

/// Waits for a call; if `signals`, a signal of the program ends the wait.
fn wait_for_call(slot: &Slot, signals: bool) -> Option<Call> {
    loop {
        if let Some(call) = slot.take_call() {
            return Some(call);
        }
        if signals && slot.has(Slot::SIGNAL) {
            return None;
        }
        match signals {
            // SAFETY: the shadow's kernel thread attached to the slot before it became a shadow.
            true => unsafe { edges::sleep(slot.call_posted(), 0, None) },
            false => raw::sleep(slot.call_posted(), 0, None),
        };
    }
}

/// Makes a system call of the thread. A bad address gives EFAULT.
fn make(call: &Call) -> i64 {
    extern "C" fn make(call: usize) -> i64 {
        let call = std::ptr::with_exposed_provenance::<Call>(call);
        // SAFETY: the pointer is that of the `Call` below, which lives until `guard` returns; its
        // arguments are the program's.
        unsafe { calls::for_another(Here::get(), Slot::current(), *call) }
    }
    // SAFETY: the shadow's kernel thread has attached to the slot. While `for_another` uses the
    // program's addresses, it holds no lock and needs no cleanup.
    unsafe { edges::guard(make, std::ptr::from_ref(call).expose_provenance()) }
}

/// Forwards the signal in the slot to the thread. Returns true if that was done now.
fn forward_signal(here: &Here, slot: &Slot, is_forwarded: bool) -> bool {
    !is_forwarded && slot.has(Slot::SIGNAL) && here.table.request(slot, Request::ForwardSignal) == 0
}

fn set_mask(slot: &Slot, mask: u64) -> i64 {
    slot.mask.store(mask, Ordering::Relaxed);
    block(mask & !OURS);
    0
}

/// Delivers the thread's fault. As in the kernel, a fault that is blocked or ignored ends the
/// program.
fn fault(slot: &Slot, reported: [u64; 6]) -> i64 {
    let signal = reported[0] as i32;
    let action = dispositions::of(signal);
    let is_blocked = slot.mask.load(Ordering::Relaxed) & 1 << (signal - 1) != 0;
    if is_blocked || !action.is_handler() {
        dispositions::reset(signal);
        block(0);
        send(slot.live_tid(), signal);
        return 0;
    }
    if action.has(libc::SA_RESETHAND) {
        dispositions::reset(signal);
    }
    block(ALL);
    if slot.has(Slot::SIGNAL) {
        // It came first. The thread repeats its fault after that signal's handler.
        return RESTART;
    }
    let mut info = [0; 16];
    info[..reported.len()].copy_from_slice(&reported);
    slot.set_signal(&Signal { action, info });
    0
}

/// Becomes the shadow of the thread whose context is in the slot: it starts on another node, or
/// moves there.
pub fn of_context(here: &Here, slot: &Slot) -> ! {
    // SAFETY: the context is complete: `threads::clone` or `moves::go` has stored it.
    let mask = unsafe { (*slot.context()).mask() };
    block(ALL);
    stand(here, slot, mask)
}

/// The entry of a new kernel thread at the origin, on the stack of its slot: the thread itself or,
/// if it runs on another node, its shadow.
pub extern "C" fn first(index: usize) -> ! {
    let here = Here::get();
    let slot = here.table.slot(index as u32);
    while slot.woken.load(Ordering::SeqCst) == 0 {
        raw::sleep(&slot.woken, 0, None);
    }
    slot.attach();
    if slot.node.load(Ordering::Relaxed) == here.node {
        // SAFETY: `threads::clone` has stored the context before it set `woken`.
        unsafe { threads::run(slot) }
    }
    here.table.request(slot, Request::StartThread(index as u32));
    of_context(here, slot)
}
