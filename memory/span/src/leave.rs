//! Work of a thread on its way back to the program, when flags of its slot are set.

use crate::here::Here;
use crate::slot::Slot;
use crate::{moves, signals};

/// Delivers the slot's signal or moves the thread, which is about to resume with `frame`. If it
/// returns, at least one flag has been cleared, and the thread can resume.
pub unsafe extern "C" fn before_leaving(frame: *mut libc::ucontext_t) {
    let (here, slot) = (Here::get(), Slot::current());
    // SAFETY: `edges` calls this on the slot's thread with the frame with which it resumes.
    unsafe {
        if slot.has(Slot::SIGNAL) {
            return signals::deliver(here, slot, frame);
        }
        if let Some(node) = slot.take_destination() {
            moves::go(here, slot, frame, node);
        }
    }
}
