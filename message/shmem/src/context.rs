//! Contexts of communication.
//!
//! Within a node an operation is complete when its call returns, so a context has no state but the
//! team whose PEs it names. For other nodes it has the number of its last operation on each.

use std::ffi::c_int;

use crate::fatal::fatal;
use crate::job::{self, Job, Peer};
use crate::remote::far::Marks;
use crate::team::Team;

/// A context as programs name it (`shmem_ctx_t`): 0 is invalid, 1 is the default context, and any
/// other value is the address of a [`Context`].
pub type Handle = *mut Context;

/// `SHMEM_CTX_DEFAULT`.
pub const DEFAULT: usize = 1;

/// A context that the program has created.
pub struct Context {
    /// The team whose PEs the numbers of its operations name.
    pub team: &'static Team,
    /// Its operations on other nodes.
    marks: Option<Marks>,
}

/// Returns the handle of the default context.
pub fn default() -> Handle {
    std::ptr::without_provenance_mut(DEFAULT)
}

/// Returns the number in the world of a context's PE.
#[inline(always)]
pub fn pe(function: &str, context: Handle, pe: c_int) -> c_int {
    if context.addr() == DEFAULT { pe } else { of_team(function, context, pe) }
}

#[cold]
fn of_team(function: &str, context: Handle, pe: c_int) -> c_int {
    // SAFETY: by the standard the program passes a context that it has created and not destroyed.
    let Some(context) = (unsafe { context.as_ref() }) else {
        fatal!(function, "the context is SHMEM_CTX_INVALID")
    };
    match context.team.world(pe) {
        Some(pe) => pe,
        None => fatal!(function, "PE {pe} does not exist; the team has {} PEs", context.team.n),
    }
}

/// Returns the job and the PE of an operation.
#[inline(always)]
pub fn target(function: &str, context: Handle, pe: c_int) -> (&'static Job, &'static Peer) {
    let job = job::get(function);
    (job, job.peer(function, self::pe(function, context, pe)))
}

/// Returns the operations of a context on other nodes; none for the default context.
pub fn marks(function: &str, context: Handle) -> Option<&'static Marks> {
    match context.addr() {
        0 => fatal!(function, "the context is SHMEM_CTX_INVALID"),
        DEFAULT => None,
        // SAFETY: by the standard the program passes a context that it has created and not
        // destroyed.
        _ => unsafe { (*context).marks.as_ref() },
    }
}

/// Creates a context.
pub fn create(team: &'static Team) -> Handle {
    let far = job::try_get().and_then(|job| job.far.as_ref());
    let marks = far.map(|far| far.new_marks());
    Box::into_raw(Box::new(Context { team, marks }))
}

/// Destroys a context.
///
/// # Safety
/// The program has created it, and does not use it any more.
pub unsafe fn destroy(function: &str, context: Handle) {
    match context.addr() {
        0 => {}
        DEFAULT => fatal!(function, "the default context cannot be destroyed"),
        // SAFETY: this function has the contract.
        _ => drop(unsafe { Box::from_raw(context) }),
    }
}
