//! Regions: files that tasks map at one address outside their segments. The gate makes
//! them and lets tasks join (`c/region.c`); what nobody uses any more is unmapped here, in
//! the watcher's thread and nowhere else.

use std::sync::atomic::Ordering::{Acquire, SeqCst};

use control::Control;
use nagaya_gate::abi::{REGIONS_MAX, Region, region_state, slot_state};

/// The task with this ID has ended or left.
pub fn leave(control: Control, id: u32) {
    let used = control.slot(id).regions.swap(0, SeqCst);
    for (n, region) in regions(control).enumerate() {
        let state = region.state.load(Acquire);
        if used & (1 << n) != 0 {
            remove_unused(control, n, region);
        } else if state == region_state::MAKING && region.maker.load(Acquire) == id {
            // Whether it is mapped nobody knows; an unused mapping harms less than the
            // loss of somebody else's.
            forget(control, region);
        }
    }
}

/// Unmaps what tasks have given up, if they say that they have.
pub fn remove_left(control: Control) {
    if control.space().regions_left.load(Acquire) == 0 {
        return;
    }
    control.space().regions_left.store(0, SeqCst);
    for (n, region) in regions(control).enumerate() {
        remove_unused(control, n, region);
    }
}

fn regions(control: Control) -> impl Iterator<Item = &'static Region> {
    let regions = control.space().regions;
    // SAFETY: the table has this many entries, all atomics, and lives as long as the
    // space: longer than any use in the watcher.
    (0..REGIONS_MAX).map(move |n| unsafe { &*regions.add(n) })
}

fn remove_unused(control: Control, n: usize, region: &Region) {
    let change = |from, to| region.state.compare_exchange(from, to, SeqCst, SeqCst).is_ok();
    if region.domain.load(Acquire) != 0 {
        return; // another mm: it stays, for who comes there next
    }
    if !change(region_state::LIVE, region_state::REMOVING) {
        return;
    }
    let uses = |id| control.slot(id).regions.load(SeqCst) & (1 << n) != 0;
    if (0..control.tasks_high()).any(uses) {
        region.state.store(region_state::LIVE, SeqCst);
        return;
    }
    let (address, size) = (region.address.load(Acquire), region.size.load(Acquire));
    // SAFETY: the gate mapped exactly this for tasks, and no task uses it: one that wants
    // to join from here on sees that we are removing it.
    unsafe { libc::munmap(address as *mut _, size as usize) };
    forget(control, region);
}

/// As `forget` in `c/region.c`.
fn forget(control: Control, region: &Region) {
    let slot = region.slot.load(Acquire);
    region.size.store(0, SeqCst);
    region.state.store(region_state::FREE, SeqCst);
    if slot == 0 || slot > control.tasks_max() {
        return;
    }
    let state = &control.slot(slot - 1).state;
    let change = |from, to| state.compare_exchange(from, to, SeqCst, SeqCst).is_ok();
    change(slot_state::REGION, slot_state::FREE);
    let keeps =
        |r: &Region| r.state.load(SeqCst) != region_state::FREE && r.slot.load(SeqCst) == slot;
    if regions(control).any(keeps) {
        change(slot_state::FREE, slot_state::REGION);
    }
}
