//! Contexts: numbers that keep the messages of parts of a program apart. Each host gives its
//! own, with its number in front, as stock PVM does.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use pvm::tid::{LOCAL_MAX, Tid};

/// The contexts that this host has given.
#[derive(Debug)]
pub(crate) struct Contexts {
    host: u16,
    last: u32,
    owners: BTreeMap<i32, Tid>,
}

impl Contexts {
    /// None yet.
    pub fn new(host: u16) -> Contexts {
        Contexts { host, last: 0, owners: BTreeMap::new() }
    }

    /// One that nobody has. Nothing if all are given.
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

    /// Takes one back. Returns whether it was given.
    pub fn free(&mut self, context: i32) -> bool {
        self.owners.remove(&context).is_some()
    }

    /// Takes back those of a task that has ended.
    pub fn ended(&mut self, tid: Tid) {
        self.owners.retain(|_, owner| *owner != tid);
    }
}
