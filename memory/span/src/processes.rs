//! Other processes than the program's own. They are made at the origin, and their system calls are
//! their own affair.
//!
//! A child that executes something at once (posix_spawn, vfork) shares the program's memory until
//! then. One that is forked has a copy of all of it, the [`Snapshot`], and is from then on a
//! process like any other: nothing of ours is done by it any more.

use crate::actions;
use crate::context::Context;
use crate::desk::{Call, Request, Seat};
use crate::here::Here;
use crate::signals::block;
use crate::snapshot::{Child, Snapshot};
use crate::{descriptors, limits, raw, scheduling, shadow, threads};

/// The flags with which a child shares memory, and its parent waits.
const SHARES: u64 = (libc::CLONE_VM | libc::CLONE_VFORK) as u64;

/// What a thread that is stopped with this frame wants: clone's flags and exit signal, where IDs
/// go, the child's stack, or 0 for the parent's, and the child's thread area, if it has a copy.
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
    area: u64,
) -> i64 {
    // The kernel's clone has so many.
    if flags > u32::MAX.into() {
        return -i64::from(libc::EINVAL);
    }
    let number = match flags & SHARES {
        SHARES => shadow::CHILD,
        shares if shares & libc::CLONE_VM as u64 == 0 => shadow::FORK,
        // It would go on beside its parent, and wait for it by calls that nobody answers.
        _ => return -i64::from(libc::ENOSYS),
    };
    // We set it, if it is not the parent's anyway.
    let flags = flags & !(libc::CLONE_SETTLS as u64);
    let call = Call { number, arguments: [flags, tids[0], tids[1], 0, 0, 0] };
    // SAFETY: as the caller says, for all of these.
    unsafe {
        if Context::take(seat, frame, area).is_err() {
            return -i64::from(libc::ENOMEM);
        }
        let registers = &mut (*Context::registers(seat.context())).uc_mcontext.gregs;
        registers[libc::REG_RAX as usize] = 0;
        if stack != 0 {
            registers[libc::REG_RSP as usize] = stack as i64;
        }
        match (here.node, number) {
            (0, shadow::FORK) => fork(here, seat, call),
            (0, _) => child(seat, call),
            _ => here.desk.ask(seat, Request::Call(call)),
        }
    }
}

/// Of a child that has its parent's descriptors nobody sees when it closes one.
fn shares_files(flags: u64) {
    if flags & libc::CLONE_FILES as u64 != 0 {
        descriptors::are_of_threads();
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
    shares_files(flags);
    // A signal would use the stack for handlers, on which the parent waits.
    let mask = block(!0);
    // SAFETY: as the caller says. The parent waits, so the child may have the parent's area.
    let result =
        unsafe { raw::clone(flags, tids, seat.second_stack_end(), spawned, seat.index as usize) };
    block(mask);
    result
}

/// The child, on its parent's area.
extern "C" fn spawned(index: usize) -> ! {
    let seat = Here::get().desk.seat(index as u32);
    scheduling::computes();
    limits::are_of_kernel();
    // SAFETY: the context was given to us; with it the kernel gets the program's mask, and its
    // alternate stack instead of the parent's stack for handlers.
    unsafe { raw::go_on(Context::registers(seat.context())) }
}

/// At the origin: a child with a copy of all memory goes on with the seat's context.
///
/// # Safety
/// By the seat's thread, or its shadow.
pub unsafe fn fork(here: &Here, seat: &Seat, call: Call) -> i64 {
    let [flags, parent_tid, tid, ..] = call.arguments;
    shares_files(flags);
    let answer = here.desk.ask(seat, Request::Fork);
    if answer < 0 {
        return answer;
    }
    let snapshot = answer as *mut Snapshot;
    // In the child there is no memory yet when the kernel would write there.
    let kernel = flags & !(libc::CLONE_CHILD_SETTID as u64);
    // SAFETY: the snapshot is ours until we say so; what the child needs until it has its memory is
    // in the agent's, and in the seat's area.
    let result = unsafe {
        (*snapshot).child = Child { seat: seat.index, flags, tid, actions: actions::all() };
        // A handler of ours would run in the child.
        let mask = block(!0);
        let tids = [parent_tid, tid];
        let result = raw::clone(kernel, tids, seat.second_stack_end(), forked, snapshot as usize);
        block(mask);
        result
    };
    here.desk.ask(seat, Request::Forked);
    result
}

/// The child, on a copy of its parent's area.
extern "C" fn forked(snapshot: usize) -> ! {
    // SAFETY: the parent's, which we have inherited.
    let snapshot = unsafe { &*(snapshot as *const Snapshot) };
    let Child { seat, flags, tid, ref actions } = snapshot.child;
    let here = Here::get();
    let context = here.desk.seat(seat).context();
    scheduling::computes();
    // SAFETY: nothing of the program has run in this process; and then its context goes on.
    unsafe {
        if !snapshot.settle() {
            // As where memory is short later.
            let itself = raw::call(libc::SYS_getpid as u64, [0; 6]) as u64;
            raw::call(libc::SYS_kill as u64, [itself, libc::SIGKILL as u64, 0, 0, 0, 0]);
        }
        actions::are_of_kernel(actions);
        limits::are_of_kernel();
        if flags & libc::CLONE_FILES as u64 == 0 {
            raw::call(libc::SYS_close as u64, [here.desk.bell() as u64, 0, 0, 0, 0, 0]);
        }
        if flags & libc::CLONE_CHILD_SETTID as u64 != 0 {
            let itself = raw::call(libc::SYS_gettid as u64, [0; 6]) as i32;
            (tid as *mut i32).write_unaligned(itself);
        }
        here.desk.seat(seat).is_of_child();
        threads::set_thread_area((*context).thread_area);
        raw::go_on(Context::registers(context))
    }
}
