//! Regions: files that tasks map at one address outside their segments. The gate creates regions
//! and lets tasks join them (`c/region.c`). Only the watcher's thread unmaps regions that no task
//! uses any more, with the functions here.

use std::sync::atomic::Ordering::{Acquire, SeqCst};

use control::Control;
use nagaya_gate::abi::{REGIONS_MAX, Region, region_state, slot_state};

/// Drops the uses that an ended or departed task had of regions.
pub fn leave(control: Control, id: u32) {
    let used = control.slot(id).regions.swap(0, SeqCst);
    for (n, region) in regions(control).enumerate() {
        let state = region.state.load(Acquire);
        if used & (1 << n) != 0 {
            remove_unused(control, n, region);
        } else if state == region_state::MAKING && region.maker.load(Acquire) == id {
            // The maker ended before it recorded the mapping, so the range may or may not be
            // mapped. An unused mapping does less harm than unmapping a foreign one.
            forget(control, region);
        }
    }
}

/// Unmaps the regions that tasks have left, if any task has left one.
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
    // SAFETY: `owner::create` made the table with REGIONS_MAX entries, all atomics. It lives as
    // long as the space, and the watcher uses it only while the space lives.
    (0..REGIONS_MAX).map(move |n| unsafe { &*regions.add(n) })
}

fn remove_unused(control: Control, n: usize, region: &Region) {
    let change = |from, to| region.state.compare_exchange(from, to, SeqCst, SeqCst).is_ok();
    if region.domain.load(Acquire) != 0 {
        return; // the mapping is in another mm, and stays for later tasks of that domain
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
    // SAFETY: the gate mapped exactly this range for tasks, and no task has its bit set. The state
    // REMOVING keeps new tasks from joining.
    unsafe { libc::munmap(address as *mut _, size as usize) };
    forget(control, region);
}

/// Frees the region's entry, like `forget` in `c/region.c`.
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
