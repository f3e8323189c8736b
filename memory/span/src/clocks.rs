//! The origin's clocks, read without a system call.
//!
//! The kernel's vDSO has another address on each node, and may be another version. So the program
//! gets a vDSO of Nagaya (`vdso/`) in its segment, whose functions continue here. They call the
//! kernel's vDSO and add the offset of the origin's clocks, which is 0 on the same machine.
//!
//! A thread that is stopped here or in the kernel's vDSO cannot resume there on another node, nor
//! run a handler. So it is *set back* to the start of the function, with the registers that it had
//! then. It repeats everything that it has changed. To all other code it was stopped in the
//! program.

use std::arch::global_asm;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use proc::maps;

use crate::call::Call;
use crate::clock_offsets::{self, AHEAD, CLOCKS, SECOND};
use crate::here::Here;
use crate::request::Request;
use crate::slot::Slot;
use crate::{edges, processors, raw};

/// The program's vDSO: an ELF image of one page, to read and execute.
pub const VDSO: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/vdso.so"));

/// The offset of the system call in each function of the vDSO (`vdso/vdso.S`).
const CALL_OFFSET: i64 = 32;
const _: () = assert!(offset_of!(Slot, clock_entry) == 8, "as vdso/vdso.S has it");

/// The functions of the kernel's vDSO that are used.
const NAMES: [&std::ffi::CStr; 3] =
    [c"__vdso_clock_gettime", c"__vdso_clock_getres", c"__vdso_getcpu"];
/// Their addresses, or 0.
static FUNCTIONS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];
/// The addresses of the kernel's vDSO.
static KERNEL: OnceLock<Range<u64>> = OnceLock::new();

global_asm!(
    // RAX: the function of the program's vDSO; ECX: its system call.
    ".hidden nagaya_span_clocks",
    ".globl nagaya_span_clocks",
    "nagaya_span_clocks:",
    "mov gs:[{began}], rax",
    "mov gs:[{began} + 8], rsp",
    "mov gs:[{began} + 16], rdi",
    "mov gs:[{began} + 24], rsi",
    "mov gs:[{began} + 32], rbx",
    "mov gs:[{began} + 40], rbp",
    "mov gs:[{began} + 48], r12",
    "mov gs:[{began} + 56], r13",
    "mov gs:[{began} + 64], r14",
    "mov gs:[{began} + 72], r15",
    "nagaya_span_clocks_begun:",
    "cmp ecx, {clock_gettime}",
    "je 2f",
    "cmp ecx, {gettimeofday}",
    "je 3f",
    "cmp ecx, {time}",
    "je 4f",
    "cmp ecx, {getcpu}",
    "je 7f",
    // clock_getres.
    "mov r11, [rip + {functions} + 8]",
    "test r11, r11",
    "jz nagaya_span_clocks_call",
    "jmp r11",
    // clock_gettime. Clocks of processes and threads need a system call in any case.
    "2:",
    "lea edx, [rdi - {process_cputime}]",
    "cmp edx, 1",
    "jbe nagaya_span_clocks_call",
    "call 5f",
    "ret",
    // gettimeofday. The kernel answers if a time zone is requested.
    "3:",
    "test rsi, rsi",
    "jnz nagaya_span_clocks_call",
    "test rdi, rdi",
    "jz nagaya_span_clocks_call",
    "mov rsi, rdi",
    "xor edi, edi",
    "call 5f",
    "mov rdi, gs:[{began} + 16]",
    // Divided by 1000: exact for 32 bits.
    "imul rax, [rdi + 8], 274877907",
    "shr rax, 38",
    "mov [rdi + 8], rax",
    "xor eax, eax",
    "ret",
    // time.
    "4:",
    "sub rsp, 16",
    "mov edi, {realtime_coarse}",
    "mov rsi, rsp",
    "call 5f",
    "pop rax",
    "add rsp, 8",
    "mov rdi, gs:[{began} + 16]",
    "test rdi, rdi",
    "jz 9f",
    "mov [rdi], rax",
    "ret",
    // getcpu: the processor's number as the program sees it.
    "7:",
    "mov r11, [rip + {functions} + 16]",
    "test r11, r11",
    "jz nagaya_span_clocks_call",
    "sub rsp, 8",
    "call r11",
    "add rsp, 8",
    "mov rdi, gs:[{began} + 16]",
    "test rdi, rdi",
    "jz 9f",
    "mov ecx, [rdi]",
    "cmp ecx, {numbers}",
    "jae 9f",
    "lea r11, [rip + {names}]",
    "movzx ecx, word ptr [r11 + rcx * 2]",
    "mov [rdi], ecx",
    "ret",
    // Stores the clock EDI where RSI points.
    "5:",
    "mov r11, [rip + {functions}]",
    "test r11, r11",
    "jz nagaya_span_clocks_call",
    "push rdi",
    "push rsi",
    "call r11",
    "pop rsi",
    "pop rdi",
    "test eax, eax",
    "jnz 9f",
    "cmp edi, {clocks}",
    "jae 9f",
    "shl edi, 4",
    "lea r11, [rip + {ahead}]",
    "mov rcx, [r11 + rdi]",
    "mov rdx, [r11 + rdi + 8]",
    "mov r8, rcx",
    "or r8, rdx",
    "jz 9f",
    "add rdx, [rsi + 8]",
    "cmp rdx, {second}",
    "jb 6f",
    "sub rdx, {second}",
    "inc rcx",
    "6:",
    "mov [rsi + 8], rdx",
    "add [rsi], rcx",
    "9:",
    "ret",
    "nagaya_span_clocks_call:",
    "mov rax, gs:[{began}]",
    "mov rsp, gs:[{began} + 8]",
    "mov rdi, gs:[{began} + 16]",
    "mov rsi, gs:[{began} + 24]",
    "add rax, {call_offset}",
    "jmp rax",
    "nagaya_span_clocks_end:",
    // The same for a thread without a slot.
    ".hidden nagaya_span_clocks_alone",
    ".globl nagaya_span_clocks_alone",
    "nagaya_span_clocks_alone:",
    "add rax, {call_offset}",
    "jmp rax",
    began = const offset_of!(Slot, clock_registers),
    clock_gettime = const libc::SYS_clock_gettime,
    gettimeofday = const libc::SYS_gettimeofday,
    time = const libc::SYS_time,
    getcpu = const libc::SYS_getcpu,
    numbers = const processors::NUMBERS,
    names = sym processors::NAMES,
    functions = sym FUNCTIONS,
    process_cputime = const libc::CLOCK_PROCESS_CPUTIME_ID,
    realtime_coarse = const libc::CLOCK_REALTIME_COARSE,
    clocks = const CLOCKS,
    ahead = sym AHEAD,
    second = const SECOND,
    call_offset = const CALL_OFFSET,
);

