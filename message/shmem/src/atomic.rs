//! Atomic operations on symmetric objects: those of the processor. On a PE of another node, the
//! node's agent performs them, so both kinds may be mixed.

use std::ffi::c_int;

use crate::context::{Handle, target};
use crate::fatal::fatal;
use crate::job::{Job, Peer};
use crate::remote::operation::Call;
use crate::word::Word;
pub use shmem_wire::message::Op;

/// Performs an operation on a symmetric object of a PE. Returns its former value.
#[inline(always)]
pub fn perform<W: Word>(
    function: &str,
    context: Handle,
    op: Op,
    object: *mut u8,
    values: [W; 2],
    pe: c_int,
) -> W {
    let (job, peer) = target(function, context, pe);
    check_word::<W>(function, object);
    match peer.is_far() {
        true => Call { f: function, job, context, peer }.fetch(op, object, values),
        false => here(function, job, peer, op, object, values),
    }
}

/// The same. `to` has the former value after `quiet`.
///
/// # Safety
/// `to` has room for a word until then.
#[inline(always)]
pub unsafe fn perform_nbi<W: Word>(
    function: &str,
    context: Handle,
    op: Op,
    object: *mut u8,
    values: [W; 2],
    pe: c_int,
    to: *mut u8,
) {
    let (job, peer) = target(function, context, pe);
    check_word::<W>(function, object);
    if peer.is_far() {
        let call = Call { f: function, job, context, peer };
        // SAFETY: this function has the contract of the called one.
        return unsafe { call.fetch_nbi(op, object, values, to) };
    }
    let former = here(function, job, peer, op, object, values);
    // SAFETY: the caller guarantees room for a word.
    unsafe { to.cast::<W>().write_unaligned(former) };
}

/// Performs an operation on a symmetric object of a PE whose former value nobody wants.
#[inline(always)]
pub fn change<W: Word>(
    function: &str,
    context: Handle,
    op: Op,
    object: *mut u8,
    value: W,
    pe: c_int,
) {
    let (job, peer) = target(function, context, pe);
    check_word::<W>(function, object);
    if peer.is_far() {
        return Call { f: function, job, context, peer }.change(op, object, value);
    }
    here(function, job, peer, op, object, [value, value]);
}

/// Performs an operation on a symmetric object of a PE of this node.
#[inline(always)]
fn here<W: Word>(
    function: &str,
    job: &Job,
    peer: &Peer,
    op: Op,
    object: *mut u8,
    [value, compare]: [W; 2],
) -> W {
    let at = job.reach(function, object, size_of::<W>(), peer);
    // SAFETY: `reach` has checked that the word is in symmetric memory, and the caller that it is
    // aligned.
    let former = unsafe { W::perform(at, op, value, compare) };
    if op != Op::Fetch {
        peer.wake();
    }
    former
}

/// Checks the alignment of a word.
#[inline(always)]
pub fn check_word<W>(function: &str, object: *mut u8) {
    if !object.addr().is_multiple_of(size_of::<W>()) {
        fatal!(function, "the object at {object:p} is not aligned to its size");
    }
}
