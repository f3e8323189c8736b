//! The members of a poll set or a wait set: completion queues and counters.

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::abi;
use crate::engine::state::Core;

/// The kind of set that asks a counter for changes. Each kind learns of every change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// A poll set.
    PollSet,
    /// A wait set.
    WaitSet,
}

/// A completion queue or a counter.
pub trait Pollable {
    /// Makes progress. Returns true if there is news for `reader`.
    fn poll(&self, reader: Reader) -> bool;

    /// Prepares a sleep (fi_trywait(3)). Returns true if a thread may sleep.
    fn try_wait(&self) -> bool;

    /// Returns the domain.
    fn core(&self) -> &Arc<Core>;
}

/// The members, which the program takes out before it closes them.
#[derive(Debug, Default)]
pub struct Members(Mutex<Vec<Member>>);

#[derive(Debug, Clone, Copy)]
struct Member {
    fid: *mut abi::Fid,
    object: NonNull<dyn Pollable>,
}

// SAFETY: the pointers lead to queues and counters, which any thread may use at any time.
unsafe impl Send for Member {}

impl Member {
    fn object(&self) -> &dyn Pollable {
        // SAFETY: `Members::add` requires that the object stays until `Members::remove`.
        unsafe { self.object.as_ref() }
    }
}

impl Members {
    fn list(&self) -> MutexGuard<'_, Vec<Member>> {
        self.0.lock().expect("no panic while held")
    }

    /// Adds a member. Error: EALREADY.
    ///
    /// # Safety
    /// `object` is the object of `fid`, and stays until [`remove`](Self::remove).
    pub unsafe fn add(&self, fid: *mut abi::Fid, object: &dyn Pollable) -> Result<(), c_int> {
        let mut list = self.list();
        if list.iter().any(|member| member.fid == fid) {
            return Err(abi::EALREADY);
        }
        // SAFETY: only the lifetime changes. The object stays until `remove`, by this function's
        // contract.
        let object: &'static dyn Pollable = unsafe { std::mem::transmute(object) };
        list.push(Member { fid, object: NonNull::from(object) });
        Ok(())
    }

    /// Removes a member.
    pub fn remove(&self, fid: *mut abi::Fid) {
        self.list().retain(|member| member.fid != fid);
    }

    /// Returns true if there is no member.
    pub fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// Makes progress, and passes each member with news for `reader` to `report`.
    pub fn poll(&self, reader: Reader, mut report: impl FnMut(&abi::Fid)) {
        for member in self.list().iter() {
            if member.object().poll(reader) {
                // SAFETY: the fid is the first field of an object that stays until `remove` (see
                // `add`).
                report(unsafe { &*member.fid });
            }
        }
    }

    /// Wakes the threads that watch the members. Returns true if no member has news.
    pub fn is_quiet(&self) -> bool {
        let mut is_quiet = true;
        for member in self.list().iter() {
            is_quiet &= member.object().try_wait();
        }
        is_quiet
    }

    /// Returns the domain of the first member.
    pub fn core(&self) -> Option<Arc<Core>> {
        self.list().first().map(|member| member.object().core().clone())
    }
}
