//! Applies changes of groups to the slots in this host's window.

use fcp::window::Window;
use pvm::slots::{BARRIER_AT, Count, GENERATION_AT, SLOT_SIZE, Slot, VERSION_AT};
use sync::futex;

use crate::groups::{Closing, SlotChange};

/// Changes a slot. Returns the slot's count if the change closes it.
pub fn change(window: &Window, slot: u16, change: SlotChange) -> Option<(Closing, Count)> {
    let at = window.plain().start + usize::from(slot) * SLOT_SIZE;
    let word = |offset| window.word64(at + offset).expect("a window has room for all slots");
    let slot = Slot { version: word(VERSION_AT), barrier: word(BARRIER_AT) };
    let wake = || futex::wake(window.word32(at + GENERATION_AT).expect("in the slot"));
    match change {
        SlotChange::Clear(version) => slot.clear(version),
        SlotChange::Changed(version) => slot.changed(version),
        SlotChange::Open(_) => slot.open(),
        SlotChange::Close(_, closing) => return Some((closing, slot.close())),
        SlotChange::Complete => {
            slot.complete();
            wake();
        }
        SlotChange::Kill => {
            slot.kill();
            wake();
        }
        SlotChange::Wake => wake(),
    }
    None
}
