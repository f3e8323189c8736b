//! The owner's side of a control area: the gate's code, the parameters of the space, and the table
//! of tasks. The area is mapped once, never moved, and unmapped with the space.
//!
//! Tasks write to the area too, through the gate and libpvas, so all fields that change are
//! atomics. The crate `control` is the view that tasks have of the area.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::Ordering;

use control::{Control, Protection};

use nagaya_gate::abi::{
    Ask, COPY_AVX512, COPY_FSGSBASE, IMAGES_MAX, Image, Outside, PUBLISHED_BLOCK, REGIONS_MAX,
    Region, SITES_MAX, Site, Slot, Space, TEXT_SIZE, slot_state,
};
use nagaya_gate::{ABI, Gate, IMAGE, MAGIC};
use nagaya_layout::{PAGE_SIZE, PIDS_MAX, SHARED_SIZE_MAX, SpaceLayout};

use crate::agent;
use crate::copy_plan::CopyPlan;
use crate::error::{Error, last};
use crate::memory::{self, Memory};

const fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_SIZE as usize)
}

/// Returns the sizes of the parts behind the gate's code, in bytes: parameters, slots, images,
/// sites, regions, PIDs, records of memory outside segments. Two more parts serve spaces over
/// several machines: the requests of tasks and the published blocks.
fn parts(tasks_max: u32) -> [usize; 9] {
    [
        pages(size_of::<Space>()),
        pages(tasks_max as usize * size_of::<Slot>()),
        pages(IMAGES_MAX * size_of::<Image>()),
        pages(SITES_MAX * size_of::<Site>()),
        pages(REGIONS_MAX * size_of::<Region>()),
        pages(PIDS_MAX as usize * size_of::<u32>()),
        pages(tasks_max as usize * size_of::<Outside>()),
        pages(tasks_max as usize * size_of::<Ask>()),
        pages((SHARED_SIZE_MAX / PUBLISHED_BLOCK / 8) as usize),
    ]
}

fn size_of_area(tasks_max: u32) -> usize {
    TEXT_SIZE + parts(tasks_max).iter().sum::<usize>()
}

/// Maps memory of a control area, at the window's start.
fn map(layout: &SpaceLayout, flags: c_int, file: RawFd) -> Result<*mut c_void, Error> {
    // SAFETY: MAP_FIXED_NOREPLACE replaces no existing mapping.
    let at = unsafe {
        libc::mmap(
            layout.window() as *mut _,
            size_of_area(layout.tasks_max()),
            libc::PROT_READ | libc::PROT_WRITE,
            flags | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE,
            file,
            0,
        )
    };
    if at == libc::MAP_FAILED { Err(last("mmap of the control area")) } else { Ok(at) }
}

/// Makes the gate's code at the head of a mapped area executable. Unmaps the area on failure.
///
/// # Safety
/// `map` returned `at`, and no other thread has its address.
unsafe fn protect_code(layout: &SpaceLayout, at: *mut c_void) -> Result<(), Error> {
    // SAFETY: by this function's contract the area is mapped with this size, and nobody uses it.
    unsafe {
        if libc::mprotect(at, TEXT_SIZE, libc::PROT_READ | libc::PROT_EXEC) != 0 {
            let error = last("mprotect of the gate");
            libc::munmap(at, size_of_area(layout.tasks_max()));
            return Err(error);
        }
    }
    Ok(())
}

/// Maps the control area that an owner created in `file`, in another program of the same version.
pub fn map_again(layout: &SpaceLayout, file: BorrowedFd<'_>) -> Result<Control, Error> {
    let at = map(layout, libc::MAP_SHARED, file.as_raw_fd())?;
    // SAFETY: `map` returned the area above. The owner filled it in: the space's parameters follow
    // the code.
    unsafe {
        protect_code(layout, at)?;
        Ok(Control::at(at.cast::<u8>().add(TEXT_SIZE).cast()))
    }
}

