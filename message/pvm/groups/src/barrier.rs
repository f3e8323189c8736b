//! pvm_barrier: in the group's slot while the daemon has it open, else at the daemon.

use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::sync::atomic::AtomicU32;

use pvm::error::Error;
use pvm::event::{Event, Id};
use pvm::slots::{Arrival, Found, Ticket, WANTED_MAX};
use pvm::wire::GroupRequest;
use sync::futex;
use sync::wait::{self, WaitPolicy};

use crate::known::{self, At, Group};
use crate::pvm3::{self, Result, returned};
use crate::traced::traced;

/// Yields of the processor before a sleep.
const YIELDS: u32 = 8;

/// Waits until `count` members of the group have come here, all with the same count; -1 is
/// the group's size. Returns 0.
///
/// Errors: NullGroup; NoGroup, also if a static group loses a member; NotInGroup; Mismatch if
/// somebody wants another count, and of counts that cannot be; SysErr.
///
/// # Safety
/// The name is a string or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_barrier(group: *const c_char, count: c_int) -> c_int {
    let barrier = || loop {
        match known::group(group).and_then(|group| arrive(&group, count)) {
            Ok(true) => break Ok(0),
            Ok(false) => {}
            Err(code) => break Err(code),
        }
    };
    // SAFETY: as our caller says.
    let called = unsafe { traced(Event::BARRIER, group) }.with(Id::GBC, count);
    called.run(|| returned(barrier()))
}

/// Whether the barrier is passed; if not, the group has changed.
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
                // SAFETY: in the slot.
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
        /// How long to spin before sleeping.
        static POLICY: RefCell<WaitPolicy> = RefCell::default();
    }
    let look = || match at.words().look(ticket) {
        Found::Waiting => None,
        found => Some(found),
    };
    let mut found = POLICY.with_borrow_mut(|policy| policy.poll(look));
    if found.is_none() {
        found = wait::poll_and_yield(YIELDS, look);
    }
    loop {
        match found {
            Some(Found::Dead) => return Err(Error::NoGroup.code()),
            Some(_) => return Ok(()),
            None => {}
        }
        at.words().about_to_sleep(ticket);
        // SAFETY: in the slot.
        unsafe { pvm3::wait_while(at.generation(), ticket.generation) }?;
        found = look();
    }
}
