//! The owner's side of a control area: the gate's code, the parameters of the space, and the table
//! of tasks. It is mapped once, never moved, and unmapped with the space.
//!
//! Tasks write here too, through the gate and libpvas. So fields that change are reached through
//! atomics. What tasks see of it is the crate `control`.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::Ordering;

use control::Control;

use nagaya_gate::abi::{
    Ask, COPY_AVX512, COPY_FSGSBASE, IMAGES_MAX, Image, PUBLISHED_BLOCK, REGIONS_MAX, Region,
    SITES_MAX, Site, Slot, Space, TEXT_SIZE, slot_state,
};
use nagaya_gate::{ABI, Gate, IMAGE, MAGIC};
use nagaya_layout::{PAGE_SIZE, PIDS_MAX, SpaceLayout};

use crate::copy_plan::CopyPlan;
use crate::error::{Error, last};
use crate::machines;
use crate::memory::{self, Memory};

const fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_SIZE as usize)
}

/// Bytes of the parts behind the gate's code: parameters, slots, images, sites, regions,
/// PIDs; for spaces over several machines, the requests of tasks and the published blocks.
fn parts(tasks_max: u32) -> [usize; 8] {
    [
        pages(size_of::<Space>()),
        pages(tasks_max as usize * size_of::<Slot>()),
        pages(IMAGES_MAX * size_of::<Image>()),
        pages(SITES_MAX * size_of::<Site>()),
        pages(REGIONS_MAX * size_of::<Region>()),
        pages(PIDS_MAX as usize * size_of::<u32>()),
        pages(tasks_max as usize * size_of::<Ask>()),
        pages((memory::SIZE_MAX / PUBLISHED_BLOCK / 8) as usize),
    ]
}

fn size_of_area(tasks_max: u32) -> usize {
    TEXT_SIZE + parts(tasks_max).iter().sum::<usize>()
}

/// Maps and fills the control area of `layout`. It stays one where the process is
/// copied, if it `is_shared`. Error: the window is taken (EEXIST), or ENOMEM.
pub fn create(layout: &SpaceLayout, is_shared: bool) -> Result<Control, Error> {
    let size = size_of_area(layout.tasks_max());
    // SAFETY: MAP_FIXED_NOREPLACE touches nothing that exists.
    let at = unsafe {
        libc::mmap(
            layout.window() as *mut _,
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            if is_shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE }
                | libc::MAP_ANONYMOUS
                | libc::MAP_NORESERVE
                | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(last("mmap of the control area"));
    }
    // SAFETY: the area was just mapped, is large enough for the gate's code and all
    // parts in this order, and nobody else knows of it.
    unsafe {
        ptr::copy_nonoverlapping(IMAGE.as_ptr(), at.cast::<u8>(), IMAGE.len());
        if libc::mprotect(at, TEXT_SIZE, libc::PROT_READ | libc::PROT_EXEC) != 0 {
            let error = last("mprotect of the gate");
            libc::munmap(at, size);
            return Err(error);
        }
        let mut part = at.cast::<u8>().add(TEXT_SIZE);
        let [space_size, slots, images, sites, regions, pids, asks, _] = parts(layout.tasks_max());
        let space = part.cast::<Space>();
        part = part.add(space_size);
        (*space).slots = part.cast();
        part = part.add(slots);
        (*space).images = part.cast();
        part = part.add(images);
        (*space).sites = part.cast();
        part = part.add(sites);
        (*space).regions = part.cast();
        part = part.add(regions);
        (*space).pids = part.cast();
        part = part.add(pids);
        (*space).asks = part.cast();
        part = part.add(asks);
        (*space).published = part.cast();
        (*space).magic = MAGIC;
        (*space).abi = ABI;
        (*space).base = layout.base();
        (*space).segment_size = layout.segment_size();
        (*space).window = layout.window();
        (*space).tasks_max = layout.tasks_max();
        (*space).owner_pid = std::process::id();
        Ok(Control::at(space))
    }
}

/// Unmaps the area.
///
/// # Safety
/// No task lives, and nobody uses this or a copy of it any more.
pub unsafe fn destroy(control: Control) {
    let size = size_of_area(control.tasks_max());
    // SAFETY: mapped by `create` with this size; the caller vouches for the rest.
    unsafe { libc::munmap(control.space().window as *mut _, size) };
}

/// The gate at the head of the area.
pub fn gate(control: Control) -> Gate {
    // SAFETY: `create` mapped the image executable and filled in the space.
    unsafe { Gate::at(control.space().window as usize) }
}

