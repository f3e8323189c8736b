//! rt_sigaction(2), and the kernel's dispositions that stand for the program's.
//!
//! At the origin the kernel ignores a signal or gives it its default effect as the program wants. A
//! signal that the program handles goes to Nagaya's handler, [`signalled`]; the program's handler
//! is in the table of [`dispositions`].

use crate::signal::Action;
use crate::signal::{ALL, Actions, OURS, RESTORER, SIGNALS, block};
use crate::signals::signalled;
use crate::{dispositions, edges, raw};

/// In a forked child: gives the kernel the program's dispositions.
pub fn are_of_kernel(all: &Actions) {
    for (signal, action) in all.iter().enumerate().skip(1) {
        let mut kernel = Action::DEFAULT;
        let arguments = [signal as u64, 0, std::ptr::from_mut(&mut kernel) as u64, 8, 0, 0];
        // SAFETY: asks; and handlers that the program wants.
        unsafe {
            raw::call(libc::SYS_rt_sigaction as u64, arguments);
            if kernel.handler == handler() || signal == libc::SIGSYS as usize {
                let arguments = [signal as u64, std::ptr::from_ref(action) as u64, 0, 8, 0, 0];
                raw::call(libc::SYS_rt_sigaction as u64, arguments);
            }
        }
    }
}

/// Makes rt_sigaction(2) at the origin.
///
/// # Safety
/// Pointers are the program's; by a thread of the origin.
pub unsafe fn set(a: [u64; 6]) -> i64 {
    let (signal, new, old) = (a[0], a[1] as *const Action, a[2] as *mut Action);
    if a[3] != 8 || signal == 0 || signal as usize >= SIGNALS {
        return -i64::from(libc::EINVAL);
    }
    // SAFETY: by this function's contract `new` is null or the program's; a bad address is a fault
    // in a call: EFAULT. Nothing is locked yet.
    let wanted = (!new.is_null()).then(|| unsafe { new.read_unaligned() });
    // A handler that interrupts this thread would block others that wait for the table.
    let mask = block(ALL);
    let (result, before) = dispositions::update(signal as i32, |present| {
        // The kernel keeps Nagaya's handler of SIGSYS.
        if signal == libc::SIGSYS as u64 {
            return (wanted, (0, present));
        }
        let mut before = Action::DEFAULT;
        let kernel = wanted.map(|wanted| for_kernel(signal as i32, wanted));
        let kernel = kernel.as_ref().map_or(0, |kernel| std::ptr::from_ref(kernel) as u64);
        let arguments = [signal, kernel, std::ptr::from_mut(&mut before) as u64, 8, 0, 0];
        // SAFETY: `kernel` and `before` live on this stack until the call returns.
        let result = unsafe { raw::call(libc::SYS_rt_sigaction as u64, arguments) };
        if before.handler == handler() {
            before = present;
        }
        (wanted.filter(|_| result == 0), (result, before))
    });
    block(mask);
    if result == 0 && !old.is_null() {
        // SAFETY: as for `new`.
        unsafe { old.write_unaligned(before) };
    }
    result
}

fn handler() -> u64 {
    signalled as *const () as u64
}

/// Signals that Nagaya always handles: an address in a system call's arguments may be bad, which
/// is EFAULT.
const FAULTS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// At the origin, before the program begins: [`FAULTS`] are handled.
pub fn handle_faults() {
    for signal in FAULTS {
        let action = for_kernel(signal, Action::DEFAULT);
        let arguments = [signal as u64, std::ptr::from_ref(&action) as u64, 0, 8, 0, 0];
        // SAFETY: the kernel copies `action`. The handler runs on threads that have a slot; faults
        // of others end the process in any case.
        unsafe { raw::call(libc::SYS_rt_sigaction as u64, arguments) };
    }
}

/// Returns the kernel's disposition that stands for the program's.
fn for_kernel(signal: i32, wanted: Action) -> Action {
    // With SA_RESTART, a signal that the program ignores interrupts no call.
    let flags = if wanted.is_handler() { wanted.flags } else { libc::SA_RESTART as u64 };
    if !wanted.is_handler() && !FAULTS.contains(&signal) {
        return Action { mask: wanted.mask & !OURS, ..wanted };
    }
    Action {
        handler: handler(),
        flags: flags | (libc::SA_SIGINFO | libc::SA_ONSTACK) as u64 | RESTORER,
        restorer: edges::leave_address(),
        // The mask of the program's handler is set when the handler is entered.
        mask: ALL,
    }
}

/// On a node that is not the origin: handles faults and ignores other signals, which reach the
/// program by the origin.
pub fn elsewhere() {
    for signal in 1..SIGNALS as i32 {
        let handler = match signal {
            libc::SIGKILL | libc::SIGSTOP | libc::SIGSYS | libc::SIGCHLD => continue,
            libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP => handler(),
            _ => libc::SIG_IGN as u64,
        };
        let flags = (libc::SA_SIGINFO | libc::SA_ONSTACK) as u64 | RESTORER;
        let action = Action { handler, flags, restorer: edges::leave_address(), mask: ALL };
        let arguments = [signal as u64, std::ptr::from_ref(&action) as u64, 0, 8, 0, 0];
        // SAFETY: the kernel copies `action`. The handler needs a slot: every thread of the program
        // has one, and the agent makes no faults.
        unsafe { raw::call(libc::SYS_rt_sigaction as u64, arguments) };
    }
}
