//! Moving a thread to another node, with its registers, signal mask and thread area. A signal stops
//! the thread before it moves, at a system call or anywhere, so its state is in the signal's frame.

use std::sync::atomic::Ordering;

use crate::context::Context;
use crate::here::Here;
use crate::request::Request;
use crate::signal::{ALL, block};
use crate::slot::Slot;
use crate::{alternate_stack, kernel_threads, raw, shadow, shared};

/// Resumes the thread on that node, with this frame. Returns if it is there, or cannot move.
///
/// # Safety
/// Runs on the slot's thread, on its way back to the program with `frame`.
pub unsafe fn go(here: &Here, slot: &Slot, frame: *mut libc::ucontext_t, node: u32) {
    // SAFETY: `frame` is valid by this function's contract.
    let stack = unsafe { (*frame).uc_mcontext.gregs[libc::REG_RSP as usize] as u64 };
    // A thread whose stack is shared memory stays at the origin.
    if node == here.node || node >= here.nodes || node != 0 && shared::contains(stack - 1) {
        return;
    }
    // SAFETY: the frame is valid by this function's contract. The thread runs on its handler
    // stack, so nothing else uses the slot's context and its other stack.
    unsafe {
        if Context::take(
            slot.context(),
            frame,
            alternate_stack::of_program(slot, frame),
            kernel_threads::thread_area(),
        )
        .is_err()
        {
            return;
        }
        slot.node.store(node, Ordering::Relaxed);
        raw::leave_to(slot.stack_end(), leave, slot.index as usize)
    }
}

/// Hands the thread over, on the slot's stack: the thread may use the program's stack at once.
extern "C" fn leave(index: usize) -> ! {
    let here = Here::get();
    let slot = here.table.slot(index as u32);
    block(ALL);
    let node = slot.node.load(Ordering::Relaxed);
    here.table.request(slot, Request::Move(node));
    match here.node {
        0 => shadow::of_context(here, slot),
        _ => kernel_threads::over(),
    }
}