/// Says which loop copies how much in this space.
pub fn set_copy_plan(control: Control, plan: &CopyPlan) {
    let copy = &control.space().copy;
    const HWCAP2_FSGSBASE: u64 = 2;
    // SAFETY: a plain read.
    let fsgsbase = unsafe { libc::getauxval(libc::AT_HWCAP2) } & HWCAP2_FSGSBASE != 0;
    let features = if is_x86_feature_detected!("avx512f") { COPY_AVX512 } else { 0 }
        | if fsgsbase { COPY_FSGSBASE } else { 0 };
    copy.features.store(features, Ordering::Release);
    for (entry, &by) in copy.loops.iter().zip(plan.loops()) {
        entry.store(by as u8, Ordering::Release);
    }
}
/// Says that the segments' memory is this.
///
/// # Safety
/// Nobody else knows of the space yet.
pub unsafe fn set_memory(control: Control, memory: &Memory) {
    // SAFETY: as the caller vouches.
    unsafe {
        (*control.as_ptr()).alias = memory.alias();
        (*control.as_ptr()).memory_fd = memory.descriptor();
        (*control.as_ptr()).memory_ino = memory.inode();
    }
}
/// Tells the gate which thread hears of tasks that leave.
pub fn set_watcher(control: Control, tid: u32) {
    control.space().watcher_tid.store(tid, Ordering::Release);
}

