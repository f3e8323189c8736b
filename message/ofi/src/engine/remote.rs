//! Memory of other tasks: holds on tasks, and objects at addresses that tasks exchange.
//!
//! An address in a message, or in another task's port, is input from outside. [`HeldTask::object`]
//! checks that an object can lie there before it makes a reference to it. The hold keeps the memory
//! mapped while the reference exists, even if the task ends meanwhile.

use control::Identity;
use control::hold::{Attempt, Hold, KEEP, WORK};
use sync::wait::Backoff;

use crate::engine::counts::Counts;
use crate::engine::space::Here;
use crate::protocol::record::Record;

/// A type of which other tasks may use an object.
///
/// # Safety
/// All bytes that a task can write there are a valid value. Fields that change while another task
/// knows the address are atomics.
pub unsafe trait Shared {}

// SAFETY: two atomics.
unsafe impl Shared for Counts {}
// SAFETY: integers; all that change after the address was sent are atomics (see `Record::begin`).
unsafe impl Shared for Record {}

/// A task that the calling thread holds. Its memory stays mapped while this exists.
#[derive(Debug)]
pub struct HeldTask {
    task: Identity,
    _hold: Hold,
}

impl Here {
    /// Holds a task for a short piece of work in its memory. Returns `None` if it has ended.
    #[inline]
    pub fn hold(&self, task: Identity) -> Option<HeldTask> {
        let mut backoff = Backoff::default();
        loop {
            match self.task.hold(task, WORK) {
                Ok(hold) => return Some(HeldTask { task, _hold: hold }),
                Err(Attempt::Gone) => return None,
                // Other threads of this task use all words.
                Err(_) => backoff.pause(),
            }
        }
    }

    /// Holds a task for a long time. Returns `None` if it has ended, or if all words are in use.
    pub fn hold_long(&self, task: Identity) -> Option<HeldTask> {
        self.task.hold(task, KEEP).ok().map(|hold| HeldTask { task, _hold: hold })
    }

    /// Returns true if `bytes` bytes at `address` lie in the segment of task `id`, and the address
    /// is a multiple of `align`.
    pub fn contains(&self, id: u32, address: u64, bytes: usize, align: usize) -> bool {
        let Some(segment) = self.task.control.layout().segment(id) else { return false };
        let end = address.checked_add(bytes as u64);
        address.is_multiple_of(align as u64)
            && address >= segment.start()
            && end.is_some_and(|end| end <= segment.end())
    }
}

impl HeldTask {
    /// Returns the identity of the task.
    pub fn task(&self) -> Identity {
        self.task
    }

    /// Replaces a short hold by a long one. Returns false if all words for long holds are in use.
    pub fn prolong(&mut self, here: &Here) -> bool {
        match here.task.hold_on(self.task, KEEP) {
            Ok(hold) => {
                *self = Self { task: self.task, _hold: hold };
                true
            }
            Err(_) => false,
        }
    }

    /// Returns the object at this address of the task's memory. `None`: no such object can be
    /// there, because the address is outside the task's segment or not aligned.
    #[inline]
    pub fn object<T: Shared>(&self, here: &Here, address: u64) -> Option<&T> {
        let can_be = here.contains(self.task.id, address, size_of::<T>(), align_of::<T>());
        // SAFETY: the object lies in the task's segment and is aligned, as `contains` has checked.
        // `self` keeps the segment mapped. `Shared` makes all its contents valid.
        can_be.then(|| unsafe { &*(address as *const T) })
    }
}
