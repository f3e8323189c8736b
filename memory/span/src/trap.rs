//! System calls, caught: by syscall user dispatch (Linux 5.11) each is a signal, whose handler
//! makes or asks for it and puts the result into the frame.

use libc::{c_int, c_void, siginfo_t, ucontext_t};

use crate::actions::{Action, RESTORER};
use crate::desk::{Call, Seat};
use crate::edges::{self, RESTART};
use crate::here::Here;
use crate::{calls, clocks, raw};

/// `SYS_USER_DISPATCH`.
const BY_DISPATCH: c_int = 2;
/// Of the instruction.
const SYSCALL_BYTES: i64 = 2;
/// From now on threads may [dispatch](crate::threads::dispatch).
pub fn catch() {
    let action = Action {
        handler: caught as *const () as u64,
        // libc's own way back would be caught.
        flags: (libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK) as u64 | RESTORER,
        restorer: edges::leave_address(),
        mask: 0,
    };
    let arguments = [libc::SIGSYS as u64, std::ptr::from_ref(&action) as u64, 0, 8, 0, 0];
    // SAFETY: a handler that may run on any thread that dispatches.
    unsafe { raw::call(libc::SYS_rt_sigaction as u64, arguments) };
}

/// Runs on the thread that made the call, on its [stack for handlers](crate::alternate_stack), and
/// returns to [`edges`]. Without a call it is a poke of the agent's: the thread checks its flags.
unsafe extern "C" fn caught(_: c_int, info: *const siginfo_t, frame: *mut c_void) {
    let frame = frame.cast::<ucontext_t>();
    let (here, seat) = (Here::get(), Seat::own());
    // SAFETY: the kernel's frame; the thread has a seat, since it dispatches.
    unsafe {
        let is_call = (*info).si_code == BY_DISPATCH;
        if clocks::set_back(seat, frame, is_call) {
            return;
        }
        let registers = (*frame).uc_mcontext.gregs;
        let of = |register: c_int| registers[register as usize] as u64;
        let is_program = here.is_program(of(libc::REG_RIP));
        if !(is_call || is_program && hides_a_call(frame)) {
            if is_program {
                return;
            }
            edges::look_again(frame, seat.has(Seat::SIGNAL));
            edges::resume(frame)
        }
        let call = Call {
            // As the kernel has it: the upper half means nothing.
            number: of(libc::REG_RAX) as u32 as u64,
            arguments: [
                of(libc::REG_RDI),
                of(libc::REG_RSI),
                of(libc::REG_RDX),
                of(libc::REG_R10),
                of(libc::REG_R8),
                of(libc::REG_R9),
            ],
        };
        // See hides_a_call.
        (*frame).uc_mcontext.gregs[libc::REG_RCX as usize] = 0;
        seat.answers(frame);
        seat.calls(call.number, of(libc::REG_RIP));
        let result = calls::answer(here, seat, frame, call);
        seat.answers(std::ptr::null_mut());
        let registers = &mut (*frame).uc_mcontext.gregs;
        match result {
            RESTART => registers[libc::REG_RIP as usize] -= SYSCALL_BYTES,
            result => registers[libc::REG_RAX as usize] = result,
        }
    }
}

/// Whether this poke hides a call. Of a signal that is pending already the kernel keeps no second
/// one: a thread that makes a call before it has noticed that it is poked is told of the poke
/// only. The instruction has left its successor's address in RCX then, which no thread has on its
/// way back from us.
///
/// # Safety
/// The kernel's frame, of the program's code.
unsafe fn hides_a_call(frame: *const ucontext_t) -> bool {
    const INSTRUCTION: [u8; 2] = [0x0f, 0x05];
    // SAFETY: as the caller says; who has this address there has just executed what is before it.
    unsafe {
        let registers = &(*frame).uc_mcontext.gregs;
        let next = registers[libc::REG_RIP as usize];
        registers[libc::REG_RCX as usize] == next
            && ((next - SYSCALL_BYTES) as *const [u8; 2]).read() == INSTRUCTION
    }
}