/// Takes an ID: this one, or the lowest free one of a domain.
pub fn take_slot(control: Control, id: Option<u32>, domain: u32) -> Result<u32, Error> {
    let take = |id: u32| {
        let state = &control.slot(id).state;
        state
            .compare_exchange(
                slot_state::FREE,
                slot_state::STARTING,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    };
    let id = match id {
        Some(id) if id >= control.tasks_max() => {
            return Err(Error::IdRange(i64::from(id), control.tasks_max()));
        }
        Some(id) if take(id) => id,
        Some(id) => return Err(Error::IdTaken(id)),
        None => (0..control.tasks_max())
            .find(|&id| control.domain_of(id) == domain && take(id))
            .ok_or_else(|| Error::Full(control.tasks_max()))?,
    };
    control.space().tasks_high.fetch_max(id + 1, Ordering::AcqRel);
    control.slot(id).starting.store(1, Ordering::Release);
    Ok(id)
}

/// Gives IDs that nobody has had yet to a domain. Error: the first of them that somebody has
/// or had.
pub fn give_to_domain(control: Control, ids: Range<u32>, domain: u32) -> Result<(), u32> {
    if let Some(taken) = ids.clone().find(|&id| !is_unused(control, id)) {
        return Err(taken);
    }
    ids.for_each(|id| control.slot(id).domain.store(domain, Ordering::Release));
    Ok(())
}

/// The lowest ID of the owner's domain that nobody has or had.
pub fn unused_id(control: Control) -> Option<u32> {
    (0..control.tasks_max()).find(|&id| is_unused(control, id))
}

/// Whether the ID is of the owner's domain, and nobody has or had it.
fn is_unused(control: Control, id: u32) -> bool {
    let slot = control.slot(id);
    slot.state.load(Ordering::Acquire) == slot_state::FREE
        && slot.export_mapped.load(Ordering::Acquire) == 0
        && slot.domain.load(Ordering::Acquire) == 0
}

/// Undoes `give_to_domain`.
pub fn take_from_domain(control: Control, ids: Range<u32>) {
    ids.for_each(|id| control.slot(id).domain.store(0, Ordering::Release));
}

/// Gives an ID back whose task has not been announced.
pub fn release_slot(control: Control, id: u32) {
    let pid = control.slot(id).pid.swap(0, Ordering::AcqRel);
    control.pid_entry(pid).store(0, Ordering::Release);
    control.slot(id).state.store(slot_state::FREE, Ordering::Release);
}

/// A task with this PID and control block now lives in the slot.
pub fn announce_start(control: Control, id: u32) {
    control.slot(id).generation.fetch_add(1, Ordering::AcqRel);
    control.slot(id).export_mapped.store(1, Ordering::Release);
    // The gate may have moved it on to LEAVING already.
    let _ = control.slot(id).state.compare_exchange(
        slot_state::STARTING,
        slot_state::RUNNING,
        Ordering::AcqRel,
        Ordering::Relaxed,
    );
    control.announce();
}

/// The task has ended or left: peers no longer find it. Its memory and its ID stay
/// until [`reclaim`].
pub fn announce_end(control: Control, id: u32) {
    let pid = control.slot(id).pid.swap(0, Ordering::SeqCst);
    control.pid_entry(pid).store(0, Ordering::Release);
    if let Some(agent) = machines::agent(&control) {
        agent.ended(id);
    }
}

/// The memory of a task whose end was announced goes, its ID is free. The export area
/// stays mapped, and reads as zero.
///
/// # Safety
/// No thread of the task runs in the segment any more, and nobody holds it (`hold`).
pub unsafe fn reclaim(control: Control, id: u32) {
    let slot = control.slot(id);
    // SAFETY: what our caller vouches for is what `clear_segment` asks.
    unsafe { clear_segment(control, id) };
    crate::regions::leave(control, id);
    undo_dump_marks(control);
    slot.task.store(0, Ordering::Release);
    slot.state.store(slot_state::FREE, Ordering::Release);
    control.announce();
}

/// Everybody is again part of the core file of whoever dies next, if a task that died
/// has changed that (`c/fault.c`).
fn undo_dump_marks(control: Control) {
    if control.space().dump_marks.swap(0, Ordering::AcqRel) == 0 {
        return;
    }
    for id in (0..control.tasks_high()).filter(|&id| control.is_announced(id)) {
        let segment = control.layout().segment(id).expect("IDs of slots are in range");
        // SAFETY: changes what a core file holds, and no memory. Gaps make it fail after
        // it has done the rest.
        unsafe {
            libc::madvise(segment.start() as *mut _, segment.size() as usize, libc::MADV_DODUMP);
        }
    }
}

/// Takes the memory of a segment back but for its export area, which is zeroed. In another
/// domain it stays mapped, empty, until the next task comes ([`unmap_left`]).
///
/// # Safety
/// Called by the owner. Nobody runs in the segment or owns memory in it.
pub unsafe fn clear_segment(control: Control, id: u32) {
    let segment = control.layout().segment(id).expect("IDs of slots are in range");
    let (start, block) = (segment.start(), segment.task_block());
    // SAFETY: the segment is the task's alone, and the task is gone.
    unsafe {
        if control.domain_of(id) == 0 {
            libc::munmap(block as *mut _, (segment.end() - block) as usize);
        }
        match control.is_shared() {
            false => {
                libc::madvise(start as *mut _, (block - start) as usize, libc::MADV_DONTNEED);
            }
            true => {
                if let Some(agent) = machines::agent(&control) {
                    agent.cleared(id);
                }
                give_back(control, block, segment.end() - block);
                // Its pages stay: who looks at it from another domain must not find a hole.
                ptr::write_bytes(start as *mut u8, 0, (block - start) as usize);
            }
        }
    }
}

/// Gives the pages behind these addresses back where they are shared memory; they read as
/// zeros.
///
/// # Safety
/// Nobody uses what they hold.
unsafe fn give_back(control: Control, address: u64, size: u64) {
    let Space { alias, base, .. } = *control.space();
    if alias != 0 {
        // SAFETY: as the caller vouches; the alias lives as long as the space.
        unsafe { memory::give_back(alias, address - base, size) };
    }
}

/// Unmaps what a task that has ended has left in this domain's mm, but for its export area.
///
/// # Safety
/// Called by the domain's keeper. Nobody runs in the segment.
pub unsafe fn unmap_left(control: Control, id: u32) {
    let segment = control.layout().segment(id).expect("IDs of slots are in range");
    let exports = control.slot(id).export_mapped.load(Ordering::Acquire) == 1;
    let from = if exports { segment.task_block() } else { segment.start() };
    // SAFETY: as the caller vouches.
    unsafe { libc::munmap(from as *mut _, (segment.end() - from) as usize) };
}

/// Empties a segment whose program did not start.
///
/// # Safety
/// No process runs in the segment.
pub unsafe fn clear_unstarted(control: Control, id: u32) {
    // SAFETY: as the caller vouches; an export area that was never announced is
    // nobody's yet.
    unsafe {
        if control.slot(id).export_mapped.load(Ordering::Acquire) == 1 {
            clear_segment(control, id);
        } else {
            drop_segment(control, id);
        }
    }
}

/// Unmaps a segment with its export area.
///
/// # Safety
/// As for `clear_segment`, and nobody reads the export area any more.
pub unsafe fn drop_segment(control: Control, id: u32) {
    let segment = control.layout().segment(id).expect("IDs of slots are in range");
    // SAFETY: as the caller vouches.
    unsafe {
        if control.domain_of(id) == 0 {
            libc::munmap(segment.start() as *mut _, segment.size() as usize);
        }
        give_back(control, segment.start(), segment.size());
    }
}
