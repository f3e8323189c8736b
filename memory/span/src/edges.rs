//! The two edges at which it matters when exactly a signal comes: the call that may block, and
//! the way back to the program. Both look at the slot's flags first. A signal that comes between
//! that look and the kernel finds the thread at an address between labels, and sets it back.

use std::arch::global_asm;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::here::Here;
use crate::raw;
use crate::slot::Slot;

/// What a call gives that has not been made, since a signal is to be handled first: it is made
/// anew then. The kernel's `ERESTARTSYS`, which programs never see.
pub const RESTART: i64 = -512;

global_asm!(
    ".hidden nagaya_span_call",
    ".globl nagaya_span_call",
    "nagaya_span_call:",
    "mov rax, rdi",
    "mov r11, rsi",
    "mov rdi, [r11]",
    "mov rsi, [r11 + 8]",
    "mov rdx, [r11 + 16]",
    "mov r10, [r11 + 24]",
    "mov r8, [r11 + 32]",
    "mov r9, [r11 + 40]",
    "mov dword ptr gs:[{in_call}], 1",
    "nagaya_span_call_look:",
    "test byte ptr gs:[{flags}], {signal}",
    "jnz nagaya_span_call_not",
    "nagaya_span_call_enter:",
    "syscall",
    "nagaya_span_call_left:",
    "mov dword ptr gs:[{in_call}], 0",
    "ret",
    "nagaya_span_call_not:",
    "mov rax, {restart}",
    "jmp nagaya_span_call_left",
    // With the context of a signal's frame at the stack pointer.
    ".hidden nagaya_span_leave",
    ".globl nagaya_span_leave",
    "nagaya_span_leave:",
    "cmp dword ptr gs:[{flags}], 0",
    "jne 2f",
    "mov eax, {sigreturn}",
    "nagaya_span_leave_enter:",
    "syscall",
    "ud2",
    "2:",
    "mov rbx, rsp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {before_leaving}",
    "mov rsp, rbx",
    "jmp nagaya_span_leave",
    // A function and its argument; where to return to stands in the slot meanwhile.
    ".hidden nagaya_span_guard",
    ".globl nagaya_span_guard",
    "nagaya_span_guard:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 8",
    "mov gs:[{guard}], rsp",
    "mov rax, rdi",
    "mov rdi, rsi",
    "call rax",
    "nagaya_span_guard_left:",
    "mov qword ptr gs:[{guard}], 0",
    "add rsp, 8",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    guard = const offset_of!(Slot, guard),
    in_call = const offset_of!(Slot, in_call),
    flags = const offset_of!(Slot, flags),
    signal = const Slot::SIGNAL,
    restart = const RESTART,
    sigreturn = const libc::SYS_rt_sigreturn,
    before_leaving = sym before_leaving,
);

/// Handles the flags of the thread's slot on its way back to the program.
unsafe extern "C" fn before_leaving(frame: *mut libc::ucontext_t) {
    // SAFETY: `nagaya_span_leave` passes the frame with which the slot's thread will return.
    unsafe { (Here::get().before_leaving)(frame) }
}

unsafe extern "C" {
    fn nagaya_span_call(number: u64, arguments: *const [u64; 6]) -> i64;
    fn nagaya_span_leave();
    fn nagaya_span_guard(body: extern "C" fn(usize) -> i64, argument: usize) -> i64;
    static nagaya_span_guard_left: u8;
    static nagaya_span_call_look: u8;
    static nagaya_span_call_enter: u8;
    static nagaya_span_call_left: u8;
    static nagaya_span_call_not: u8;
    static nagaya_span_leave_enter: u8;
}

/// A system call that a signal interrupts, or keeps from being made: [`RESTART`].
///
/// # Safety
/// As the call; by a thread that has sat down.
pub unsafe fn call(number: u64, arguments: [u64; 6]) -> i64 {
    // SAFETY: as the caller says.
    unsafe { nagaya_span_call(number, &raw const arguments) }
}

