//! Contexts: numbers that separate the messages of a program's parts. Each host assigns its own,
//! with its host number in the upper bits, as stock PVM does.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use pvm::tid::{LOCAL_MAX, Tid};

/// The contexts that this host has assigned.
#[derive(Debug)]
pub(crate) struct Contexts {
    host: u16,
    last: u32,
    owners: BTreeMap<i32, Tid>,
}

impl Contexts {
    /// Returns an empty set.
    pub fn new(host: u16) -> Contexts {
        Contexts { host, last: 0, owners: BTreeMap::new() }
    }

    /// Assigns a free context. Returns `None` if all are assigned.
    pub fn new_for(&mut self, owner: Tid) -> Option<i32> {
        for _ in 0..LOCAL_MAX {
            self.last = if self.last == LOCAL_MAX { 1 } else { self.last + 1 };
            let context = Tid::task(self.host, self.last).as_int();
            if let Entry::Vacant(free) = self.owners.entry(context) {
                free.insert(owner);
                return Some(context);
            }
        }
        None
    }

    /// Frees a context. Returns true if it was assigned.
    pub fn free(&mut self, context: i32) -> bool {
        self.owners.remove(&context).is_some()
    }

    /// Frees the contexts of a task that has ended.
    pub fn ended(&mut self, tid: Tid) {
        self.owners.retain(|_, owner| *owner != tid);
    }
}
