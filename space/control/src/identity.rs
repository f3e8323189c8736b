//! The identity of a task: its ID, and which of the tasks that had this ID.

use std::sync::atomic::Ordering::{Acquire, SeqCst};

use crate::area::Control;

/// One of the tasks that had an ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The ID.
    pub id: u32,
    /// The generation, modulo 2³²: the number of tasks that had the ID before.
    pub generation: u32,
}

impl Identity {
    /// The value of a hold on it; never 0.
    pub fn word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.id + 1)
    }
}

impl Control {
    /// The task that has this ID now, if one has.
    #[inline]
    pub fn identity(&self, id: u32) -> Option<Identity> {
        if id >= self.tasks_max() {
            return None;
        }
        let generation = self.slot(id).generation.load(Acquire) as u32;
        let identity = Identity { id, generation };
        self.is_living(identity).then_some(identity)
    }

    /// Returns true if the task has not yet begun, as far as this machine knows. The memory that a
    /// task of another machine has written may arrive before its start is announced. `bits` of its
    /// generation are known.
    pub fn is_to_come(&self, whom: Identity, bits: u32) -> bool {
        if whom.id >= self.tasks_max() {
            return false;
        }
        let known = self.slot(whom.id).generation.load(Acquire) as u32;
        let ahead = whom.generation.wrapping_sub(known) << (u32::BITS - bits);
        ahead.cast_signed() > 0
    }

    /// Returns true if the task lives: its end has not been announced.
    #[inline]
    pub fn is_living(&self, whom: Identity) -> bool {
        let slot = self.slot(whom.id);
        slot.pid.load(SeqCst) != 0
            && slot.is_announced()
            && slot.generation.load(Acquire) as u32 == whom.generation
    }
}