/// Calls `body`; a fault in it ends it, with -EFAULT.
///
/// # Safety
/// By a thread that has sat down; `body` leaves nothing undone where it uses the program's
/// addresses.
pub unsafe fn guard(body: extern "C" fn(usize) -> i64, argument: usize) -> i64 {
    // SAFETY: as the caller says.
    unsafe { nagaya_span_guard(body, argument) }
}

/// Lets a thread that was stopped by a fault in [`guard`] return from it.
///
/// # Safety
/// The kernel's frame of a fault, of the slot's thread.
pub unsafe fn end_guarded(slot: &Slot, frame: *mut libc::ucontext_t) {
    // SAFETY: as the caller says; the stack from there on is what the guard has pushed.
    unsafe {
        let registers = &mut (*frame).uc_mcontext.gregs;
        registers[libc::REG_RSP as usize] = slot.guard.load(Ordering::Relaxed) as i64;
        registers[libc::REG_RIP as usize] = &raw const nagaya_span_guard_left as i64;
        registers[libc::REG_RAX as usize] = -i64::from(libc::EFAULT);
    }
}

/// As [`raw::sleep`], but a signal ends it.
///
/// # Safety
/// By a thread that has sat down.
pub unsafe fn sleep(word: &AtomicU32, value: u32, limit: Option<&libc::timespec>) -> i64 {
    let operation = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u64;
    let limit = limit.map_or(0, |limit| std::ptr::from_ref(limit) as u64);
    let arguments = [word.as_ptr() as u64, operation, value.into(), limit, 0, 0];
    // SAFETY: a word that lives, and a time or none.
    unsafe { call(libc::SYS_futex as u64, arguments) }
}

/// Where a handler of ours returns to: the way back to the program.
pub fn leave_address() -> u64 {
    nagaya_span_leave as *const () as u64
}

/// Goes back to the program with what a signal's frame says.
///
/// # Safety
/// The context of a frame on the program's stack, which has what the kernel puts there: a word
/// before it, and a siginfo behind it.
pub unsafe fn leave(frame: *const libc::ucontext_t) -> ! {
    // SAFETY: as the caller says.
    unsafe {
        std::arch::asm!(
            "mov rsp, {frame}",
            "jmp {leave}",
            frame = in(reg) frame,
            leave = sym nagaya_span_leave,
            options(noreturn),
        )
    }
}

/// To the handler of a signal that has stopped a thread of ours there: it looks at the flags
/// anew if it was past the look. `is_signal`: one for the program, and no poke of ours, which
/// nobody is to see.
///
/// # Safety
/// The kernel's frame.
pub unsafe fn look_again(frame: *mut libc::ucontext_t, is_signal: bool) {
    let at = |label: &u8| std::ptr::from_ref(label) as i64;
    // SAFETY: labels of ours; as the caller says.
    unsafe {
        let registers = &mut (*frame).uc_mcontext.gregs;
        let (look, enter) = (at(&nagaya_span_call_look), at(&nagaya_span_call_enter));
        let pc = registers[libc::REG_RIP as usize];
        let (leave, leave_enter) = (leave_address() as i64, at(&nagaya_span_leave_enter));
        if (look..=enter).contains(&pc) {
            registers[libc::REG_RIP as usize] = at(&nagaya_span_call_not);
        } else if (leave..=leave_enter).contains(&pc) {
            registers[libc::REG_RIP as usize] = leave;
        } else if pc == at(&nagaya_span_call_left)
            && !is_signal
            && registers[libc::REG_RAX as usize] == -i64::from(libc::EINTR)
        {
            registers[libc::REG_RAX as usize] = RESTART;
        }
    }
}

/// Goes on with another frame's registers, as they are: for code of ours that was stopped.
///
/// # Safety
/// As for [`raw::go_on`].
pub unsafe fn resume(frame: *const libc::ucontext_t) -> ! {
    // SAFETY: as the caller says.
    unsafe { raw::go_on(frame) }
}
