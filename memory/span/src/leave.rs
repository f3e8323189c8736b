//! What a thread does on its way back to the program when its seat's flags say so.

use crate::desk::Seat;
use crate::here::Here;
use crate::{moves, signals};

/// Called with the frame with which the thread goes on; returns if it can go on with that. At
/// least one flag has been cleared then.
pub unsafe extern "C" fn before_leaving(frame: *mut libc::ucontext_t) {
    let (here, seat) = (Here::get(), Seat::own());
    // SAFETY: the frame's thread, which is on its way.
    unsafe {
        if seat.has(Seat::SIGNAL) {
            return signals::deliver(here, seat, frame);
        }
        if let Some(node) = seat.wanted_elsewhere() {
            moves::go(here, seat, frame, node);
        }
    }
}
