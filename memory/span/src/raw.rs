//! System calls and threads without libc: for code that runs on the program's threads, whose
//! thread area is that of another libc.

use std::arch::asm;
use std::sync::atomic::AtomicU32;

unsafe extern "C" {
    // The linker's: where this program's code begins and ends.
    static __executable_start: u8;
    static etext: u8;
}

/// This program's own code.
pub fn ours() -> std::ops::Range<u64> {
    &raw const __executable_start as u64..&raw const etext as u64
}

/// An address of that.
pub fn is_ours(code: u64) -> bool {
    ours().contains(&code)
}

/// An error's number.
pub type Errno = i32;

/// A system call; its result as the kernel gives it, errors negative.
///
/// # Safety
/// As the call.
#[inline(always)]
pub unsafe fn call(number: u64, a: [u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: as the caller says; the kernel changes rcx and r11.
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

/// Sleeps until somebody wakes those who sleep at the word, if it still has the value; not
/// longer than that (relative). 0, or a negative error.
pub fn sleep(word: &AtomicU32, value: u32, limit: Option<&libc::timespec>) -> i64 {
    let operation = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u64;
    let limit = limit.map_or(0, |limit| std::ptr::from_ref(limit) as u64);
    let arguments = [word.as_ptr() as u64, operation, value.into(), limit, 0, 0];
    // SAFETY: a word that lives, and a time or none.
    unsafe { call(libc::SYS_futex as u64, arguments) }
}

/// Wakes all who sleep at the word.
pub fn wake(word: &AtomicU32) {
    let operation = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as u64;
    let all = i32::MAX as u64;
    // SAFETY: a word that lives.
    unsafe { call(libc::SYS_futex as u64, [word.as_ptr() as u64, operation, all, 0, 0, 0]) };
}

/// Flags of a thread as programs have them. Its end and its thread area are our affair.
const THREAD: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM;

/// Starts a thread of this process; as [`clone`]. `id` has the thread's ID until it has gone.
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
    // SAFETY: as the caller says.
    unsafe { clone(flags as u64, [id.as_ptr() as u64; 2], stack_end, body, argument) }
}

/// Starts a thread or process with this memory, which runs `body` with `argument`, on a stack
/// that ends at `stack_end`; `tids` are where its ID goes, if the flags say so. Its ID, or a
/// negative error.
///
/// # Safety
/// The stack is the new one's alone; `body` uses no thread area, and never returns.
pub unsafe fn clone(
    flags: u64,
    tids: [u64; 2],
    stack_end: usize,
    body: extern "C" fn(usize) -> !,
    argument: usize,
) -> i64 {
    let result: i64;
    // SAFETY: the new thread goes on with its own stack, on which nothing is expected, and
    // calls the body, whose stack is aligned as the ABI wants it.
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

/// Leaves this stack for another and runs `body` there.
///
/// # Safety
/// As for [`thread`]; nothing of the stack that is left is used any more.
pub unsafe fn leave_to(stack_end: usize, body: extern "C" fn(usize) -> !, argument: usize) -> ! {
    // SAFETY: as the caller says.
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

/// Goes on with what a signal's context says: all registers, vectors included, and the mask.
///
/// # Safety
/// The context is whole, and so are the vector registers that it points to.
pub unsafe fn go_on(context: *const libc::ucontext_t) -> ! {
    // SAFETY: as the caller says; the kernel takes the context at the stack pointer.
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

/// Writes the name of an open file there; how long it is, or a negative error.
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
    // SAFETY: a path of ours, and so much room.
    unsafe { call(libc::SYS_readlinkat as u64, arguments) }
}
