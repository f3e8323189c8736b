//! Two places at which a signal must not be lost: a system call that may block, and the return to
//! the program. Both check the slot's flags first. A signal between the check and the kernel's
//! entry finds the thread at an address between two labels, and makes it repeat the check.

use std::arch::global_asm;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::here::Here;
use crate::raw;
use crate::slot::Slot;

/// The result of a call that was not made because a signal must be handled first; the call is then
/// restarted. This is the kernel's `ERESTARTSYS`, which programs never see.
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
    // The stack pointer points to the context of a signal frame.
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
    // RDI: a function, RSI: its argument. The slot holds the stack pointer for the return.
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

/// Makes a system call that a signal can interrupt. Returns [`RESTART`] if a signal came first.
///
/// # Safety
/// The call is safe with these arguments; the calling thread has attached to its slot.
pub unsafe fn call(number: u64, arguments: [u64; 6]) -> i64 {
    // SAFETY: the call is safe and the GS base points to the slot, by this function's contract.
    unsafe { nagaya_span_call(number, &raw const arguments) }
}

/// Calls `body`. A fault in it ends the call; the result is -EFAULT.
///
/// # Safety
/// The calling thread must have attached to its slot. While `body` uses the program's addresses,
/// it must hold nothing that has to be released.
pub unsafe fn guard(body: extern "C" fn(usize) -> i64, argument: usize) -> i64 {
    // SAFETY: `body` may be abandoned at a fault, by this function's contract.
    unsafe { nagaya_span_guard(body, argument) }
}

/// Changes the frame of a fault in [`guard`] so that the thread returns from `guard`.
///
/// # Safety
/// `frame` is the kernel's, of a fault of the slot's thread in [`guard`].
pub unsafe fn end_guarded(slot: &Slot, frame: *mut libc::ucontext_t) {
    // SAFETY: the frame is valid by this function's contract; from `guard` on the stack holds what
    // `nagaya_span_guard` has pushed.
    unsafe {
        let registers = &mut (*frame).uc_mcontext.gregs;
        registers[libc::REG_RSP as usize] = slot.guard.load(Ordering::Relaxed) as i64;
        registers[libc::REG_RIP as usize] = &raw const nagaya_span_guard_left as i64;
        registers[libc::REG_RAX as usize] = -i64::from(libc::EFAULT);
    }
}

/// Sleeps as [`raw::sleep`] does, until a signal comes at the latest.
///
/// # Safety
/// The calling thread has attached to its slot.
pub unsafe fn sleep(word: &AtomicU32, value: u32, limit: Option<&libc::timespec>) -> i64 {
    let operation = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u64;
    let limit = limit.map_or(0, |limit| std::ptr::from_ref(limit) as u64);
    let arguments = [word.as_ptr() as u64, operation, value.into(), limit, 0, 0];
    // SAFETY: both references live until the call returns.
    unsafe { call(libc::SYS_futex as u64, arguments) }
}

/// Returns the address to which Nagaya's handlers return: `nagaya_span_leave`.
pub fn leave_address() -> u64 {
    nagaya_span_leave as *const () as u64
}

/// Returns to the program with the registers of a signal frame.
///
/// # Safety
/// `frame` is the context of a complete signal frame: a word lies before it, a siginfo behind it.
pub unsafe fn leave(frame: *const libc::ucontext_t) -> ! {
    // SAFETY: the frame is complete by this function's contract, and nothing of this stack is used
    // after the jump.
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

/// Makes a thread that a signal has stopped in this code repeat the check of its flags, if it was
/// past the check. `is_signal`: the signal is the program's; otherwise it is the agent's SIGSYS, of
/// which the program must not see an EINTR.
///
/// # Safety
/// `frame` is the kernel's.
pub unsafe fn look_again(frame: *mut libc::ucontext_t, is_signal: bool) {
    let at = |label: &u8| std::ptr::from_ref(label) as i64;
    // SAFETY: the labels are defined above; the frame is valid by this function's contract.
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

/// Resumes code of Nagaya that a signal has stopped.
///
/// # Safety
/// As for [`raw::go_on`].
pub unsafe fn resume(frame: *const libc::ucontext_t) -> ! {
    // SAFETY: `raw::go_on` has the same contract.
    unsafe { raw::go_on(frame) }
}