unsafe extern "C" {
    fn nagaya_span_clocks();
    fn nagaya_span_clocks_alone();
    static nagaya_span_clocks_begun: u8;
    static nagaya_span_clocks_end: u8;
}

/// The registers of [`ClockRegisters`](crate::slot::ClockRegisters), in its order.
const REGISTERS: [libc::c_int; 10] = [
    libc::REG_RAX,
    libc::REG_RSP,
    libc::REG_RDI,
    libc::REG_RSI,
    libc::REG_RBX,
    libc::REG_RBP,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// Returns the address at which functions of the program's vDSO continue.
pub fn entry() -> u64 {
    nagaya_span_clocks as *const () as u64
}

/// Returns that address for a forked child, which makes system calls instead.
pub fn entry_alone() -> u64 {
    nagaya_span_clocks_alone as *const () as u64
}

/// Sets back a thread that was stopped here or in the kernel's vDSO: to the start of the function
/// or, if `by_call`, to its system call. Returns false if it was stopped elsewhere.
///
/// # Safety
/// `frame` is the kernel's, of the slot's thread.
pub unsafe fn set_back(slot: &Slot, frame: *mut libc::ucontext_t, by_call: bool) -> bool {
    let at = |label: &u8| std::ptr::from_ref(label) as u64;
    // SAFETY: the labels are defined above; the frame is valid by this function's contract.
    unsafe {
        let registers = &mut (*frame).uc_mcontext.gregs;
        let pc = registers[libc::REG_RIP as usize] as u64;
        let is_ours = (entry()..at(&nagaya_span_clocks_end)).contains(&pc);
        if !is_ours && !KERNEL.get().is_some_and(|kernel| kernel.contains(&pc)) {
            return false;
        }
        if !(entry()..at(&nagaya_span_clocks_begun)).contains(&pc) {
            for (register, value) in REGISTERS.into_iter().zip(*slot.clock_registers.get()) {
                registers[register as usize] = value as i64;
            }
        }
        let began = registers[libc::REG_RAX as usize];
        registers[libc::REG_RIP as usize] = began + if by_call { CALL_OFFSET } else { 0 };
    }
    true
}

/// Finds the kernel's vDSO. Without one, reading a clock is a system call.
pub fn find() {
    let Some(kernel) = maps::own().unwrap_or_default().into_iter().find(|it| it.path == "[vdso]")
    else {
        return;
    };
    let kernel = kernel.addresses;
    for (function, name) in FUNCTIONS.iter().zip(NAMES) {
        // SAFETY: with RTLD_NOLOAD dlopen(3) runs no code; the kernel never unmaps its image.
        let address = unsafe {
            let flags = libc::RTLD_NOLOAD | libc::RTLD_LAZY;
            let image = libc::dlopen(c"linux-vdso.so.1".as_ptr(), flags);
            if image.is_null() { 0 } else { libc::dlsym(image, name.as_ptr()) as u64 }
        };
        let is_there = kernel.contains(&address);
        function.store(if is_there { address } else { 0 }, Ordering::Relaxed);
    }
    let _ = KERNEL.set(kernel);
}

/// Returns the clock of a thread's CPU time, as pthread_getcpuclockid(3) does.
fn cpu_clock(thread: i32) -> libc::clockid_t {
    const SCHEDULED: i32 = 2;
    const OF_THREAD: i32 = 4;
    !thread << 3 | OF_THREAD | SCHEDULED
}

/// Makes a system call about clocks where the thread runs.
///
/// # Safety
/// As for [`calls::answer`](crate::calls::answer).
pub unsafe fn call(here: &Here, slot: &Slot, call: Call) -> i64 {
    let Call { number, arguments: mut a } = call;
    // SAFETY: arguments are the program's: a bad address is a fault in a call, which
    // `signals::bad_address` turns into EFAULT.
    unsafe {
        match number as i64 {
            libc::SYS_clock_gettime
                if a[0] as i32 == cpu_clock(slot.tid.load(Ordering::Relaxed)) =>
            {
                a[0] = libc::CLOCK_THREAD_CPUTIME_ID as u64;
                raw::call(number, a)
            }
            // The origin has the clocks of other threads and processes.
            libc::SYS_clock_gettime if (a[0] as i32) < 0 && here.node != 0 => {
                here.table.request(slot, Request::Call(call))
            }
            libc::SYS_clock_gettime => {
                let result = raw::call(number, a);
                let (ahead, now) =
                    (clock_offsets::ahead_of(a[0] as i32), a[1] as *mut libc::timespec);
                if result == 0 && (ahead.tv_sec, ahead.tv_nsec) != (0, 0) {
                    now.write_unaligned(clock_offsets::sum(now.read_unaligned(), ahead));
                }
                result
            }
            libc::SYS_gettimeofday => {
                let now = clock_offsets::now(libc::CLOCK_REALTIME);
                if a[0] != 0 {
                    let now = libc::timeval { tv_sec: now.tv_sec, tv_usec: now.tv_nsec / 1000 };
                    (a[0] as *mut libc::timeval).write_unaligned(now);
                }
                raw::call(number, [0, a[1], 0, 0, 0, 0])
            }
            libc::SYS_time => {
                let now = clock_offsets::now(libc::CLOCK_REALTIME_COARSE).tv_sec;
                if a[0] != 0 {
                    (a[0] as *mut i64).write_unaligned(now);
                }
                now
            }
            libc::SYS_clock_nanosleep if a[1] as i32 & libc::TIMER_ABSTIME != 0 && a[2] != 0 => {
                let until = (a[2] as *const libc::timespec).read_unaligned();
                let here = clock_offsets::difference(until, clock_offsets::ahead_of(a[0] as i32));
                let is_time = (0..SECOND).contains(&until.tv_nsec) && until.tv_sec >= 0;
                // The kernel refuses negative times; this one has passed.
                let here = match is_time && here.tv_sec < 0 {
                    true => libc::timespec { tv_sec: 0, tv_nsec: 0 },
                    false if is_time => here,
                    false => until,
                };
                edges::call(number, [a[0], a[1], std::ptr::from_ref(&here) as u64, a[3], 0, 0])
            }
            _ => edges::call(number, a),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_vdso_is_found() {
        find();
        let kernel = KERNEL.get().expect("there is one");
        for function in &FUNCTIONS {
            assert!(kernel.contains(&function.load(Ordering::Relaxed)));
        }
    }
}
