//! Catching system calls by syscall user dispatch (Linux 5.11): each call that is not made by a
//! jump ([`jump`]) raises SIGSYS. The handler makes the call or requests it, and stores the result
//! in the frame.

use libc::{c_int, c_void, siginfo_t, ucontext_t};

use crate::call::Call;
use crate::edges::{self, RESTART};
use crate::here::Here;
use crate::signal::{Action, RESTORER};
use crate::slot::Slot;
use crate::{calls, clocks, jump, raw, stubs};

/// `SYS_USER_DISPATCH`: the `si_code` of a caught call.
const BY_DISPATCH: c_int = 2;
/// Bytes of the instruction SYSCALL.
const SYSCALL_BYTES: i64 = 2;
/// Sets the handler of SIGSYS; then threads may [dispatch](crate::kernel_threads::dispatch).
pub fn catch() {
    let action = Action {
        handler: caught as *const () as u64,
        // rt_sigreturn(2) of libc's restorer would be caught.
        flags: (libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK) as u64 | RESTORER,
        restorer: edges::leave_address(),
        mask: 0,
    };
    let arguments = [libc::SIGSYS as u64, std::ptr::from_ref(&action) as u64, 0, 8, 0, 0];
    // SAFETY: the kernel copies `action`; every thread that dispatches has the slot that the
    // handler needs.
    unsafe { raw::call(libc::SYS_rt_sigaction as u64, arguments) };
}

/// Runs on the thread that made the call, on its [handler stack](crate::alternate_stack), and
/// returns to [`edges`]. A SIGSYS without a call comes from the agent: the thread checks its flags.
unsafe extern "C" fn caught(_: c_int, info: *const siginfo_t, frame: *mut c_void) {
    let frame = frame.cast::<ucontext_t>();
    let (here, slot) = (Here::get(), Slot::current());
    // SAFETY: the kernel passes a valid frame and siginfo. The thread has a slot, since only
    // threads with one dispatch.
    unsafe {
        let is_call = (*info).si_code == BY_DISPATCH;
        if clocks::set_back(slot, frame, is_call) {
            return;
        }
        let registers = (*frame).uc_mcontext.gregs;
        let of = |register: c_int| registers[register as usize] as u64;
        let is_program = here.is_program(of(libc::REG_RIP));
        if !(is_call || is_program && hides_a_call(frame)) {
            if is_program {
                return;
            }
            let is_signal = slot.has(Slot::SIGNAL);
            edges::look_again(frame, is_signal);
            jump::look_again(frame, is_signal);
            edges::resume(frame)
        }
        let call = Call {
            // The kernel ignores the upper half, too.
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
        // A signal that came on the way here has blocked all others.
        if let Some(mask) = slot.take_mask() {
            (&raw mut (*frame).uc_sigmask).cast::<u64>().write(mask);
        }
        // See hides_a_call.
        (*frame).uc_mcontext.gregs[libc::REG_RCX as usize] = 0;
        let (result, number) = jump::take_result(slot, call.number).unwrap_or_else(|| {
            slot.set_caught_frame(frame);
            let end = of(libc::REG_RIP);
            // Only reports need it, and code that cannot be read may call, too.
            let end = if here.names { stubs::site_end(end) } else { end };
            slot.record_call(call.number, end);
            let result = calls::answer(here, slot, frame, call);
            slot.set_caught_frame(std::ptr::null_mut());
            (result, of(libc::REG_RAX))
        });
        let registers = &mut (*frame).uc_mcontext.gregs;
        match result {
            RESTART => {
                registers[libc::REG_RAX as usize] = number as i64;
                registers[libc::REG_RIP as usize] -= SYSCALL_BYTES;
            }
            result => registers[libc::REG_RAX as usize] = result,
        }
    }
}

/// Returns true if this SIGSYS of the agent hides a call. The kernel queues no second SIGSYS while
/// one is pending: a thread that makes a call then gets the agent's only. SYSCALL has left the
/// address of the next instruction in RCX, which Nagaya clears whenever it returns to the program.
///
/// # Safety
/// `frame` is the kernel's, and was taken in code of the program.
unsafe fn hides_a_call(frame: *const ucontext_t) -> bool {
    const INSTRUCTION: [u8; 2] = [0x0f, 0x05];
    // SAFETY: the frame is valid by this function's contract. If RCX equals RIP, the thread has
    // just executed the bytes before RIP, so they are mapped.
    unsafe {
        let registers = &(*frame).uc_mcontext.gregs;
        let next = registers[libc::REG_RIP as usize];
        registers[libc::REG_RCX as usize] == next
            && ((next - SYSCALL_BYTES) as *const [u8; 2]).read() == INSTRUCTION
    }
}
