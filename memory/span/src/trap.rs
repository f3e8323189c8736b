//! System calls, caught: by syscall user dispatch (Linux 5.11) each is a signal, whose handler
//! makes or asks for it and puts the result into the frame.

use libc::{c_int, c_void, siginfo_t, ucontext_t};

use crate::calls;
use crate::desk::{Call, Seat};
use crate::here::Here;
use crate::raw;

/// `SYS_USER_DISPATCH`.
const BY_DISPATCH: c_int = 2;
/// `SA_RESTORER`: libc's own would be caught.
const RESTORER: u64 = 0x0400_0000;

std::arch::global_asm!(
    ".hidden nagaya_span_restore",
    ".globl nagaya_span_restore",
    "nagaya_span_restore:",
    "mov eax, 15",
    "syscall",
    "ud2",
);

unsafe extern "C" {
    fn nagaya_span_restore();
}

/// The kernel's `struct sigaction`.
#[repr(C)]
struct Action {
    handler: u64,
    flags: u64,
    restorer: u64,
    mask: u64,
}

/// From now on threads may [dispatch](crate::threads::dispatch).
pub fn catch() {
    let action = Action {
        handler: caught as *const () as u64,
        flags: (libc::SA_SIGINFO | libc::SA_NODEFER) as u64 | RESTORER,
        restorer: nagaya_span_restore as *const () as u64,
        mask: 0,
    };
    let arguments = [libc::SIGSYS as u64, std::ptr::from_ref(&action) as u64, 0, 8, 0, 0];
    // SAFETY: a handler that may run on any thread that dispatches.
    unsafe { raw::call(libc::SYS_rt_sigaction as u64, arguments) };
}

/// On the thread that made the call, on its stack.
unsafe extern "C" fn caught(_: c_int, info: *const siginfo_t, frame: *mut c_void) {
    let frame = frame.cast::<ucontext_t>();
    // SAFETY: the kernel's frame; the thread has a seat, since it dispatches.
    unsafe {
        if (*info).si_code != BY_DISPATCH {
            return;
        }
        let registers = &(*frame).uc_mcontext.gregs;
        let of = |register: c_int| registers[register as usize] as u64;
        let call = Call {
            number: of(libc::REG_RAX),
            arguments: [
                of(libc::REG_RDI),
                of(libc::REG_RSI),
                of(libc::REG_RDX),
                of(libc::REG_R10),
                of(libc::REG_R8),
                of(libc::REG_R9),
            ],
        };
        let result = calls::answer(Here::get(), Seat::own(), frame, call);
        (*frame).uc_mcontext.gregs[libc::REG_RAX as usize] = result;
    }
}
