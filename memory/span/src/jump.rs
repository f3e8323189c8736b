//! System calls by a jump: the code to which stubs of patched sites ([`stubs`](crate::stubs)) lead.
//!
//! A call takes one of three routes:
//! - *direct*: the kernel makes it at once, since it needs nothing of Nagaya. A call with a path is
//!   direct unless the path may name a file of Nagaya;
//! - *answered*: `calls` makes it, on the stack of Nagaya's handlers, with all vector registers
//!   saved;
//! - *trapped*: the stub raises SIGSYS ([`trap`](crate::trap)), since the call needs a signal
//!   frame.
//!
//! A thread must check its slot's flags on its way back to the program (see [`edges`]). If one is
//! set, it raises a SIGSYS with the number [`LEAVE`], whose frame is what signals and moves need.
//! A signal between the check and the stub repeats the check.

use std::arch::global_asm;
use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::mem::offset_of;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::call::Call;
use crate::call_table::{self, NEED_FRAME, Where};
use crate::edges::{self, RESTART};
use crate::here::Here;
use crate::slot::Slot;
use crate::{direct, exe, migrate};

/// The number by which a thread asks for a signal frame after a call: no kernel has it.
pub const LEAVE: u64 = migrate::CALL + 1;

/// Numbers of calls, as bits.
type Calls = [AtomicU64; 8];

/// The calls that are made directly.
static DIRECT: Calls = [const { AtomicU64::new(0) }; 8];
/// The calls that are answered.
static ANSWERED: Calls = [const { AtomicU64::new(0) }; 8];
/// The argument, from 1 on, that is the path of a call. Such a call is answered only if its path
/// begins with `/p` or `/s`, as `/proc` and `/sys` do. 0: the call has no such path.
static PATHS: [AtomicU8; 512] = [const { AtomicU8::new(0) }; 512];
/// The components of the extended state that are saved.
static COMPONENTS: AtomicU64 = AtomicU64::new(0);
/// Bytes of stack for them.
const STATE_BYTES: usize = 4096;
/// Components that Nagaya's code does not change: memory protection keys, AMX.
const UNTOUCHED: u64 = 1 << 9 | 1 << 17 | 1 << 18;
/// The extended state's header, behind the legacy region.
const HEADER_OFFSET: usize = 512;

