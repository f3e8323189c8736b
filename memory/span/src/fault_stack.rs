//! A stack of ours for the handler of faults: threads have it on nodes other than the origin while
//! the program has set none. Who overflows its stack has no room for a handler's frame; the kernel
//! would end the node then, and what is to end is the program, by the origin's kernel.
//!
//! The program does not see it: where a `stack_t` is the program's it says that there is none.

use libc::{SS_DISABLE, stack_t};

use crate::desk::Seat;
use crate::here::Here;

/// None, as the kernel says that.
pub const NONE: stack_t = stack_t { ss_sp: std::ptr::null_mut(), ss_flags: SS_DISABLE, ss_size: 0 };

/// Whether there is one.
pub fn is_set(stack: &stack_t) -> bool {
    stack.ss_size > 0 && stack.ss_flags & SS_DISABLE == 0
}

/// What the kernel is to have where the program wants this.
pub fn for_kernel(here: &Here, seat: &Seat, wanted: stack_t) -> stack_t {
    if here.node == 0 || is_set(&wanted) {
        return wanted;
    }
    let ours = seat.fault_stack();
    stack_t { ss_sp: ours.start as *mut _, ss_flags: 0, ss_size: ours.len() }
}

/// What the program is to see where the kernel has this.
pub fn for_program(seat: &Seat, set: stack_t) -> stack_t {
    if set.ss_sp as usize == seat.fault_stack().start { NONE } else { set }
}
