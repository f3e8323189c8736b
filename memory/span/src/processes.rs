//! Other processes than the program's own: children that execute something (posix_spawn, vfork).
//! They are made at the origin, share the program's memory until then, and their system calls
//! are their own affair. What needs a copy of all memory (fork) is refused.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::context::Context;
use crate::desk::{Call, Request, Seat};
use crate::here::Here;
use crate::signals::{self, block};
use crate::{raw, scheduling, shadow, threads};

/// The flags with which a child shares memory, and its parent waits.
const SHARES: u64 = (libc::CLONE_VM | libc::CLONE_VFORK) as u64;
const REFUSED: &[u8] = b"nagaya: span: fork: a copy of memory that is on several nodes cannot be \
made; posix_spawn and vfork can start programs\n";

/// What a thread that is stopped with this frame wants: clone's flags and exit signal, where IDs
/// go, and the child's stack, or 0 for the parent's.
///
/// # Safety
/// As for [`calls::answer`](crate::calls::answer).
pub unsafe fn begin(
    here: &Here,
    seat: &Seat,
    frame: *mut libc::ucontext_t,
    flags: u64,
    tids: [u64; 2],
    stack: u64,
) -> i64 {
    // The thread area is the parent's anyway.
    let flags = flags & !(libc::CLONE_SETTLS as u64);
    let call = Call { number: shadow::CHILD, arguments: [flags, tids[0], tids[1], 0, 0, 0] };
    if flags & SHARES != SHARES {
        return match here.node {
            0 => refuse(),
            _ => here.desk.ask(seat, Request::Call(Call { number: shadow::FORK, ..call })),
        };
    }
    // SAFETY: as the caller says, for all of these.
    unsafe {
        if Context::take(seat.context(), frame, threads::thread_area()).is_err() {
            return -i64::from(libc::ENOMEM);
        }
        let registers = &mut (*Context::registers(seat.context())).uc_mcontext.gregs;
        registers[libc::REG_RAX as usize] = 0;
        if stack != 0 {
            registers[libc::REG_RSP as usize] = stack as i64;
        }
        match (here.node, stack) {
            (0, 0) => {
                // The child uses what is below the stack pointer, where we are.
                seat.post(call);
                raw::leave_to(seat.stack_end(), on_one_stack, seat.index as usize)
            }
            (0, _) => child(seat, call),
            _ => here.desk.ask(seat, Request::Call(call)),
        }
    }
}

/// At the origin: the child goes on with the seat's context, and has executed something, or has
/// ended, on return.
///
/// # Safety
/// By the seat's thread, or its shadow.
pub unsafe fn child(seat: &Seat, call: Call) -> i64 {
    let [flags, parent_tid, child_tid, ..] = call.arguments;
    let tids = [parent_tid, child_tid];
    // SAFETY: as the caller says. The parent waits, so the child may have the parent's area.
    unsafe { raw::clone(flags, tids, seat.second_stack_end(), spawned, seat.index as usize) }
}

/// The child, on its parent's area.
extern "C" fn spawned(index: usize) -> ! {
    let seat = Here::get().desk.seat(index as u32);
    scheduling::computes();
    // SAFETY: the context was given to us.
    unsafe { raw::go_on(Context::registers(seat.context())) }
}

/// The parent of a child that has its stack.
extern "C" fn on_one_stack(index: usize) -> ! {
    let seat = Here::get().desk.seat(index as u32);
    let call = seat.work(false).expect("it was posted");
    // SAFETY: its own context, with which both go on, one after the other.
    unsafe {
        let result = child(seat, call);
        block(!0);
        let registers = &mut (*Context::registers(seat.context())).uc_mcontext.gregs;
        registers[libc::REG_RAX as usize] = result;
        signals::go_on(seat, seat.context())
    }
}

/// fork: said once, since the program may not.
pub fn refuse() -> i64 {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        let line = [2, REFUSED.as_ptr() as u64, REFUSED.len() as u64, 0, 0, 0];
        // SAFETY: bytes of ours.
        unsafe { raw::call(libc::SYS_write as u64, line) };
    }
    -i64::from(libc::ENOSYS)
}