global_asm!(
    // RAX: the number; RCX: where the stub continues. It executes SYSCALL if RCX is not 0.
    ".hidden nagaya_span_jump",
    ".globl nagaya_span_jump",
    "nagaya_span_jump:",
    // The kernel ignores the upper half.
    "mov r11d, eax",
    "cmp r11d, 512",
    "jae 9f",
    "bt qword ptr [rip + {direct}], r11",
    "jnc 8f",
    "mov gs:[{back}], rcx",
    "4:",
    "mov gs:[{number}], r11",
    // The stub's jump to the site.
    "movsxd r11, dword ptr [rcx + 5]",
    "lea r11, [rcx + r11 + 9]",
    "mov gs:[{end}], r11",
    "mov dword ptr gs:[{in_call}], 1",
    ".hidden nagaya_span_jump_look",
    ".globl nagaya_span_jump_look",
    "nagaya_span_jump_look:",
    "test byte ptr gs:[{flags}], {signal}",
    "jnz nagaya_span_jump_not",
    ".hidden nagaya_span_jump_enter",
    ".globl nagaya_span_jump_enter",
    "nagaya_span_jump_enter:",
    "syscall",
    ".hidden nagaya_span_jump_left",
    ".globl nagaya_span_jump_left",
    "nagaya_span_jump_left:",
    "mov dword ptr gs:[{in_call}], 0",
    "cmp dword ptr gs:[{flags}], 0",
    "jne 5f",
    "cmp rax, {restart}",
    "je 5f",
    "xor ecx, ecx",
    "jmp qword ptr gs:[{back}]",
    "5:",
    "mov gs:[{result}], rax",
    ".hidden nagaya_span_jump_pending",
    ".globl nagaya_span_jump_pending",
    "nagaya_span_jump_pending:",
    "mov dword ptr gs:[{leaves}], 1",
    "mov eax, {leave}",
    "mov rcx, gs:[{back}]",
    "jmp rcx",
    ".hidden nagaya_span_jump_not",
    ".globl nagaya_span_jump_not",
    "nagaya_span_jump_not:",
    "mov rax, {restart}",
    "jmp nagaya_span_jump_left",
    "8:",
    "bt qword ptr [rip + {answered}], r11",
    "jnc 9f",
    "mov gs:[{back}], rcx",
    // The kernel makes the call at once if its path cannot concern Nagaya.
    "lea rcx, [rip + {paths}]",
    "movzx ecx, byte ptr [rcx + r11]",
    "cmp ecx, 1",
    "jb 7f",
    "mov rcx, rdi",
    "je nagaya_span_jump_peek",
    "mov rcx, rsi",
    ".hidden nagaya_span_jump_peek",
    ".globl nagaya_span_jump_peek",
    "nagaya_span_jump_peek:",
    "movzx ecx, word ptr [rcx]",
    "cmp ecx, {proc}",
    "je 7f",
    "cmp ecx, {sys}",
    "je 7f",
    "mov rcx, gs:[{back}]",
    "jmp 4b",
    ".hidden nagaya_span_jump_unread",
    ".globl nagaya_span_jump_unread",
    "nagaya_span_jump_unread:",
    "7:",
    "mov rcx, gs:[{back}]",
    "mov gs:[{number}], r11",
    "movsxd r11, dword ptr [rcx + 5]",
    "lea r11, [rcx + r11 + 9]",
    "mov gs:[{end}], r11",
    "mov gs:[{stack}], rsp",
    "mov rsp, gs:[{handlers}]",
    // A `Call`.
    "push r9",
    "push r8",
    "push r10",
    "push rdx",
    "push rsi",
    "push rdi",
    "push rax",
    "push rbx",
    "mov rbx, rsp",
    "sub rsp, {state_bytes}",
    "and rsp, -64",
    "xor eax, eax",
    "mov [rsp + {header}], rax",
    "mov [rsp + {header} + 8], rax",
    "mov [rsp + {header} + 16], rax",
    "mov [rsp + {header} + 24], rax",
    "mov [rsp + {header} + 32], rax",
    "mov [rsp + {header} + 40], rax",
    "mov [rsp + {header} + 48], rax",
    "mov [rsp + {header} + 56], rax",
    "mov eax, dword ptr [rip + {components}]",
    "mov edx, dword ptr [rip + {components} + 4]",
    "xsavec64 [rsp]",
    "lea rdi, [rbx + 8]",
    "call {answer}",
    "mov gs:[{result}], rax",
    "mov eax, dword ptr [rip + {components}]",
    "mov edx, dword ptr [rip + {components} + 4]",
    "xrstor64 [rsp]",
    "mov rsp, rbx",
    "pop rbx",
    "pop rax",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop r10",
    "pop r8",
    "pop r9",
    "mov rsp, gs:[{stack}]",
    "mov rax, gs:[{result}]",
    "jmp nagaya_span_jump_left",
    // The same for a child process: the kernel makes all its calls.
    ".hidden nagaya_span_jump_alone",
    ".globl nagaya_span_jump_alone",
    "nagaya_span_jump_alone:",
    "9:",
    "jmp rcx",
    direct = sym DIRECT,
    answered = sym ANSWERED,
    paths = sym PATHS,
    proc = const u16::from_le_bytes(*b"/p"),
    sys = const u16::from_le_bytes(*b"/s"),
    components = sym COMPONENTS,
    answer = sym answer,
    back = const offset_of!(Slot, call_return),
    result = const offset_of!(Slot, call_result),
    leaves = const offset_of!(Slot, call_leaves),
    number = const offset_of!(Slot, call_number),
    end = const offset_of!(Slot, call_end),
    stack = const offset_of!(Slot, call_stack),
    handlers = const offset_of!(Slot, handlers_end),
    in_call = const offset_of!(Slot, in_call),
    flags = const offset_of!(Slot, flags),
    signal = const Slot::SIGNAL,
    restart = const RESTART,
    leave = const LEAVE,
    state_bytes = const STATE_BYTES,
    header = const HEADER_OFFSET,
);

