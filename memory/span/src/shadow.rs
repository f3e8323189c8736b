//! A thread's half at the origin while it runs on another node: it makes the other half's
//! system calls, has its mask, and gets its signals, which it hands on.

use std::sync::atomic::Ordering;

use crate::actions;
use crate::desk::{Call, Request, Seat};
use crate::edges::{self, RESTART};
use crate::here::Here;
use crate::signals::{self, ALL, OURS, Signal, block, send};
use crate::{calls, processes, scheduling, threads};

/// What it is asked besides the kernel's calls; a program cannot ask for these.
const FIRST: u64 = 1 << 32;
/// The thread's mask is to be this.
pub const MASK: u64 = FIRST;
/// The signal that was handed on is being handled, with this mask.
pub const TAKEN: u64 = FIRST + 1;
/// The thread has made a fault: what its siginfo begins with.
pub const FAULT: u64 = FIRST + 2;
/// The thread comes home, with the context of its seat.
pub const HOME: u64 = FIRST + 3;
/// The thread has ended with this status.
pub const END: u64 = FIRST + 4;

/// A child that shares memory: flags, and where its IDs go; with the context of its seat.
pub const CHILD: u64 = FIRST + 5;
/// A child that has a copy of it; the same.
pub const FORK: u64 = FIRST + 6;

/// Stands for its other half, which has this mask, until that has ended or comes back. All
/// signals of the program are blocked before.
pub fn stand(here: &Here, seat: &Seat, mask: u64) -> ! {
    // A signal is with the other half, which has not said yet that it handles it.
    let mut told = false;
    scheduling::serves();
    set_mask(seat, mask);
    loop {
        told |= hand_on(here, seat, told);
        let Some(call) = seat.work(!told) else { continue };
        let a = call.arguments;
        let result = match call.number {
            END => {
                block(!0);
                here.desk.ask(seat, Request::Gone(a[0] as i32));
                threads::over()
            }
            HOME => {
                block(!0);
                // SAFETY: the context came for this; nothing of ours is in use.
                unsafe { threads::run(seat) }
            }
            TAKEN => {
                told = false;
                seat.clear(Seat::SIGNAL);
                set_mask(seat, a[0]);
                0
            }
            // It is done anew after the handler.
            _ if seat.has(Seat::SIGNAL) => RESTART,
            MASK => set_mask(seat, a[0]),
            FAULT => fault(seat, a),
            // SAFETY: its other half waits, and its context came with the call.
            CHILD => unsafe { processes::child(seat, call) },
            // SAFETY: as above.
            FORK => unsafe { processes::fork(here, seat, call) },
            _ => make(&call),
        };
        told |= hand_on(here, seat, told);
        here.desk.tell(seat, Request::Done(result));
    }
}

/// Makes a call of the other half; a bad address is EFAULT.
fn make(call: &Call) -> i64 {
    extern "C" fn make(call: usize) -> i64 {
        let call = std::ptr::with_exposed_provenance::<Call>(call);
        // SAFETY: what the other half wants; the pointer is the one below.
        unsafe { calls::for_another(Here::get(), Seat::own(), *call) }
    }
    // SAFETY: a shadow has sat down; calls that use the program's addresses are undone by nothing.
    unsafe { edges::guard(make, std::ptr::from_ref(call).expose_provenance()) }
}

/// Whether the other half has been told of a signal now.
fn hand_on(here: &Here, seat: &Seat, told: bool) -> bool {
    !told && seat.has(Seat::SIGNAL) && here.desk.ask(seat, Request::Signal) == 0
}

fn set_mask(seat: &Seat, mask: u64) -> i64 {
    seat.mask.store(mask, Ordering::Relaxed);
    block(mask & !OURS);
    0
}

/// As the kernel does: what is blocked or ignored ends the program.
fn fault(seat: &Seat, said: [u64; 6]) -> i64 {
    let signal = said[0] as i32;
    let action = actions::of(signal);
    let is_blocked = seat.mask.load(Ordering::Relaxed) & 1 << (signal - 1) != 0;
    if is_blocked || !action.is_handler() {
        actions::reset(signal);
        block(0);
        send(seat.kernel(), signal);
        return 0;
    }
    if action.has(libc::SA_RESETHAND) {
        actions::reset(signal);
    }
    block(ALL);
    let mut info = [0; 16];
    info[..said.len()].copy_from_slice(&said);
    seat.put(&Signal { action, info });
    0
}

/// Of a thread that begins, or goes elsewhere: from now on this one is its shadow.
pub fn of_context(here: &Here, seat: &Seat) -> ! {
    // SAFETY: the context is the thread's, which is not there yet, or is sent.
    let mask = unsafe { (*seat.context()).mask() };
    let _ = signals::block(ALL);
    stand(here, seat, mask)
}

/// Whether the context of the thread's seat goes with a call.
pub fn takes_context(call: &Call) -> bool {
    [libc::SYS_clone as u64, CHILD, FORK].contains(&call.number)
}
