//! Alternate signal stacks, sigaltstack(2): one of Nagaya's, and the program's.
//!
//! The kernel knows one alternate stack for a thread. It is a private stack in the thread's slot,
//! and all handlers of Nagaya run on it: a system call, a fault or a signal uses nothing of the
//! program's stack, which may be as small as a goroutine's.
//!
//! The program's own alternate stack is virtual: it is kept in the slot, and
//! [`signals`](crate::signals) builds the frames of the program's handlers on it.
//!
//! A child of vfork(2) shares its parent's slot, but not its parent's handlers: its kernel has the
//! program's stack, so a frame whose `uc_stack` is not ours belongs to such a child.

use libc::{MINSIGSTKSZ, SS_DISABLE, SS_ONSTACK, c_int, stack_t, ucontext_t};

use crate::raw;
use crate::slot::{NO_STACK, Slot};

/// `SS_AUTODISARM`: the stack is forgotten while a handler runs.
const AUTODISARM: c_int = 1 << 31;
/// `ARCH_GET_XCOMP_PERM`: the register state that the process may use.
const GET_STATE: u64 = 0x1022;
/// Of that, state that enlarges signal frames only for processes that asked for it (AMX).
const LARGE_STATE: u64 = 1 << 18;
/// `AT_MINSIGSTKSZ`: bytes of the largest signal frame on this processor.
const MINIMUM: u64 = 51;
/// Stacks of at least this size hold any frame.
const LARGE_BYTES: usize = 64 << 10;

/// The stack of Nagaya's handlers, for the kernel.
pub fn of_handlers(slot: &Slot) -> stack_t {
    let range = slot.handler_stack();
    stack_t { ss_sp: range.start as *mut _, ss_flags: 0, ss_size: range.len() }
}

/// Registers the stack of Nagaya's handlers with the kernel.
pub fn register(slot: &Slot) {
    let stack = of_handlers(slot);
    let arguments = [std::ptr::from_ref(&stack) as u64, 0, 0, 0, 0, 0];
    // SAFETY: `stack` lives until the call returns; its memory is never freed.
    unsafe { raw::call(libc::SYS_sigaltstack as u64, arguments) };
}

/// Returns true if the address belongs to the stack.
pub fn has(stack: &stack_t, address: usize) -> bool {
    let start = stack.ss_sp as usize;
    address > start && address - start <= stack.ss_size
}

/// Returns true if a thread with this stack pointer is on the stack by the kernel's rule: never on
/// a stack that is disabled while in use.
pub fn contains(stack: &stack_t, pointer: usize) -> bool {
    stack.ss_flags & AUTODISARM == 0 && has(stack, pointer)
}

/// `SS_DISABLE`, `SS_ONSTACK`, or 0 for a stack that a handler would begin on.
fn state(stack: &stack_t, pointer: usize) -> c_int {
    match stack.ss_size {
        0 => SS_DISABLE,
        _ if contains(stack, pointer) => SS_ONSTACK,
        _ => 0,
    }
}

/// Returns true if a handler with SA_ONSTACK begins at the end of the stack, for a thread with
/// this stack pointer.
pub fn is_entered(stack: &stack_t, pointer: usize) -> bool {
    state(stack, pointer) == 0
}

/// Returns true if the frame belongs to a child of vfork.
///
/// # Safety
/// `frame` must point to a signal frame that the kernel wrote.
pub unsafe fn is_child(slot: &Slot, frame: *const ucontext_t) -> bool {
    // SAFETY: the frame is the kernel's, by this function's contract.
    unsafe { (*frame).uc_stack.ss_sp as usize != slot.handler_stack().start }
}

/// The program's alternate stack, in a handler with this frame.
///
/// # Safety
/// `frame` points to a signal frame that the kernel wrote on the thread of this slot.
pub unsafe fn of_program(slot: &Slot, frame: *const ucontext_t) -> stack_t {
    // SAFETY: the frame is the kernel's, and only the slot's thread uses the slot's stack.
    unsafe { if is_child(slot, frame) { (*frame).uc_stack } else { *slot.alternate() } }
}