/// Maps and fills the control area of `layout`. If `is_shared`, forked children share the area with
/// the owner. With `file`, an empty one, other programs can map the area ([`map_again`]). If
/// `is_fixed`, the parts of tasks lie at fixed addresses in their segments.
///
/// # Errors
/// EEXIST if the window is taken, or ENOMEM.
pub fn create(
    layout: &SpaceLayout,
    is_shared: bool,
    file: Option<BorrowedFd<'_>>,
    is_fixed: bool,
) -> Result<Control, Error> {
    let at = match (file, is_shared) {
        (Some(file), _) => {
            memory::set_size(file, size_of_area(layout.tasks_max()) as u64)?;
            map(layout, libc::MAP_SHARED, file.as_raw_fd())?
        }
        (None, true) => map(layout, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1)?,
        (None, false) => map(layout, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?,
    };
    // SAFETY: `mmap` returned the area above, with the size that `size_of_area` computed for the
    // code and all parts in this order. No other thread has its address yet.
    unsafe {
        ptr::copy_nonoverlapping(IMAGE.as_ptr(), at.cast::<u8>(), IMAGE.len());
        protect_code(layout, at)?;
        let mut part = at.cast::<u8>().add(TEXT_SIZE);
        let [space_size, slots, images, sites, regions, pids, outsides, asks, _] =
            parts(layout.tasks_max());
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
        (*space).outsides = part.cast();
        part = part.add(outsides);
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
        (*space).uid = rustix::process::geteuid().as_raw();
        (*space).gid = rustix::process::getegid().as_raw();
        (*space).fixed_addresses = is_fixed.into();
        Ok(Control::at(space))
    }
}

/// Unmaps the area.
///
/// # Safety
/// No task lives, and no thread uses this control area or a copy of `control` any more.
pub unsafe fn destroy(control: Control) {
    let size = size_of_area(control.tasks_max());
    // SAFETY: `create` mapped the area with this size. By this function's contract no thread uses
    // it.
    unsafe { libc::munmap(control.space().window as *mut _, size) };
}

/// Returns the gate at the head of the area.
pub fn gate(control: Control) -> Gate {
    // SAFETY: `create` mapped the image executable and filled in the space.
    unsafe { Gate::at(control.space().window as usize) }
}

/// Sets the copy loop for each size in this space, and the processor features that the gate may
/// use.
pub fn set_copy_plan(control: Control, plan: &CopyPlan) {
    let copy = &control.space().copy;
    const HWCAP2_FSGSBASE: u64 = 2;
    // SAFETY: getauxval reads the auxiliary vector and changes nothing.
    let fsgsbase = unsafe { libc::getauxval(libc::AT_HWCAP2) } & HWCAP2_FSGSBASE != 0;
    let features = if is_x86_feature_detected!("avx512f") { COPY_AVX512 } else { 0 }
        | if fsgsbase { COPY_FSGSBASE } else { 0 };
    copy.features.store(features, Ordering::Release);
    for (entry, &by) in copy.loops.iter().zip(plan.loops()) {
        entry.store(by as u8, Ordering::Release);
    }
}

/// Permits tasks to give up rights, although they keep access to the memory of the others.
pub fn permit_losses(control: Control) {
    control.space().keep_access.store(1, Ordering::Release);
}

/// Protects the memory of tasks from the others. Each task must then be a domain of its own.
pub fn set_protection(control: Control, protection: Protection) {
    control.space().protection.store(protection.word(), Ordering::Release);
}

/// Records `memory` as the memory of the segments.
///
/// # Safety
/// No other thread or task has access to the space yet.
pub unsafe fn set_memory(control: Control, memory: &Memory) {
    // SAFETY: by this function's contract no other thread accesses the plain fields of the space.
    unsafe {
        (*control.as_ptr()).alias = memory.alias();
        (*control.as_ptr()).memory_fd = memory.descriptor();
        (*control.as_ptr()).memory_ino = memory.inode();
    }
}
/// Records the thread that the gate notifies when a task leaves.
pub fn set_watcher(control: Control, tid: u32) {
    control.space().watcher_tid.store(tid, Ordering::Release);
}

/// Takes the given ID, or the lowest free ID of `domain`.
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

/// Assigns unused IDs to a domain.
///
/// # Errors
/// The first ID that is taken or was taken before.
pub fn give_to_domain(control: Control, ids: Range<u32>, domain: u32) -> Result<(), u32> {
    if let Some(taken) = ids.clone().find(|&id| !is_unused(control, id)) {
        return Err(taken);
    }
    ids.for_each(|id| control.slot(id).domain.store(domain, Ordering::Release));
    Ok(())
}

/// Returns the lowest ID that is not taken and has a domain to itself, or can get one. Each domain
/// but the owner's has one ID.
pub fn free_id_apart(control: Control) -> Option<u32> {
    let is_free = |id: u32| control.slot(id).state.load(Ordering::Acquire) == slot_state::FREE;
    let is_apart = |id: u32| control.domain_of(id) != 0 && is_free(id);
    (0..control.tasks_max()).find(|&id| is_apart(id) || is_unused(control, id))
}

/// Returns the lowest ID of the owner's domain that was never taken.
pub fn unused_id(control: Control) -> Option<u32> {
    (0..control.tasks_max()).find(|&id| is_unused(control, id))
}

/// Returns true if the ID belongs to the owner's domain and was never taken.
fn is_unused(control: Control, id: u32) -> bool {
    let slot = control.slot(id);
    slot.state.load(Ordering::Acquire) == slot_state::FREE
        && slot.export_mapped.load(Ordering::Acquire) == 0
        && slot.domain.load(Ordering::Acquire) == 0
}

/// Returns IDs to the owner's domain, the inverse of [`give_to_domain`].
pub fn take_from_domain(control: Control, ids: Range<u32>) {
    ids.for_each(|id| control.slot(id).domain.store(0, Ordering::Release));
}

/// Releases an ID whose task has not been announced.
pub fn release_slot(control: Control, id: u32) {
    let pid = control.slot(id).pid.swap(0, Ordering::AcqRel);
    control.pid_entry(pid).store(0, Ordering::Release);
    control.slot(id).state.store(slot_state::FREE, Ordering::Release);
}

/// Announces the task that now lives in the slot.
pub fn announce_start(control: Control, id: u32) {
    control.slot(id).generation.fetch_add(1, Ordering::AcqRel);
    control.slot(id).export_mapped.store(1, Ordering::Release);
    // The gate may already have set the state to LEAVING.
    let _ = control.slot(id).state.compare_exchange(
        slot_state::STARTING,
        slot_state::RUNNING,
        Ordering::AcqRel,
        Ordering::Relaxed,
    );
    control.announce();
}

/// Announces that the task has ended or left, so that peers no longer find it. It keeps its memory
/// and its ID until [`reclaim`].
pub fn announce_end(control: Control, id: u32) {
    let pid = control.slot(id).pid.swap(0, Ordering::SeqCst);
    control.pid_entry(pid).store(0, Ordering::Release);
    if let Some(agent) = agent::agent(&control) {
        agent.ended(id);
    }
}

/// Frees the memory and the ID of a task whose end was announced. The export area stays mapped and
/// reads as zero.
///
/// # Safety
/// No thread of the task runs in the segment any more, and no task holds it (`hold`).
pub unsafe fn reclaim(control: Control, id: u32) {
    let slot = control.slot(id);
    // SAFETY: this function has the contract of `clear_segment`: no thread of the task runs any
    // more.
    unsafe { clear_segment(control, id) };
    crate::regions::leave(control, id);
    undo_dump_marks(control);
    slot.task.store(0, Ordering::Release);
    slot.state.store(slot_state::FREE, Ordering::Release);
    control.announce();
}

/// Includes all tasks in core files again. The gate excludes the others when a task dumps core
/// (`c/fault.c`).
fn undo_dump_marks(control: Control) {
    if control.space().dump_marks.swap(0, Ordering::AcqRel) == 0 {
        return;
    }
    for id in (0..control.tasks_high()).filter(|&id| control.is_announced(id)) {
        let segment = control.layout().segment(id).expect("IDs of slots are in range");
        // SAFETY: MADV_DODUMP changes no memory, only the contents of core files. A gap in the
        // range makes it fail with ENOMEM after it has advised the rest.
        unsafe {
            libc::madvise(segment.start() as *mut _, segment.size() as usize, libc::MADV_DODUMP);
        }
    }
}

/// Frees the memory of a segment except its export area, which is zeroed. In another domain the
/// emptied mappings stay until the next task comes ([`unmap_left`]).
///
/// # Safety
/// The owner calls this. No thread runs in the segment or owns memory in it.
pub unsafe fn clear_segment(control: Control, id: u32) {
    let segment = control.layout().segment(id).expect("IDs of slots are in range");
    let (start, block) = (segment.start(), segment.task_block());
    // SAFETY: the range lies in the segment of task `id`, and by this function's contract that task
    // has ended.
    unsafe {
        if control.domain_of(id) == 0 {
            libc::munmap(block as *mut _, (segment.end() - block) as usize);
        }
        match control.is_shared() {
            false => {
                libc::madvise(start as *mut _, (block - start) as usize, libc::MADV_DONTNEED);
            }
            true => {
                if let Some(agent) = agent::agent(&control) {
                    agent.cleared(id);
                }
                give_back(control, block, segment.end() - block);
                // The pages stay present, because tasks of other domains that read them must not
                // meet a hole.
                ptr::write_bytes(start as *mut u8, 0, (block - start) as usize);
            }
        }
    }
}

/// Frees the pages of an address range if they are shared memory; they then read as zeros.
///
/// # Safety
/// No thread uses the contents of these pages.
unsafe fn give_back(control: Control, address: u64, size: u64) {
    let Space { alias, base, .. } = *control.space();
    if alias != 0 {
        // SAFETY: the alias maps all segments as long as the space lives. By this function's
        // contract no thread uses these pages.
        unsafe { memory::give_back(alias, address - base, size) };
    }
}

/// Unmaps the mappings of an ended task in this domain's mm, except its export area.
///
/// # Safety
/// The domain's keeper calls this. No thread runs in the segment.
pub unsafe fn unmap_left(control: Control, id: u32) {
    let segment = control.layout().segment(id).expect("IDs of slots are in range");
    let exports = control.slot(id).export_mapped.load(Ordering::Acquire) == 1;
    let from = if exports { segment.task_block() } else { segment.start() };
    // SAFETY: the range lies in the segment of `id`, in which by this function's contract no thread
    // runs.
    unsafe { libc::munmap(from as *mut _, (segment.end() - from) as usize) };
}

/// Empties a segment whose program did not start.
///
/// # Safety
/// No process runs in the segment.
pub unsafe fn clear_unstarted(control: Control, id: u32) {
    // SAFETY: by this function's contract no process runs in the segment. An export area that was
    // never announced has no readers.
    unsafe {
        if control.slot(id).export_mapped.load(Ordering::Acquire) == 1 {
            clear_segment(control, id);
        } else {
            drop_segment(control, id);
        }
    }
}

/// Unmaps a segment together with its export area.
///
/// # Safety
/// As for [`clear_segment`], and no thread reads the export area any more.
pub unsafe fn drop_segment(control: Control, id: u32) {
    let segment = control.layout().segment(id).expect("IDs of slots are in range");
    // SAFETY: the ranges are the segment's, which by this function's contract no thread uses.
    unsafe {
        if control.domain_of(id) == 0 {
            libc::munmap(segment.start() as *mut _, segment.size() as usize);
        }
        give_back(control, segment.start(), segment.size());
    }
}
