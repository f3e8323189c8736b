//! Signals as the kernel describes them: dispositions (`struct sigaction`), siginfo and masks; and
//! the calls that block and send signals without libc.

use libc::c_int;

use crate::raw;

/// The mask of SIGSYS, which Nagaya uses.
pub const OURS: u64 = 1 << (libc::SIGSYS - 1);
/// The mask of all signals that the program may use.
pub const ALL: u64 = !OURS;
/// `SA_RESTORER`.
pub const RESTORER: u64 = 0x0400_0000;
/// The number of signals, and one more: signal 0 does not exist.
pub const SIGNALS: usize = 65;

/// The kernel's `struct sigaction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Action {
    /// The handler's address, or `SIG_DFL` or `SIG_IGN`.
    pub handler: u64,
    /// `SA_` flags.
    pub flags: u64,
    /// The address to which the handler returns.
    pub restorer: u64,
    /// The signals that are blocked in the handler.
    pub mask: u64,
}

impl Action {
    /// The default for all signals.
    pub const NO_SIGNALS: Actions = [Self::DEFAULT; SIGNALS];
    /// The default effect.
    pub const DEFAULT: Self =
        Self { handler: libc::SIG_DFL as u64, flags: 0, restorer: 0, mask: 0 };

    /// Returns true if it names a handler.
    pub fn is_handler(&self) -> bool {
        self.handler != libc::SIG_DFL as u64 && self.handler != libc::SIG_IGN as u64
    }

    /// Returns true if the flag is set.
    pub fn has(&self, flag: i32) -> bool {
        self.flags & flag as u64 != 0
    }
}

/// The dispositions of all signals, by number.
pub type Actions = [Action; SIGNALS];

/// A signal under way to a thread.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Signal {
    /// The disposition when it was sent.
    pub action: Action,
    /// The kernel's `siginfo`, which begins with the signal's number.
    pub info: [u64; 16],
}

impl Signal {
    /// No signal.
    pub const NONE: Self = Self { action: Action::DEFAULT, info: [0; 16] };

    /// Returns its number.
    pub fn number(&self) -> i32 {
        self.info[0] as i32
    }

    /// Encodes it for another node.
    pub fn bytes(&self) -> Vec<u8> {
        let Action { handler, flags, restorer, mask } = self.action;
        let words = [handler, flags, restorer, mask].into_iter().chain(self.info);
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// Decodes the bytes that another node sent, if they are a signal.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let [handler, flags, restorer, mask, info @ ..] = words else { return None };
        let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        let action = Action {
            handler: word(handler),
            flags: word(flags),
            restorer: word(restorer),
            mask: word(mask),
        };
        let info: Vec<u64> = info.iter().map(word).collect();
        let signal = Self { action, info: info.try_into().ok()? };
        (rest.is_empty() && (1..=64).contains(&signal.number())).then_some(signal)
    }
}

/// Sets this thread's signal mask. Returns the previous one.
pub fn block(mask: u64) -> u64 {
    let mut before = 0u64;
    let (new, old) = (std::ptr::from_ref(&mask) as u64, std::ptr::from_mut(&mut before) as u64);
    let arguments = [libc::SIG_SETMASK as u64, new, old, 8, 0, 0];
    // SAFETY: both masks are on this stack and live until the call returns.
    unsafe { raw::call(libc::SYS_rt_sigprocmask as u64, arguments) };
    before
}

/// Sends a signal to a thread of this process.
pub fn send(thread: i32, signal: c_int) {
    // SAFETY: neither call takes a pointer.
    unsafe {
        let process = raw::call(libc::SYS_getpid as u64, [0; 6]) as u64;
        let arguments = [process, thread as u64, signal as u64, 0, 0, 0];
        raw::call(libc::SYS_tgkill as u64, arguments);
    }
}
