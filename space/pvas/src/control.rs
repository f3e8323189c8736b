//! The control area of a space: the gate's code, the space's parameters, and the table
//! of tasks. Mapped once, never moved, unmapped with the space.
//!
//! Tasks write here too (through the gate and libpvas), so it is reached through atomics
//! and raw pointers only.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use nagaya_gate::abi::{
    Ask, COPY_AVX512, COPY_FSGSBASE, IMAGES_MAX, Image, PUBLISHED_BLOCK, REGIONS_MAX, Region,
    SITES_MAX, Site, Slot, Space, TEXT_SIZE, slot_state,
};
use nagaya_gate::{ABI, Gate, IMAGE, MAGIC};
use nagaya_layout::{PAGE_SIZE, PIDS_MAX, SpaceLayout};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::copy_plan::CopyPlan;
use crate::error::{Error, last};
use crate::machines::{self, FAR_PID};
use crate::memory::{self, Memory};

/// A view of a space's control area, from the owner or from a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    space: *mut Space,
}

// SAFETY: the control area is shared memory by design; every field that changes after
// creation is an atomic.
unsafe impl Send for Control {}
// SAFETY: as above.
unsafe impl Sync for Control {}

const fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_SIZE as usize)
}

/// Bytes of the parts behind the gate's code: parameters, slots, images, sites, regions,
/// PIDs, and for spaces over several machines what tasks ask, and which memory others know.
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

