//! Protection inside a space: what a task may do with the memory of the others by plain loads and
//! stores.
//!
//! In a protected space each task is a domain of its own, whose views of the other segments are
//! read-only or inaccessible. A task *opens* the parts that the others share on purpose: it calls
//! mprotect(2) on its view, and the gate checks the range (`gate/c/protect.c`). These parts are the
//! export area, and the pages of memory that its task has exported by name.

use std::ops::Range;
use std::sync::atomic::Ordering;

use nagaya_gate::abi::protection;
use nagaya_layout::{EXPORT_SIZE, EXPORT_USER_SIZE, PAGE_SIZE, align_down, align_up};
use serde::{Deserialize, Serialize};

use crate::area::Control;
use crate::this::ThisTask;

/// The kind of protection of a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protection {
    /// A task cannot write the memory of the others.
    Writes,
    /// A task can neither read nor write it.
    All,
}

impl Protection {
    /// Returns the name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Writes => "writes",
            Self::All => "all",
        }
    }

    /// Returns the kind with this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Writes, Self::All].into_iter().find(|it| it.name() == name)
    }

    /// Returns the value of `Space::protection`.
    pub fn word(self) -> u32 {
        match self {
            Self::Writes => protection::WRITES,
            Self::All => protection::ALL,
        }
    }
}

impl Control {
    /// Returns the protection of the space; `None` if its tasks can write each other's memory.
    pub fn protection(&self) -> Option<Protection> {
        match self.space().protection.load(Ordering::Acquire) {
            protection::NONE => None,
            protection::WRITES => Some(Protection::Writes),
            _ => Some(Protection::All),
        }
    }
}

impl ThisTask {
    /// Makes the program's half of the export area of task `id` readable and writable here.
    pub fn open_export_area(&self, id: u32) {
        if self.is_protected_from(id) {
            let start = self.segment_of(id).start;
            open(start..start + EXPORT_USER_SIZE, libc::PROT_READ | libc::PROT_WRITE);
        }
    }

    /// Makes the directory of exported names of task `id` readable here.
    pub fn open_directory(&self, id: u32) {
        if self.is_protected_from(id) && self.control.protection() == Some(Protection::All) {
            let start = self.segment_of(id).start;
            open(start + EXPORT_USER_SIZE..start + EXPORT_SIZE, libc::PROT_READ);
        }
    }

    /// Makes the pages of memory that task `id` has exported by name readable and writable here.
    pub fn open_exported(&self, id: u32, address: u64, size: u64) {
        if !self.is_protected_from(id) {
            return;
        }
        let segment = self.segment_of(id);
        let end = address.checked_add(size.max(1)).and_then(|end| align_up(end, PAGE_SIZE));
        if let Some(end) = end.filter(|&end| address >= segment.start && end <= segment.end) {
            open(align_down(address, PAGE_SIZE)..end, libc::PROT_READ | libc::PROT_WRITE);
        }
    }

    fn is_protected_from(&self, id: u32) -> bool {
        id != self.id && self.control.protection().is_some()
    }

    fn segment_of(&self, id: u32) -> Range<u64> {
        let segment = self.control.layout().segment(id).expect("the slot exists");
        segment.start()..segment.end()
    }
}

/// Changes the rights in a view. If the gate refuses it, an access later gives SIGSEGV.
fn open(range: Range<u64>, rights: i32) {
    let size = (range.end - range.start) as usize;
    // SAFETY: the range lies in a view of another task's segment, where this process has no object.
    unsafe { libc::mprotect(range.start as *mut libc::c_void, size, rights) };
}
