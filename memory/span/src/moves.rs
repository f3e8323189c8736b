//! Threads that go on on another node: with all registers, their mask, and what the kernel
//! would have kept for them. A thread is stopped by a signal when it goes, at a system call or
//! anywhere, so all of it is in the signal's frame.

use std::sync::atomic::Ordering;

use crate::context::Context;
use crate::desk::{Request, Seat};
use crate::here::Here;
use crate::signals::{ALL, block};
use crate::{raw, shadow, shared, threads};

/// The number of `nagaya_migrate`, `nagaya_node` and `nagaya_nodes` (`include/nagaya_span.h`): a
/// system call that no kernel has.
pub const CALL: u64 = 0x4e61_6761;
const MIGRATE: u64 = 0;
const NODE: u64 = 1;
const NODES: u64 = 2;

/// That call. The thread goes on its way back to the program.
pub fn call(here: &Here, seat: &Seat, a: [u64; 6]) -> i64 {
    match a[0] {
        MIGRATE if a[1] >= here.nodes.into() => -i64::from(libc::EINVAL),
        MIGRATE => {
            seat.go_to(a[1] as u32);
            0
        }
        NODE => here.node.into(),
        NODES => here.nodes.into(),
        _ => -i64::from(libc::ENOSYS),
    }
}

/// Lets the thread go on there, with this frame. Returns if it is there, or cannot go.
///
/// # Safety
/// By the seat's thread, on its way back to the program.
pub unsafe fn go(here: &Here, seat: &Seat, frame: *mut libc::ucontext_t, node: u32) {
    // SAFETY: as the caller says.
    let stack = unsafe { (*frame).uc_mcontext.gregs[libc::REG_RSP as usize] as u64 };
    // On a stack that others can write it is at the origin.
    if node == here.node || node >= here.nodes || node != 0 && shared::contains(stack - 1) {
        return;
    }
    // SAFETY: as the caller says; the seat's area is not in use.
    unsafe {
        if Context::take(seat, frame, threads::thread_area()).is_err() {
            return;
        }
        seat.node.store(node, Ordering::Relaxed);
        raw::leave_to(seat.stack_end(), leave, seat.index as usize)
    }
}

/// On the seat's own stack: the program's may be the other half's at once.
extern "C" fn leave(index: usize) -> ! {
    let here = Here::get();
    let seat = here.desk.seat(index as u32);
    block(ALL);
    let node = seat.node.load(Ordering::Relaxed);
    here.desk.ask(seat, Request::Move(node));
    match here.node {
        0 => shadow::of_context(here, seat),
        _ => threads::over(),
    }
}