impl Control {
    /// Maps and fills the control area of `layout`. It stays one where the process is
    /// copied, if it `is_shared`. Error: the window is taken (EEXIST), or ENOMEM.
    pub fn create(layout: &SpaceLayout, is_shared: bool) -> Result<Self, Error> {
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
            let [space_size, slots, images, sites, regions, pids, asks, _] =
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
            Ok(Self { space })
        }
    }

    /// The control area that a task's block points to.
    ///
    /// # Safety
    /// `space` comes from a living task's control block.
    pub unsafe fn from_task(space: *const Space) -> Self {
        Self { space: space.cast_mut() }
    }

    pub(crate) fn space(&self) -> &Space {
        // SAFETY: mapped for as long as the space lives; fields that change are atomics.
        unsafe { &*self.space }
    }

    /// Unmaps the area.
    ///
    /// # Safety
    /// No task lives, and nobody uses this or a copy of it any more.
    pub unsafe fn destroy(self) {
        let size = size_of_area(self.tasks_max());
        // SAFETY: mapped by `create` with this size; the caller vouches for the rest.
        unsafe { libc::munmap(self.space().window as *mut _, size) };
    }

    /// The gate at the head of the area.
    pub fn gate(&self) -> Gate {
        // SAFETY: `create` mapped the image executable and filled in the space.
        unsafe { Gate::at(self.space().window as usize) }
    }

    /// How the space is laid out.
    pub fn layout(&self) -> SpaceLayout {
        let space = self.space();
        SpaceLayout::new(space.window, space.segment_size, space.tasks_max)
            .expect("the control area was made from a layout")
    }

    /// IDs are below this.
    pub fn tasks_max(&self) -> u32 {
        self.space().tasks_max
    }
    /// IDs that were ever used are below this.
    pub fn tasks_high(&self) -> u32 {
        self.space().tasks_high.load(Ordering::Acquire)
    }
    /// Tasks that live now.
    pub fn tasks_alive(&self) -> u32 {
        // Counted, not kept: a task can be killed between any two stores of its own.
        (0..self.tasks_high()).filter(|&id| self.lives(id)).count() as u32
    }
    /// Whether a task lives in the slot: one that was waited for stands there until the
    /// watcher has heard of its end.
    fn lives(&self, id: u32) -> bool {
        let pid = self.slot(id).pid.load(Ordering::Acquire);
        if pid == FAR_PID {
            return self.is_announced(id);
        }
        let gone = |pid| test_kill_process(pid) == Err(Errno::SRCH);
        self.is_announced(id) && Pid::from_raw(pid as i32).is_some_and(|pid| !gone(pid))
    }
    /// Says which loop copies how much in this space.
    pub fn set_copy_plan(&self, plan: &CopyPlan) {
        let copy = &self.space().copy;
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
    /// Says how many processes the job has on this node. Until so many tasks have started, the gate
    /// does not tell MPI libraries that single copy always works.
    pub fn expect_tasks(&self, tasks: u32) {
        self.space().tasks_expected.fetch_max(tasks, Ordering::AcqRel);
    }
    /// PID of the creator.
    pub fn owner_pid(&self) -> u32 {
        self.space().owner_pid
    }
    /// Says that the segments' memory is this.
    ///
    /// # Safety
    /// Nobody else knows of the space yet.
    pub unsafe fn set_memory(&self, memory: &Memory) {
        // SAFETY: as the caller vouches.
        unsafe {
            (*self.space).alias = memory.alias();
            (*self.space).memory_fd = memory.descriptor();
            (*self.space).memory_ino = memory.inode();
        }
    }
    /// Counts what those who wait might want to see.
    pub fn event(&self) -> &AtomicU32 {
        &self.space().event
    }
    /// Tells the gate which thread hears of tasks that leave.
    pub fn set_watcher(&self, tid: u32) {
        self.space().watcher_tid.store(tid, Ordering::Release);
    }

    /// The slot of an ID below `tasks_max`.
    pub fn slot(&self, id: u32) -> &Slot {
        assert!(id < self.tasks_max());
        // SAFETY: the table has `tasks_max` entries, all atomics.
        unsafe { &*self.space().slots.add(id as usize) }
    }

    /// Entry of a PID in the table by which the gate finds tasks: ID + 1, or 0.
    pub fn pid_entry(&self, pid: u32) -> &AtomicU32 {
        assert!(u64::from(pid) < PIDS_MAX);
        // SAFETY: the table has `PIDS_MAX` entries.
        unsafe { &*self.space().pids.add(pid as usize) }
    }

    /// Counts an event and wakes all who wait for one.
    pub fn announce(&self) {
        self.event().fetch_add(1, Ordering::Release);
        let flags = rustix::thread::futex::Flags::empty();
        // Nobody waiting is the usual case, and the only errors are programming ones.
        let _ = rustix::thread::futex::wake(self.event(), flags, i32::MAX as u32);
    }

    /// Takes an ID: this one, or the lowest free one of a domain.
    pub fn take_slot(&self, id: Option<u32>, domain: u32) -> Result<u32, Error> {
        let take = |id: u32| {
            let state = &self.slot(id).state;
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
            Some(id) if id >= self.tasks_max() => {
                return Err(Error::IdRange(i64::from(id), self.tasks_max()));
            }
            Some(id) if take(id) => id,
            Some(id) => return Err(Error::IdTaken(id)),
            None => (0..self.tasks_max())
                .find(|&id| self.domain_of(id) == domain && take(id))
                .ok_or_else(|| Error::Full(self.tasks_max()))?,
        };
        self.space().tasks_high.fetch_max(id + 1, Ordering::AcqRel);
        self.slot(id).starting.store(1, Ordering::Release);
        Ok(id)
    }

    /// Whose mm the segment of an ID is part of: 0 for the owner's.
    pub fn domain_of(&self, id: u32) -> u32 {
        self.slot(id).domain.load(Ordering::Acquire)
    }

    /// Gives IDs that nobody has had yet to a domain. Error: the first of them that somebody has
    /// or had.
    pub(crate) fn give_to_domain(&self, ids: Range<u32>, domain: u32) -> Result<(), u32> {
        if let Some(taken) = ids.clone().find(|&id| !self.is_unused(id)) {
            return Err(taken);
        }
        ids.for_each(|id| self.slot(id).domain.store(domain, Ordering::Release));
        Ok(())
    }

    /// The lowest ID of the owner's domain that nobody has or had.
    pub(crate) fn unused_id(&self) -> Option<u32> {
        (0..self.tasks_max()).find(|&id| self.is_unused(id))
    }

    /// Whether the ID is of the owner's domain, and nobody has or had it.
    fn is_unused(&self, id: u32) -> bool {
        let slot = self.slot(id);
        slot.state.load(Ordering::Acquire) == slot_state::FREE
            && slot.export_mapped.load(Ordering::Acquire) == 0
            && slot.domain.load(Ordering::Acquire) == 0
    }

    /// Undoes `give_to_domain`.
    pub(crate) fn take_from_domain(&self, ids: Range<u32>) {
        ids.for_each(|id| self.slot(id).domain.store(0, Ordering::Release));
    }

    /// Whether tasks' memory is shared memory.
    pub fn is_shared(&self) -> bool {
        self.space().alias != 0
    }

    /// Gives an ID back whose task has not been announced.
    pub fn release_slot(&self, id: u32) {
        let pid = self.slot(id).pid.swap(0, Ordering::AcqRel);
        self.pid_entry(pid).store(0, Ordering::Release);
        self.slot(id).state.store(slot_state::FREE, Ordering::Release);
    }

    /// Whether a task was announced in the slot, however it has fared since.
    pub fn is_announced(&self, id: u32) -> bool {
        self.slot(id).is_announced()
    }

    /// A task with this PID and control block now lives in the slot.
    pub fn announce_start(&self, id: u32) {
        self.slot(id).generation.fetch_add(1, Ordering::AcqRel);
        self.slot(id).export_mapped.store(1, Ordering::Release);
        // The gate may have moved it on to LEAVING already.
        let _ = self.slot(id).state.compare_exchange(
            slot_state::STARTING,
            slot_state::RUNNING,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        self.announce();
    }

    /// The task has ended or left: peers no longer find it. Its memory and its ID stay
    /// until [`Control::reclaim`].
    pub fn announce_end(&self, id: u32) {
        let pid = self.slot(id).pid.swap(0, Ordering::SeqCst);
        self.pid_entry(pid).store(0, Ordering::Release);
        if let Some(agent) = machines::agent(self) {
            agent.ended(id);
        }
    }

    /// The memory of a task whose end was announced goes, its ID is free. The export area
    /// stays mapped, and reads as zero.
    ///
    /// # Safety
    /// No thread of the task runs in the segment any more, and nobody holds it (`hold`).
    pub unsafe fn reclaim(&self, id: u32) {
        let slot = self.slot(id);
        // SAFETY: what our caller vouches for is what `clear_segment` asks.
        unsafe { self.clear_segment(id) };
        crate::regions::leave(*self, id);
        self.undo_dump_marks();
        slot.task.store(0, Ordering::Release);
        slot.state.store(slot_state::FREE, Ordering::Release);
        self.announce();
    }

    /// Everybody is again part of the core file of whoever dies next, if a task that died
    /// has changed that (`c/fault.c`).
    fn undo_dump_marks(&self) {
        if self.space().dump_marks.swap(0, Ordering::AcqRel) == 0 {
            return;
        }
        for id in (0..self.tasks_high()).filter(|&id| self.is_announced(id)) {
            let segment = self.layout().segment(id).expect("IDs of slots are in range");
            // SAFETY: changes what a core file holds, and no memory. Gaps make it fail after
            // it has done the rest.
            unsafe {
                libc::madvise(
                    segment.start() as *mut _,
                    segment.size() as usize,
                    libc::MADV_DODUMP,
                );
            }
        }
    }

    /// Takes the memory of a segment back but for its export area, which is zeroed. In another
    /// domain it stays mapped, empty, until the next task comes ([`Control::unmap_left`]).
    ///
    /// # Safety
    /// Called by the owner. Nobody runs in the segment or owns memory in it.
    pub unsafe fn clear_segment(&self, id: u32) {
        let segment = self.layout().segment(id).expect("IDs of slots are in range");
        let (start, block) = (segment.start(), segment.task_block());
        // SAFETY: the segment is the task's alone, and the task is gone.
        unsafe {
            if self.domain_of(id) == 0 {
                libc::munmap(block as *mut _, (segment.end() - block) as usize);
            }
            match self.is_shared() {
                false => {
                    libc::madvise(start as *mut _, (block - start) as usize, libc::MADV_DONTNEED);
                }
                true => {
                    if let Some(agent) = machines::agent(self) {
                        agent.cleared(id);
                    }
                    self.give_back(block, segment.end() - block);
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
    unsafe fn give_back(&self, address: u64, size: u64) {
        let Space { alias, base, .. } = *self.space();
        if alias != 0 {
            // SAFETY: as the caller vouches; the alias lives as long as the space.
            unsafe { memory::give_back(alias, address - base, size) };
        }
    }

    /// Unmaps what a task that has ended has left in this domain's mm, but for its export area.
    ///
    /// # Safety
    /// Called by the domain's keeper. Nobody runs in the segment.
    pub unsafe fn unmap_left(&self, id: u32) {
        let segment = self.layout().segment(id).expect("IDs of slots are in range");
        let exports = self.slot(id).export_mapped.load(Ordering::Acquire) == 1;
        let from = if exports { segment.task_block() } else { segment.start() };
        // SAFETY: as the caller vouches.
        unsafe { libc::munmap(from as *mut _, (segment.end() - from) as usize) };
    }

    /// Empties a segment whose program did not start.
    ///
    /// # Safety
    /// No process runs in the segment.
    pub unsafe fn clear_unstarted(&self, id: u32) {
        // SAFETY: as the caller vouches; an export area that was never announced is
        // nobody's yet.
        unsafe {
            if self.slot(id).export_mapped.load(Ordering::Acquire) == 1 {
                self.clear_segment(id);
            } else {
                self.drop_segment(id);
            }
        }
    }

    /// Unmaps a segment with its export area.
    ///
    /// # Safety
    /// As for `clear_segment`, and nobody reads the export area any more.
    pub unsafe fn drop_segment(&self, id: u32) {
        let segment = self.layout().segment(id).expect("IDs of slots are in range");
        // SAFETY: as the caller vouches.
        unsafe {
            if self.domain_of(id) == 0 {
                libc::munmap(segment.start() as *mut _, segment.size() as usize);
            }
            self.give_back(segment.start(), segment.size());
        }
    }
}