unsafe extern "C" {
    fn nagaya_span_jump();
    fn nagaya_span_jump_alone();
    static nagaya_span_jump_look: u8;
    static nagaya_span_jump_enter: u8;
    static nagaya_span_jump_left: u8;
    static nagaya_span_jump_pending: u8;
    static nagaya_span_jump_not: u8;
    static nagaya_span_jump_peek: u8;
    static nagaya_span_jump_unread: u8;
}

/// Returns the address to which stubs jump.
pub fn entry() -> u64 {
    nagaya_span_jump as *const () as u64
}

/// Returns that address for child processes, which make system calls instead.
pub fn entry_alone() -> u64 {
    nagaya_span_jump_alone as *const () as u64
}

/// Answers a call that needs no signal frame. A bad address gives EFAULT.
extern "C" fn answer(call: &Call) -> i64 {
    extern "C" fn answer(call: usize) -> i64 {
        let call = std::ptr::with_exposed_provenance::<Call>(call);
        // SAFETY: the pointer is that of the `Call` below, which lives until `guard` returns. Its
        // arguments are the program's, and `route` excludes calls that need the frame.
        unsafe { (Here::get().answer)(Here::get(), Slot::current(), std::ptr::null_mut(), *call) }
    }
    let call = Call { number: u64::from(call.number as u32), ..*call };
    // SAFETY: the thread has attached to its slot. While `answer` uses the program's addresses, it
    // holds nothing that has to be released.
    unsafe { edges::guard(answer, std::ptr::from_ref(&call).expose_provenance()) }
}

/// Makes a thread that a signal has stopped in this code repeat the check of its flags, as
/// [`edges::look_again`] does in other code.
///
/// # Safety
/// `frame` is the kernel's.
pub unsafe fn look_again(frame: *mut libc::ucontext_t, is_signal: bool) {
    let at = |label: &u8| std::ptr::from_ref(label) as i64;
    // SAFETY: the labels are defined above; the frame is valid by this function's contract.
    unsafe {
        let registers = &mut (*frame).uc_mcontext.gregs;
        let pc = registers[libc::REG_RIP as usize];
        let left = at(&nagaya_span_jump_left);
        if (at(&nagaya_span_jump_look)..=at(&nagaya_span_jump_enter)).contains(&pc) {
            registers[libc::REG_RIP as usize] = at(&nagaya_span_jump_not);
        } else if (left..=at(&nagaya_span_jump_pending)).contains(&pc) {
            let is_interrupted = registers[libc::REG_RAX as usize] == -i64::from(libc::EINTR);
            if pc == left && !is_signal && is_interrupted {
                registers[libc::REG_RAX as usize] = RESTART;
            }
            registers[libc::REG_RIP as usize] = left;
        }
    }
}

/// Resumes the answered route of a thread that faulted when it read a path. Returns false if the
/// fault is elsewhere.
///
/// # Safety
/// `frame` is the kernel's, of a fault.
pub unsafe fn end_peek(frame: *mut libc::ucontext_t) -> bool {
    // SAFETY: the labels are defined above; the frame is valid by this function's contract.
    unsafe {
        let registers = &mut (*frame).uc_mcontext.gregs;
        if registers[libc::REG_RIP as usize] != &raw const nagaya_span_jump_peek as i64 {
            return false;
        }
        registers[libc::REG_RIP as usize] = &raw const nagaya_span_jump_unread as i64;
    }
    true
}

/// The route of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Direct,
    Answered,
    Trapped,
}

/// Returns the route of a call on this node; `nodes` is the number of all.
fn route(number: u64, node: u32, nodes: u32) -> Route {
    let place = call_table::place(number);
    match number as i64 {
        trapped if NEED_FRAME.contains(&trapped) => Route::Trapped,
        libc::SYS_sched_yield => Route::Direct,
        // On another node a buffer in shared memory sends the thread to the origin.
        libc::SYS_getrandom | libc::SYS_gettid if node == 0 => Route::Direct,
        libc::SYS_futex if nodes == 1 => Route::Direct,
        _ if place != Where::Origin || node != 0 => Route::Answered,
        _ if exe::may_redirect(number) => Route::Answered,
        _ if nodes > 1 && direct::may_differ(number) => Route::Answered,
        _ => Route::Direct,
    }
}

