//! pvm_barrier. Members count arrivals in the group's slot while it is open. Otherwise the daemon
//! counts them.

use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::sync::atomic::AtomicU32;

use pvm::error::Error;
use pvm::event::{Event, Id};
use pvm::slots::{Arrival, Found, Ticket, WANTED_MAX};
use pvm::wire::GroupRequest;
use sync::futex;
use sync::wait::WaitPolicy;

use crate::known::{self, At, Group};
use crate::pvm3::{self, Result, returned};
use crate::traced::traced;

/// Waits until `count` members of the group have arrived, all with the same count. A count of -1
/// means the group's size. Returns 0.
///
/// Errors: NullGroup; NoGroup, also if a static group loses a member; NotInGroup; Mismatch if
/// another member gave another count, or the count is invalid; SysErr.
///
/// # Safety
/// `group` is a null-terminated string, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_barrier(group: *const c_char, count: c_int) -> c_int {
    let barrier = || loop {
        match known::group(group).and_then(|group| arrive(&group, count)) {
            Ok(true) => break Ok(0),
            Ok(false) => {}
            Err(code) => break Err(code),
        }
    };
    // SAFETY: `group` is a string or null, required of the caller.
    let called = unsafe { traced(Event::BARRIER, group) }.with(Id::GBC, count);
    called.run(|| returned(barrier()))
}

/// Arrives at the barrier and waits. Returns false if the group has changed, so that the caller
/// retries.
fn arrive(group: &Group, count: c_int) -> Result<bool> {
    let at_daemon = || {
        pvm3::ask(&GroupRequest::Barrier(group.name().to_owned(), count))?;
        Ok(true)
    };
    group.alive()?;
    group.instance()?;
    let wanted = if count == -1 { group.size() as c_int } else { count };
    let (Some(at), Ok(wanted @ 1..=WANTED_MAX)) = (group.slot(), u16::try_from(wanted)) else {
        return at_daemon();
    };
    match at.words().arrive(group.version(), wanted) {
        Arrival::Last { sleepers } => {
            if sleepers {
                // SAFETY: the generation is a word of the slot. The window is mapped while this
                // process is a task, which `known::group` has checked.
                futex::wake(unsafe { &*at.generation().cast::<AtomicU32>() });
            }
            Ok(true)
        }
        Arrival::Waits(ticket) => wait_for_others(at, ticket).map(|()| true),
        Arrival::Mismatch => Err(Error::Mismatch.code()),
        Arrival::Dead => Err(Error::NoGroup.code()),
        Arrival::Closed => at_daemon(),
        Arrival::Changed => Ok(false),
    }
}

fn wait_for_others(at: At, ticket: Ticket) -> Result<()> {
    thread_local! {
        /// Time that a waiter spins before it sleeps.
        static POLICY: RefCell<WaitPolicy> = RefCell::default();
    }
    let poll = || match at.words().look(ticket) {
        Found::Waiting => None,
        found => Some(found),
    };
    loop {
        match POLICY.with_borrow_mut(|policy| policy.poll(poll)) {
            Some(Found::Dead) => return Err(Error::NoGroup.code()),
            Some(_) => return Ok(()),
            None => {}
        }
        at.words().about_to_sleep(ticket);
        // SAFETY: the generation is a word of the slot, in the window that stays mapped while this
        // process is a task.
        unsafe { pvm3::wait_while(at.generation(), ticket.generation) }?;
    }
}
