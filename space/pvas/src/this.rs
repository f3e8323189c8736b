//! Who the calling process is: whether it is a task, and which.

use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use nagaya_gate::abi::Task;
use nagaya_layout::PIDS_MAX;
use nagaya_loader::stack::AT_NAGAYA_TASK;

use crate::control::Control;

/// The calling task.
#[derive(Debug, Clone, Copy)]
pub struct ThisTask {
    /// Its ID.
    pub id: u32,
    /// Its space.
    pub control: Control,
}

impl ThisTask {
    /// The ID of the task of this space that has, or until its memory goes had, this PID.
    pub fn task_of(&self, pid: u32) -> Option<u32> {
        if u64::from(pid) >= PIDS_MAX {
            return None;
        }
        let entry = self.control.pid_entry(pid).load(Ordering::Acquire);
        entry.checked_sub(1).filter(|&id| id < self.control.tasks_max())
    }

    /// Where other tasks find what this one has at `address`: static data of a program that is
    /// linked to its addresses they find in its segment, all else at the same address.
    pub fn for_others(&self, address: u64) -> u64 {
        let task = self.control.slot(self.id).task.load(Ordering::Acquire) as *const Task;
        // SAFETY: our own block; written before we began.
        let (start, end, to) =
            unsafe { ((*task).fixed_start, (*task).fixed_end, (*task).fixed_to) };
        if (start..end).contains(&address) { address - start + to } else { address }
    }

    /// Where we find what task `id` has at `address`: the other side of
    /// [`for_others`](Self::for_others).
    pub fn found_at(&self, id: u32, address: u64) -> u64 {
        if id == self.id || !self.control.is_shared() {
            return address;
        }
        let slot = self.control.slot(id);
        let block = slot.task.load(Ordering::Acquire);
        let mut fixed = [0u64; 3];
        let size = size_of_val(&fixed);
        let here = libc::iovec { iov_base: fixed.as_mut_ptr().cast(), iov_len: size };
        let there = block + std::mem::offset_of!(Task, fixed_start) as u64;
        let there = libc::iovec { iov_base: there as *mut _, iov_len: size };
        let pid = slot.pid.load(Ordering::Acquire) as i32;
        // SAFETY: writes three numbers here; the task may be gone.
        let read = unsafe { libc::process_vm_readv(pid, &here, 1, &there, 1, 0) };
        let [start, end, to] = fixed;
        let is_fixed = read == size as isize && (start..end).contains(&address);
        if is_fixed { address - start + to } else { address }
    }

    /// The same for all tasks of a space, and for nobody else on any machine: made of the machine
    /// since it was started, the PIDs that it counts in, and the space's owner and place.
    pub fn mark(&self) -> u64 {
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let pids = std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino());
        let numbers = [pids, self.control.owner_pid().into(), self.control.layout().window()];
        let bytes = numbers.into_iter().flat_map(u64::to_le_bytes);
        // FNV-1a.
        boot.into_iter().chain(bytes).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    }

    /// Transfers of this task that were one copy in user space.
    pub fn copies(&self) -> u64 {
        let task = self.control.slot(self.id).task.load(Ordering::Acquire) as *const Task;
        // SAFETY: our own block, which lives as long as we do.
        unsafe { (*task).copies.load(Ordering::Relaxed) }
    }
}

/// The calling task; `None` in an ordinary process, and in a forked child of a task,
/// which has left the space.
pub fn task() -> Option<ThisTask> {
    static BLOCK: OnceLock<u64> = OnceLock::new();
    // SAFETY: getauxval reads a table. Only our loader makes an entry of this type.
    let block = *BLOCK.get_or_init(|| unsafe { libc::getauxval(AT_NAGAYA_TASK) });
    if block == 0 {
        return None;
    }
    let task = block as *const Task;
    // SAFETY: the block lives as long as the task does, and a forked child has its copy.
    unsafe {
        if (*task).detached.load(Ordering::Acquire) != 0 || (*task).pid != std::process::id() {
            return None;
        }
        Some(ThisTask { id: (*task).id, control: Control::from_task((*task).space) })
    }
}
