//! What the program does about signals: its handlers, behind ours.
//!
//! The origin's kernel knows of each signal whether it is ignored, has its default effect, or
//! is handled, and then by us: [`signalled`]. Which handler of the
//! program's that stands for is kept here.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::signals::{ALL, OURS, block, signalled};
use crate::{edges, raw};

/// `SA_RESTORER`.
pub const RESTORER: u64 = 0x0400_0000;
/// Signals that there are, and one that there is not.
const SIGNALS: usize = 65;

/// The kernel's `struct sigaction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Action {
    /// Where, or `SIG_DFL` or `SIG_IGN`.
    pub handler: u64,
    /// `SA_` flags.
    pub flags: u64,
    /// Where it returns to.
    pub restorer: u64,
    /// What else is blocked meanwhile.
    pub mask: u64,
}

impl Action {
    /// What is said of no signal, at first.
    pub const NO_SIGNALS: Actions = [Self::DEFAULT; SIGNALS];
    /// The default effect.
    pub const DEFAULT: Self =
        Self { handler: libc::SIG_DFL as u64, flags: 0, restorer: 0, mask: 0 };

    /// Whether the program has a handler.
    pub fn is_handler(&self) -> bool {
        self.handler != libc::SIG_DFL as u64 && self.handler != libc::SIG_IGN as u64
    }

    /// Whether this flag is set.
    pub fn has(&self, flag: i32) -> bool {
        self.flags & flag as u64 != 0
    }
}

/// A signal's; the version is odd while it changes.
struct Slot {
    version: AtomicU32,
    words: [AtomicU64; 4],
}

static SLOTS: [Slot; SIGNALS] =
    [const { Slot { version: AtomicU32::new(0), words: [const { AtomicU64::new(0) }; 4] } };
        SIGNALS];

impl Slot {
    fn get(&self) -> Action {
        let [handler, flags, restorer, mask] =
            self.words.each_ref().map(|word| word.load(Ordering::SeqCst));
        Action { handler, flags, restorer, mask }
    }

    fn set(&self, action: Action) {
        let words = [action.handler, action.flags, action.restorer, action.mask];
        for (to, word) in self.words.iter().zip(words) {
            to.store(word, Ordering::SeqCst);
        }
    }
}

/// What the program has said of all signals, by their numbers.
pub type Actions = [Action; SIGNALS];

/// All that.
pub fn all() -> Actions {
    std::array::from_fn(|signal| of(signal as i32))
}

/// To a child that is a process of its own: the kernel is told what the program has said.
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

/// What the program last said of this signal.
pub fn of(signal: i32) -> Action {
    let slot = &SLOTS[signal as usize];
    loop {
        let before = slot.version.load(Ordering::SeqCst);
        let action = slot.get();
        if before.is_multiple_of(2) && slot.version.load(Ordering::SeqCst) == before {
            return action;
        }
        std::hint::spin_loop();
    }
}

/// rt_sigaction at the origin.
///
/// # Safety
/// Pointers are the program's; by a thread of the origin.
pub unsafe fn set(a: [u64; 6]) -> i64 {
    let (signal, new, old) = (a[0], a[1] as *const Action, a[2] as *mut Action);
    if a[3] != 8 || signal == 0 || signal as usize >= SIGNALS {
        return -i64::from(libc::EINVAL);
    }
    // SAFETY: as the caller says; what the kernel gets is ours.
    unsafe {
        let wanted = (!new.is_null()).then(|| new.read_unaligned());
        let slot = &SLOTS[signal as usize];
        // Who is interrupted here would keep others waiting.
        let mask = block(ALL);
        let version = loop {
            let version = slot.version.load(Ordering::SeqCst) & !1;
            let next = version + 1;
            let taken =
                slot.version.compare_exchange(version, next, Ordering::SeqCst, Ordering::SeqCst);
            if taken.is_ok() {
                break next;
            }
            raw::call(libc::SYS_sched_yield as u64, [0; 6]);
        };
        let mut before = Action::DEFAULT;
        let kernel = wanted.map(|wanted| for_kernel(signal as i32, wanted));
        let kernel = kernel.as_ref().map_or(0, |kernel| std::ptr::from_ref(kernel) as u64);
        let arguments = [signal, kernel, std::ptr::from_mut(&mut before) as u64, 8, 0, 0];
        // The kernel keeps ours for SIGSYS.
        let is_ours = signal == libc::SIGSYS as u64;
        let result = if is_ours { 0 } else { raw::call(libc::SYS_rt_sigaction as u64, arguments) };
        if is_ours || before.handler == handler() {
            before = slot.get();
        }
        if result == 0
            && let Some(wanted) = wanted
        {
            slot.set(wanted);
        }
        slot.version.store(version + 1, Ordering::SeqCst);
        block(mask);
        if result == 0 && !old.is_null() {
            old.write_unaligned(before);
        }
        result
    }
}

/// From now on this signal has its default effect, in this process.
pub fn reset(signal: i32) {
    let action = Action::DEFAULT;
    let arguments = [signal as u64, std::ptr::from_ref(&action) as u64, 0, 8, 0, 0];
    // SAFETY: no handler.
    unsafe { raw::call(libc::SYS_rt_sigaction as u64, arguments) };
}

fn handler() -> u64 {
    signalled as *const () as u64
}

/// Signals that Nagaya handles whatever the program wants: an address in a system call's arguments
/// may be bad, which is EFAULT.
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

/// What the kernel is told for it.
fn for_kernel(signal: i32, wanted: Action) -> Action {
    // A signal that the program ignores interrupts no call.
    let flags = if wanted.is_handler() { wanted.flags } else { libc::SA_RESTART as u64 };
    if !wanted.is_handler() && !FAULTS.contains(&signal) {
        return Action { mask: wanted.mask & !OURS, ..wanted };
    }
    Action {
        handler: handler(),
        flags: flags | (libc::SA_SIGINFO | libc::SA_ONSTACK) as u64 | RESTORER,
        restorer: edges::leave_address(),
        // What is blocked in the program's handler is said as it is entered.
        mask: ALL,
    }
}

/// On a node that is not the origin: faults are the program's affair, all else comes by the
/// origin, so what comes from outside does nothing.
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
        // SAFETY: a handler that may run on any thread that has sat down; others have no faults.
        unsafe { raw::call(libc::SYS_rt_sigaction as u64, arguments) };
    }
}