/// Disarms an `SS_AUTODISARM` stack, since a handler of the program begins. Returns the stack that
/// the kernel is to have while it runs.
///
/// # Safety
/// As for [`of_program`].
pub unsafe fn enter(slot: &Slot, frame: *const ucontext_t) -> stack_t {
    // SAFETY: the frame is the kernel's, and only the slot's thread uses the slot's stack.
    unsafe {
        let program = of_program(slot, frame);
        let set = if program.ss_flags & AUTODISARM == 0 { program } else { NO_STACK };
        if is_child(slot, frame) {
            return set;
        }
        *slot.alternate() = set;
    }
    of_handlers(slot)
}

/// sigaltstack(2), made by the thread that is stopped with this frame.
///
/// # Safety
/// As for [`of_program`]; `new` and `old` are the program's arguments.
pub unsafe fn call(slot: &Slot, frame: *const ucontext_t, new: u64, old: u64) -> i64 {
    let bad_address = -i64::from(libc::EFAULT);
    // The kernel reads `new` and writes `old`, which may be bad addresses. It changes nothing:
    // this thread is on its alternate stack.
    // SAFETY: the kernel answers EFAULT for addresses that cannot be used.
    let check =
        |new, old| unsafe { raw::call(libc::SYS_sigaltstack as u64, [new, old, 0, 0, 0, 0]) };
    // SAFETY: `new` and `old` are used after the kernel has used them; only this thread uses the
    // slot's stack.
    unsafe {
        let pointer = (*frame).uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
        let before = *slot.alternate();
        if new != 0 {
            if check(new, 0) == bad_address {
                return bad_address;
            }
            let errno = set(slot, (new as *const stack_t).read_unaligned(), pointer);
            if errno != 0 {
                return -i64::from(errno);
            }
        }
        if old != 0 {
            if check(0, old) == bad_address {
                return bad_address;
            }
            let ss_flags = state(&before, pointer) | before.ss_flags & AUTODISARM;
            (old as *mut stack_t).write_unaligned(stack_t { ss_flags, ..before });
        }
    }
    0
}

/// Sets the program's alternate stack for a thread with this stack pointer. Returns 0 or an error's
/// number.
///
/// # Safety
/// By the slot's thread.
pub unsafe fn set(slot: &Slot, wanted: stack_t, pointer: usize) -> raw::Errno {
    // SAFETY: only this thread uses the slot's stack.
    let stack = unsafe { &mut *slot.alternate() };
    if contains(stack, pointer) {
        return libc::EPERM;
    }
    match wanted.ss_flags & !AUTODISARM {
        SS_DISABLE => *stack = stack_t { ss_flags: wanted.ss_flags, ..NO_STACK },
        SS_ONSTACK | 0 if is_too_small(wanted.ss_size) => return libc::ENOMEM,
        SS_ONSTACK | 0 => *stack = wanted,
        _ => return libc::EINVAL,
    }
    0
}

/// Returns true if a signal frame may not fit on a stack of this size.
fn is_too_small(bytes: usize) -> bool {
    if !(MINSIGSTKSZ..LARGE_BYTES).contains(&bytes) {
        return bytes < MINSIGSTKSZ;
    }
    let mut state = 0u64;
    let arguments = [GET_STATE, std::ptr::from_mut(&mut state) as u64, 0, 0, 0, 0];
    // SAFETY: the kernel writes `state`.
    unsafe { raw::call(libc::SYS_arch_prctl as u64, arguments) };
    // SAFETY: glibc reads a variable that it set when this process began.
    let frame_bytes = || unsafe { libc::getauxval(MINIMUM) as usize };
    state & LARGE_STATE != 0 && bytes <= frame_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_pointer_is_on_a_stack_from_its_second_byte_to_its_end() {
        let stack = stack_t { ss_sp: 0x1000 as *mut _, ss_flags: 0, ss_size: 0x1000 };
        for (pointer, is_on) in [(0x1000, false), (0x1001, true), (0x2000, true), (0x2001, false)] {
            assert_eq!(contains(&stack, pointer), is_on, "{pointer:x}");
            assert_eq!(is_entered(&stack, pointer), !is_on, "{pointer:x}");
        }
        let disarmed = stack_t { ss_flags: AUTODISARM, ..stack };
        assert!(!contains(&disarmed, 0x1800) && is_entered(&disarmed, 0x1800));
        assert!(!is_entered(&NO_STACK, 0x1800));
    }
}
