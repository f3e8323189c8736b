//! The program's signal dispositions: a table that threads read without a lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::raw;
use crate::signal::{Action, Actions, SIGNALS};

/// The disposition of a signal. The version is odd while it changes.
struct Entry {
    version: AtomicU32,
    words: [AtomicU64; 4],
}

static ENTRIES: [Entry; SIGNALS] =
    [const { Entry { version: AtomicU32::new(0), words: [const { AtomicU64::new(0) }; 4] } };
        SIGNALS];

impl Entry {
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

/// Returns the dispositions of all signals.
pub fn all() -> Actions {
    std::array::from_fn(|signal| of(signal as i32))
}

/// Returns the disposition of a signal.
pub fn of(signal: i32) -> Action {
    let entry = &ENTRIES[signal as usize];
    loop {
        let before = entry.version.load(Ordering::SeqCst);
        let action = entry.get();
        if before.is_multiple_of(2) && entry.version.load(Ordering::SeqCst) == before {
            return action;
        }
        std::hint::spin_loop();
    }
}

/// Changes the disposition of a signal, while no other thread does. `change` gets the present one,
/// and returns the new one, if any, and the result. All signals of the program are blocked.
pub fn update<R>(signal: i32, change: impl FnOnce(Action) -> (Option<Action>, R)) -> R {
    let entry = &ENTRIES[signal as usize];
    let odd = loop {
        let even = entry.version.load(Ordering::SeqCst) & !1;
        let locked =
            entry.version.compare_exchange(even, even + 1, Ordering::SeqCst, Ordering::SeqCst);
        if locked.is_ok() {
            break even + 1;
        }
        // SAFETY: sched_yield(2) has no arguments.
        unsafe { raw::call(libc::SYS_sched_yield as u64, [0; 6]) };
    };
    let (new, result) = change(entry.get());
    if let Some(new) = new {
        entry.set(new);
    }
    entry.version.store(odd + 1, Ordering::SeqCst);
    result
}

/// Gives the signal its default effect in this process, in the kernel.
pub fn reset(signal: i32) {
    let action = Action::DEFAULT;
    let arguments = [signal as u64, std::ptr::from_ref(&action) as u64, 0, 8, 0, 0];
    // SAFETY: the kernel copies `action`, which names no handler.
    unsafe { raw::call(libc::SYS_rt_sigaction as u64, arguments) };
}