/// Returns the argument of a call at the origin that is its path, if nothing else makes Nagaya
/// answer it. Such arguments are the first or second.
fn path(number: u64) -> Option<u8> {
    match number as i64 {
        libc::SYS_open | libc::SYS_readlink => Some(0),
        libc::SYS_openat | libc::SYS_readlinkat => Some(1),
        _ => exe::redirected_path(number).map(|at| at as u8),
    }
}

/// Sets the routes of all calls on this node; `nodes` is the number of all.
pub fn set(node: u32, nodes: u32) {
    let components = components();
    COMPONENTS.store(components.unwrap_or(0), Ordering::Relaxed);
    for number in 0..512 {
        let calls = match route(number, node, nodes) {
            Route::Direct => &DIRECT,
            Route::Answered if components.is_some() => &ANSWERED,
            _ => continue,
        };
        calls[number as usize / 64].fetch_or(1 << (number % 64), Ordering::Relaxed);
        if let Some(path) = path(number).filter(|_| node == 0) {
            PATHS[number as usize].store(path + 1, Ordering::Relaxed);
        }
    }
}

/// Returns the components of the extended state to save, or `None` if the processor has no
/// XSAVEC, or more state than there is room for.
fn components() -> Option<u64> {
    const LEAF: u32 = 0xd;
    if !std::is_x86_feature_detected!("xsavec") {
        return None;
    }
    // SAFETY: a processor with XSAVEC, which the system has enabled, has XGETBV.
    let components = unsafe { _xgetbv(0) } & !UNTOUCHED;
    // The compacted format: each component behind the last, some at a multiple of 64.
    let extended = (2..63).filter(|bit| components >> bit & 1 == 1);
    #[allow(unused_unsafe, reason = "unsafe in Rust 1.88, and safe in newer versions")]
    // SAFETY: a processor with XSAVEC has this leaf. CPUID writes registers only.
    let size = |bit| unsafe { __cpuid_count(LEAF, bit) }.eax;
    let bytes: u32 = extended.map(|bit| size(bit).next_multiple_of(64)).sum();
    (HEADER_OFFSET + 64 + bytes as usize + 64 <= STATE_BYTES).then_some(components)
}

/// Returns the result of a call by which a thread has asked for a signal frame, and the call's
/// number. `None`: it is not such a call, but the program's own.
pub fn take_result(slot: &Slot, number: u64) -> Option<(i64, u64)> {
    if number != LEAVE || slot.call_leaves.swap(0, Ordering::Relaxed) == 0 {
        return None;
    }
    Some((slot.call_result.load(Ordering::Relaxed).cast_signed(), slot.last_call().0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_take_the_shortest_route_that_is_right() {
        let route = |number: i64, node, nodes| route(number as u64, node, nodes);
        for (number, one_node, origin, other) in [
            (libc::SYS_getppid, Route::Direct, Route::Direct, Route::Answered),
            (libc::SYS_write, Route::Direct, Route::Direct, Route::Answered),
            // The kernel may hold pages into which it reads.
            (libc::SYS_read, Route::Direct, Route::Answered, Route::Answered),
            // Paths may name the program's own file.
            (libc::SYS_newfstatat, Route::Answered, Route::Answered, Route::Answered),
            (libc::SYS_linkat, Route::Answered, Route::Answered, Route::Answered),
            (libc::SYS_mmap, Route::Answered, Route::Answered, Route::Answered),
            (libc::SYS_futex, Route::Direct, Route::Answered, Route::Answered),
            (libc::SYS_gettid, Route::Direct, Route::Direct, Route::Answered),
            (libc::SYS_sched_yield, Route::Direct, Route::Direct, Route::Direct),
            (libc::SYS_getrandom, Route::Direct, Route::Direct, Route::Answered),
            (libc::SYS_ptrace, Route::Answered, Route::Answered, Route::Answered),
            (libc::SYS_rt_sigreturn, Route::Trapped, Route::Trapped, Route::Trapped),
            (libc::SYS_clone3, Route::Trapped, Route::Trapped, Route::Trapped),
        ] {
            let routes = [route(number, 0, 1), route(number, 0, 2), route(number, 1, 2)];
            assert_eq!(routes, [one_node, origin, other], "call {number}");
        }
    }
}
