//! The control area of a space, as a task or the owner sees it: parameters, slots, the PID table.
//!
//! Tasks write here too, through the gate and libpvas. So all fields that change are reached
//! through atomics.

use std::sync::atomic::{AtomicU32, Ordering};

use nagaya_gate::abi::{Outside, Slot, Space};
use nagaya_layout::{PIDS_MAX, SpaceLayout};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use sync::futex;

/// The PID in the slot of a task of another machine: no process has it.
pub const FAR_PID: u32 = i32::MAX as u32;

/// A view of a space's control area, from the owner or from a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    space: *mut Space,
}

// SAFETY: the control area is shared memory by design; every field that changes after creation
// is an atomic.
unsafe impl Send for Control {}
// SAFETY: every field that changes after creation is an atomic.
unsafe impl Sync for Control {}

impl Control {
    /// Returns the view of the control area whose parameters are at `space`.
    ///
    /// # Safety
    /// `space` must come from the control block of a living task, or from the creation of the
    /// area.
    pub unsafe fn at(space: *const Space) -> Self {
        Self { space: space.cast_mut() }
    }

    /// Returns the address of the parameters.
    pub fn as_ptr(&self) -> *mut Space {
        self.space
    }

    /// Returns the parameters of the space.
    pub fn space(&self) -> &Space {
        // SAFETY: mapped for as long as the space lives (see `at`); fields that change are atomics.
        unsafe { &*self.space }
    }

    /// Returns the layout of the space.
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

    /// Number of tasks that live now.
    pub fn tasks_alive(&self) -> u32 {
        // Counted on demand: a task can be killed between any two stores to a counter.
        (0..self.tasks_high()).filter(|&id| self.lives(id)).count() as u32
    }

    /// Returns true if a task lives in the slot. A task that was waited for stays there until the
    /// watcher has received its end.
    fn lives(&self, id: u32) -> bool {
        let pid = self.slot(id).pid.load(Ordering::Acquire);
        if pid == FAR_PID {
            return self.is_announced(id);
        }
        let gone = |pid| test_kill_process(pid) == Err(Errno::SRCH);
        self.is_announced(id) && Pid::from_raw(pid as i32).is_some_and(|pid| !gone(pid))
    }

    /// Sets the number of processes of the job on this node. Until that many tasks have started,
    /// the gate does not report to MPI libraries that single copy always works.
    pub fn expect_tasks(&self, tasks: u32) {
        self.space().tasks_expected.fetch_max(tasks, Ordering::AcqRel);
    }

    /// Returns the number of processes of the job on this node; 0 if it is not known.
    pub fn tasks_expected(&self) -> u32 {
        self.space().tasks_expected.load(Ordering::Acquire)
    }

    /// PID of the creator.
    pub fn owner_pid(&self) -> u32 {
        self.space().owner_pid
    }

    /// The count of events: exports, starts and ends. A futex.
    pub fn event(&self) -> &AtomicU32 {
        &self.space().event
    }

    /// The slot of an ID below `tasks_max`.
    pub fn slot(&self, id: u32) -> &Slot {
        assert!(id < self.tasks_max());
        // SAFETY: the table has `tasks_max` entries, all atomics.
        unsafe { &*self.space().slots.add(id as usize) }
    }

    /// Returns the record of the task's mappings and contexts outside its segment.
    pub fn outside(&self, id: u32) -> &Outside {
        assert!(id < self.tasks_max());
        // SAFETY: the table has `tasks_max` entries, all atomics.
        unsafe { &*self.space().outsides.add(id as usize) }
    }

    /// Entry of a PID in the table by which the gate finds tasks: ID + 1, or 0.
    pub fn pid_entry(&self, pid: u32) -> &AtomicU32 {
        assert!(u64::from(pid) < PIDS_MAX);
        // SAFETY: the table has `PIDS_MAX` entries.
        unsafe { &*self.space().pids.add(pid as usize) }
    }

    /// Counts an event and wakes all sleepers on the count.
    pub fn announce(&self) {
        self.event().fetch_add(1, Ordering::Release);
        futex::wake_here(self.event());
    }

    /// The domain of an ID: 0 for the owner's.
    pub fn domain_of(&self, id: u32) -> u32 {
        self.slot(id).domain.load(Ordering::Acquire)
    }

    /// Returns true if the tasks' memory is shared memory.
    pub fn is_shared(&self) -> bool {
        self.space().alias != 0
    }

    /// Returns true if a task was announced in the slot, also if it has ended since.
    pub fn is_announced(&self, id: u32) -> bool {
        self.slot(id).is_announced()
    }
}
