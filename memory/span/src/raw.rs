//! System calls and threads without libc, for code on the program's threads: their thread area
//! belongs to the program's libc.

use std::arch::asm;
use std::sync::atomic::AtomicU32;

unsafe extern "C" {
    // The linker defines these: the start and end of Nagaya's code.
    static __executable_start: u8;
    static etext: u8;
}

/// Returns the addresses of Nagaya's own code.
pub fn ours() -> std::ops::Range<u64> {
    &raw const __executable_start as u64..&raw const etext as u64
}

/// Returns true if the address is of that code.
pub fn is_ours(code: u64) -> bool {
    ours().contains(&code)
}

/// An error number.
pub type Errno = i32;

/// Makes a system call. Returns the kernel's result: errors are negative.
///
/// # Safety
/// The call is safe with these arguments.
#[inline(always)]
pub unsafe fn call(number: u64, a: [u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: the call is safe by this function's contract; the kernel changes RCX and R11 only.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as i64 => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Waits on a futex word while it has this value, for `limit` at most (relative). Returns 0 or a
/// negative error.
pub fn sleep(word: &AtomicU32, value: u32, limit: Option<&libc::timespec>) -> i64 {
    let operation = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u64;
    let limit = limit.map_or(0, |limit| std::ptr::from_ref(limit) as u64);
    let arguments = [word.as_ptr() as u64, operation, value.into(), limit, 0, 0];
    // SAFETY: both references live until the call returns.
    unsafe { call(libc::SYS_futex as u64, arguments) }
}

/// Wakes all threads that wait on a futex word.
pub fn wake(word: &AtomicU32) {
    let operation = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as u64;
    let all = i32::MAX as u64;
    // SAFETY: FUTEX_WAKE reads no memory.
    unsafe { call(libc::SYS_futex as u64, [word.as_ptr() as u64, operation, all, 0, 0, 0]) };
}

/// The flags of pthread_create(3), without those for the thread area and the end.
const THREAD: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM;

/// Starts a thread of this process, as [`clone`] does. `id` holds its ID until it has exited.
///
/// # Safety
/// As for [`clone`].
pub unsafe fn thread(
    id: &AtomicU32,
    stack_end: usize,
    body: extern "C" fn(usize) -> !,
    argument: usize,
) -> i64 {
    let flags = THREAD | libc::CLONE_PARENT_SETTID | libc::CLONE_CHILD_CLEARTID;
    // SAFETY: `clone` has the same contract.
    unsafe { clone(flags as u64, [id.as_ptr() as u64; 2], stack_end, body, argument) }
}

/// Starts a thread or process that runs `body(argument)` on a stack that ends at `stack_end`.
/// `tids`: the addresses to which the kernel stores its ID, if the flags request that. Returns its
/// ID or a negative error.
///
/// # Safety
/// Only the new thread uses the stack; `body` uses no thread area, and never returns.
pub unsafe fn clone(
    flags: u64,
    tids: [u64; 2],
    stack_end: usize,
    body: extern "C" fn(usize) -> !,
    argument: usize,
) -> i64 {
    let result: i64;
    // SAFETY: the new thread continues after `syscall` on its own stack, where it reads nothing,
    // and calls `body` with the alignment of the ABI.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone => result,
            in("rdi") flags, in("rsi") stack_end & !15,
            in("rdx") tids[0], in("r10") tids[1], in("r8") 0,
            in("r12") argument, in("r13") body,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    result
}

/// Switches to another stack and runs `body` there.
///
/// # Safety
/// As for [`thread`]; nothing uses the present stack any more.
pub unsafe fn leave_to(stack_end: usize, body: extern "C" fn(usize) -> !, argument: usize) -> ! {
    // SAFETY: nothing uses the present stack any more, by this function's contract.
    unsafe {
        asm!(
            "mov rsp, {stack}",
            "xor ebp, ebp",
            "call {body}",
            "ud2",
            stack = in(reg) stack_end & !15,
            body = in(reg) body,
            in("rdi") argument,
            options(noreturn),
        )
    }
}

/// Runs `body` on another stack, and returns when it does.
///
/// # Safety
/// Nothing else uses that stack meanwhile.
pub unsafe fn call_on_stack(stack_end: usize, body: extern "C" fn(usize), argument: usize) {
    // SAFETY: the stack is free by this function's contract. `body` preserves R12, as the ABI
    // requires.
    unsafe {
        asm!(
            "mov r12, rsp",
            "mov rsp, {stack}",
            "call {body}",
            "mov rsp, r12",
            stack = in(reg) stack_end & !15,
            body = in(reg) body,
            inout("rdi") argument => _,
            out("r12") _,
            clobber_abi("C"),
        );
    }
}

/// Resumes with a signal context: all registers, vector registers included, and the mask.
///
/// # Safety
/// The context is complete, and so are the vector registers to which it points.
pub unsafe fn go_on(context: *const libc::ucontext_t) -> ! {
    // SAFETY: the context is complete by this function's contract; the kernel reads it at the stack
    // pointer.
    unsafe {
        asm!(
            "mov rsp, {context}",
            "syscall",
            "ud2",
            context = in(reg) context,
            in("rax") libc::SYS_rt_sigreturn,
            options(noreturn),
        )
    }
}

/// Writes the path of an open file to `to`. Returns its length or a negative error.
pub fn name_of(descriptor: i32, to: *mut u8, room: usize) -> i64 {
    let mut path = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    let digits = descriptor.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 1;
    let mut rest = descriptor.unsigned_abs();
    for at in (14..14 + digits).rev() {
        path[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let here = libc::AT_FDCWD as u64;
    let arguments = [here, path.as_ptr() as u64, to as u64, room as u64, 0, 0];
    // SAFETY: `path` ends with a zero, and the kernel writes at most `room` bytes.
    unsafe { call(libc::SYS_readlinkat as u64, arguments) }
}
