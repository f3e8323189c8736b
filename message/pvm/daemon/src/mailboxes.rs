//! Message mailboxes (pvm_putinfo and related calls): messages by name and index, visible in the
//! whole virtual machine. The results of each call are those of stock PVM's daemon
//! (`tests/mailboxes.rs` compares them).

use pvm::constants::{
    PvmMboxDirectIndexShift, PvmMboxFirstAvail, PvmMboxMaxDirectIndex, PvmMboxMultiInstance,
    PvmMboxOverWritable, PvmMboxPersistent, PvmMboxReadAndDelete, PvmMboxWaitForInfo,
};
use pvm::error::Error;
use pvm::tid::Tid;
use pvm::wire::{ClassInfo, Parcel};
use serde::{Deserialize, Serialize};

use crate::errand::Asker;

/// The owner of an entry whose owner has ended.
const NOBODY: Tid = Tid(0);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    index: i32,
    owner: Tid,
    flags: i32,
    parcel: Parcel,
}

impl Entry {
    fn is_open_to(&self, tid: Tid) -> bool {
        self.owner == tid || self.flags & PvmMboxOverWritable != 0
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Class {
    name: String,
    /// Sorted by index.
    entries: Vec<Entry>,
}

/// A request that waits for an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Waiter {
    asker: Asker,
    name: String,
    index: i32,
    flags: i32,
}

/// An entry's index and message, or an error.
pub type Got = Result<(i32, Parcel), Error>;

/// All mailboxes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mailboxes {
    /// In order of creation.
    classes: Vec<Class>,
    waiters: Vec<Waiter>,
}

impl Mailboxes {
    /// Executes pvm_putinfo, or pvm_insert if an index is `wanted`. Returns the entry's index.
    /// Then [`Mailboxes::served`] returns the requests that the entry satisfies. Errors: Denied.
    pub fn put(
        &mut self,
        owner: Tid,
        name: &str,
        wanted: Option<i32>,
        flags: i32,
        parcel: Parcel,
    ) -> Result<i32, Error> {
        let direct = flags >> PvmMboxDirectIndexShift & (PvmMboxMaxDirectIndex - 1);
        let first = wanted.unwrap_or(direct);
        let class = match self.classes.iter().position(|class| class.name == name) {
            Some(at) => &mut self.classes[at],
            None => {
                self.classes.push(Class { name: name.to_string(), entries: Vec::new() });
                self.classes.last_mut().expect("it was just made")
            }
        };
        let at = class.entries.partition_point(|entry| entry.index < first);
        let mut there = class.entries.get_mut(at).filter(|entry| entry.index == first);
        if let Some(entry) = &mut there
            && flags & PvmMboxMultiInstance == 0
        {
            if !entry.is_open_to(owner) {
                return Err(Error::Denied);
            }
            **entry = Entry { index: first, owner, flags, parcel };
            return Ok(first);
        }
        if there.is_some() && wanted.is_some() {
            return Err(Error::Denied);
        }
        // Take the first free index.
        let taken = class.entries[at..].iter().zip(first..).take_while(|(e, i)| e.index == *i);
        let after = taken.count();
        let index = first + after as i32;
        class.entries.insert(at + after, Entry { index, owner, flags, parcel });
        Ok(index)
    }

    /// Executes pvm_recvinfo. Returns `None` if `asker` has to wait. Errors: NotFound, Denied.
    pub fn get(&mut self, asker: Asker, name: &str, index: i32, flags: i32) -> Option<Got> {
        let got = self.try_get(asker.tid, name, index, flags);
        if matches!(got, Err(Error::NotFound)) && flags & PvmMboxWaitForInfo != 0 {
            self.waiters.push(Waiter { asker, name: name.to_string(), index, flags });
            return None;
        }
        Some(got)
    }

    fn try_get(&mut self, tid: Tid, name: &str, index: i32, flags: i32) -> Got {
        let fits = |entry: &Entry| match flags & PvmMboxFirstAvail {
            0 => entry.index == index,
            _ => entry.index >= index,
        };
        let class = self.classes.iter().find(|class| class.name == name);
        let entry = class.and_then(|class| class.entries.iter().find(|entry| fits(entry)));
        let entry = entry.ok_or(Error::NotFound)?;
        let got = (entry.index, entry.parcel.clone());
        if flags & PvmMboxReadAndDelete != 0 {
            self.delete(tid, name, got.0)?;
        }
        Ok(got)
    }

    /// Returns the waiting requests that can be answered now, with their results.
    pub fn served(&mut self) -> Vec<(Asker, Got)> {
        let mut served = Vec::new();
        for waiter in std::mem::take(&mut self.waiters) {
            match self.try_get(waiter.asker.tid, &waiter.name, waiter.index, waiter.flags) {
                Err(Error::NotFound) => self.waiters.push(waiter),
                got => served.push((waiter.asker, got)),
            }
        }
        served
    }

    /// Executes pvm_delinfo and returns the index. Errors: NotFound, Denied.
    pub fn delete(&mut self, tid: Tid, name: &str, index: i32) -> Result<i32, Error> {
        let class = self.classes.iter_mut().find(|class| class.name == name);
        let entries = &mut class.ok_or(Error::NotFound)?.entries;
        let at = entries.iter().position(|entry| entry.index == index);
        let at = at.ok_or(Error::NotFound)?;
        if !entries[at].is_open_to(tid) {
            return Err(Error::Denied);
        }
        entries.remove(at);
        self.forget_empty();
        Ok(index)
    }

    /// Executes pvm_getmboxinfo: lists the mailboxes whose name `fits`.
    pub fn list(&self, fits: impl Fn(&str) -> bool) -> Vec<ClassInfo> {
        let info = |class: &Class| ClassInfo {
            name: class.name.clone(),
            entries: class.entries.iter().map(|e| (e.index, e.owner, e.flags)).collect(),
        };
        self.classes.iter().filter(|class| fits(&class.name)).map(info).collect()
    }

    /// Returns the owners of a mailbox's entries.
    pub fn owners(&self, name: &str) -> Vec<Tid> {
        let class = self.classes.iter().filter(|class| class.name == name);
        class.flat_map(|class| &class.entries).map(|entry| entry.owner).collect()
    }

    /// Deletes the entries of ended tasks. Persistent entries stay, without an owner.
    pub fn ended(&mut self, is: impl Fn(Tid) -> bool) {
        for class in &mut self.classes {
            class.entries.retain(|e| !is(e.owner) || e.flags & PvmMboxPersistent != 0);
            class.entries.iter_mut().filter(|e| is(e.owner)).for_each(|e| e.owner = NOBODY);
        }
        self.waiters.retain(|waiter| !is(waiter.asker.tid));
        self.forget_empty();
    }

    /// Deletes all entries but those of the tasks that `but` selects.
    pub fn reset(&mut self, but: impl Fn(Tid) -> bool) {
        for class in &mut self.classes {
            class.entries.retain(|entry| but(entry.owner));
        }
        self.forget_empty();
    }

    fn forget_empty(&mut self) {
        self.classes.retain(|class| !class.entries.is_empty());
    }
}
