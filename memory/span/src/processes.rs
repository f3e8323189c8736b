//! Child processes. They are created at the origin, and Nagaya does not catch their system calls.
//!
//! A child of posix_spawn or vfork shares the program's memory until it executes a program. A
//! forked child has a copy of all memory, the [`Snapshot`], and is then an ordinary process.

use std::sync::atomic::Ordering;

use crate::call::{self, Call};
use crate::context::Context;
use crate::here::Here;
use crate::request::Request;
use crate::signal::block;
use crate::slot::Slot;
use crate::snapshot::Child;
use crate::snapshot::Snapshot;
use crate::{
    alternate_stack, clocks, descriptors, dispositions, jump, kernel_threads, limits, raw,
    scheduling, sigaction,
};

/// The flags of vfork: the child shares memory, and its parent waits.
const SHARES: u64 = (libc::CLONE_VM | libc::CLONE_VFORK) as u64;

/// Creates a child for the thread that was caught with this frame. `flags` are clone's, with the
/// exit signal. `tids` are the addresses for its ID. `stack` is its stack, or 0 for the parent's.
/// `area` is its thread area.
///
/// # Safety
/// As for [`calls::answer`](crate::calls::answer).
pub unsafe fn begin(
    here: &Here,
    slot: &Slot,
    frame: *mut libc::ucontext_t,
    flags: u64,
    tids: [u64; 2],
    stack: u64,
    area: u64,
) -> i64 {
    // clone(2) has 32 bits of flags.
    if flags > u32::MAX.into() {
        return -i64::from(libc::EINVAL);
    }
    let number = match flags & SHARES {
        SHARES => call::CHILD,
        shares if shares & libc::CLONE_VM as u64 == 0 => call::FORK,
        // A child that runs beside its parent would need an agent for its futexes.
        _ => return -i64::from(libc::ENOSYS),
    };
    // Nagaya sets the thread area itself.
    let flags = flags & !(libc::CLONE_SETTLS as u64);
    let call = Call { number, arguments: [flags, tids[0], tids[1], 0, 0, 0] };
    // SAFETY: the frame is the kernel's, and the slot belongs to this thread, so nothing else uses
    // its context.
    unsafe {
        if Context::take(slot.context(), frame, alternate_stack::of_program(slot, frame), area)
            .is_err()
        {
            return -i64::from(libc::ENOMEM);
        }
        let registers = &mut (*Context::registers(slot.context())).uc_mcontext.gregs;
        registers[libc::REG_RAX as usize] = 0;
        if stack != 0 {
            registers[libc::REG_RSP as usize] = stack as i64;
        }
        match (here.node, number) {
            (0, call::FORK) => fork(here, slot, call),
            (0, _) => child(slot, call),
            _ => here.table.request(slot, Request::Call(call)),
        }
    }
}

/// Notes that a child shares the descriptor table: Nagaya does not see which descriptors it closes.
fn shares_files(flags: u64) {
    if flags & libc::CLONE_FILES as u64 != 0 {
        descriptors::are_of_threads();
    }
}

/// At the origin: makes a child that shares memory and resumes with the slot's context. Returns
/// when it has executed a program or has exited.
///
/// # Safety
/// Runs on the slot's thread, or on its shadow; the slot's context is complete.
pub unsafe fn child(slot: &Slot, call: Call) -> i64 {
    let [flags, parent_tid, child_tid, ..] = call.arguments;
    let tids = [parent_tid, child_tid];
    shares_files(flags);
    // A signal handler in the child would use the stack on which the parent waits.
    let mask = block(!0);
    // The child has this slot, too, as its GS base is its parent's.
    slot.call_entry.store(jump::entry_alone(), Ordering::Relaxed);
    // SAFETY: the parent waits (CLONE_VFORK), so the child may use the second stack of its slot.
    // `spawned` never returns.
    let result =
        unsafe { raw::clone(flags, tids, slot.child_stack_end(), spawned, slot.index as usize) };
    slot.call_entry.store(jump::entry(), Ordering::Relaxed);
    block(mask);
    result
}

/// The entry of a child that shares memory, on the second stack of its parent's slot.
extern "C" fn spawned(index: usize) -> ! {
    let slot = Here::get().table.slot(index as u32);
    scheduling::computes();
    limits::are_of_kernel();
    let context = slot.context();
    // SAFETY: `begin` has stored the context. It sets the program's mask and the program's
    // alternate stack in the kernel. The child has the thread area of the kernel thread that made
    // it, which may be a shadow's.
    unsafe {
        kernel_threads::set_thread_area((*context).thread_area);
        raw::go_on(Context::registers(context))
    }
}

/// At the origin: makes a child with a copy of all memory, which resumes with the slot's context.
///
/// # Safety
/// Runs on the slot's thread, or on its shadow; the slot's context is complete.
pub unsafe fn fork(here: &Here, slot: &Slot, call: Call) -> i64 {
    let [flags, parent_tid, tid, ..] = call.arguments;
    shares_files(flags);
    let answer = here.table.request(slot, Request::Fork);
    if answer < 0 {
        return answer;
    }
    let snapshot = answer as *mut Snapshot;
    // The child's memory does not exist yet when the kernel would store the ID there.
    let kernel = flags & !(libc::CLONE_CHILD_SETTID as u64);
    // SAFETY: the agent has given the snapshot to this thread until `ForkDone`. The child inherits
    // it and the slot as private memory of this process. `forked` never returns.
    let result = unsafe {
        (*snapshot).child = Child { slot: slot.index, flags, tid, actions: dispositions::all() };
        // A signal would run Nagaya's handler in the child.
        let mask = block(!0);
        let tids = [parent_tid, tid];
        let result = raw::clone(kernel, tids, slot.child_stack_end(), forked, snapshot as usize);
        block(mask);
        result
    };
    here.table.request(slot, Request::ForkDone);
    result
}

/// The entry of a forked child, on a copy of the second stack of its parent's slot.
extern "C" fn forked(snapshot: usize) -> ! {
    // SAFETY: `fork` passes a valid snapshot, and the child has inherited its memory.
    let snapshot = unsafe { &*(snapshot as *const Snapshot) };
    let Child { slot, flags, tid, ref actions } = snapshot.child;
    let here = Here::get();
    let context = here.table.slot(slot).context();
    scheduling::computes();
    // SAFETY: no code of the program has run in this process, so its memory may be replaced. The
    // context is complete.
    unsafe {
        if !snapshot.settle() {
            // A child that runs out of memory later would be killed, too.
            let itself = raw::call(libc::SYS_getpid as u64, [0; 6]) as u64;
            raw::call(libc::SYS_kill as u64, [itself, libc::SIGKILL as u64, 0, 0, 0, 0]);
        }
        sigaction::are_of_kernel(actions);
        limits::are_of_kernel();
        if flags & libc::CLONE_FILES as u64 == 0 {
            raw::call(libc::SYS_close as u64, [here.table.doorbell() as u64, 0, 0, 0, 0, 0]);
        }
        if flags & libc::CLONE_CHILD_SETTID as u64 != 0 {
            let itself = raw::call(libc::SYS_gettid as u64, [0; 6]) as i32;
            (tid as *mut i32).write_unaligned(itself);
        }
        here.table.slot(slot).clock_entry.store(clocks::entry_alone(), Ordering::SeqCst);
        here.table.slot(slot).call_entry.store(jump::entry_alone(), Ordering::SeqCst);
        kernel_threads::set_thread_area((*context).thread_area);
        raw::go_on(Context::registers(context))
    }
}
