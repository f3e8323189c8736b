//! The calling process, and its task if it is one.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use nagaya_gate::abi::{AT_NAGAYA_TASK, Task};
use nagaya_gate::{ABI, MAGIC};
use nagaya_layout::PIDS_MAX;
use proc::host::{boot_id, pid_namespace};

use crate::area::Control;
use crate::hash::fnv1a;

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

    /// Returns the address at which other tasks find memory of this one. Static data of a program
    /// that is linked to fixed addresses lie in its segment for others; all other memory has the
    /// same address.
    pub fn for_others(&self, address: u64) -> u64 {
        let task = self.control.slot(self.id).task.load(Ordering::Acquire) as *const Task;
        // SAFETY: the task's own block, which was filled before it started.
        let (start, end, to) =
            unsafe { ((*task).fixed_start, (*task).fixed_end, (*task).fixed_to) };
        if (start..end).contains(&address) { address - start + to } else { address }
    }

    /// Returns the address at which this task finds memory of task `id` at `address`: the
    /// counterpart of [`for_others`](Self::for_others).
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

    /// Returns a number that identifies the space among all spaces of all hosts. It is a hash of
    /// the host's boot ID, the PID namespace, the PID of the space's owner, and the space's
    /// address.
    pub fn mark(&self) -> u64 {
        let owner = u128::from(self.control.owner_pid());
        let (namespace, window) = (pid_namespace().into(), self.control.layout().window().into());
        let numbers = [boot_id().unwrap_or_default(), namespace, owner, window];
        fnv1a(numbers.map(u128::to_le_bytes).as_flattened())
    }

    /// Transfers of this task that were one copy in user space.
    pub fn copies(&self) -> u64 {
        self.block().copies.load(Ordering::Relaxed)
    }

    /// Their bytes.
    pub fn copied_bytes(&self) -> u64 {
        self.block().copied_bytes.load(Ordering::Relaxed)
    }

    fn block(&self) -> &Task {
        let task = self.control.slot(self.id).task.load(Ordering::Acquire) as *const Task;
        // SAFETY: the task's own block, which lives as long as the task.
        unsafe { &*task }
    }
}

/// The space was made by another version of Nagaya: its magic number and the version of its
/// structures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OtherVersion(u32, u32);

impl std::fmt::Display for OtherVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let made_by = match self.0 {
            MAGIC => format!("a nagaya with structures of version {}", self.1),
            _ => "an unknown nagaya".to_owned(),
        };
        write!(
            f,
            "nagaya: the space was made by {made_by}, and a library of nagaya {} in this task needs \
             version {ABI}: it works as outside a space (install all of one version)",
            env!("CARGO_PKG_VERSION")
        )
    }
}

/// The task whose control block is at `block`. `None` in a forked child, which has left the space.
///
/// # Safety
/// `block` is the address of a control block, or of a forked child's copy of one.
unsafe fn task_at(block: *const Task) -> Result<Option<ThisTask>, OtherVersion> {
    // SAFETY: the block lives as long as the task does, and a forked child has its copy. All
    // versions have the space's address at the same offset, and magic number and version first
    // in the space.
    let (space, magic, abi) = unsafe {
        let space = (*block).space;
        (space, (*space).magic, (*space).abi)
    };
    if (magic, abi) != (MAGIC, ABI) {
        return Err(OtherVersion(magic, abi));
    }
    // SAFETY: a block of our version, which lives as long as the task does.
    unsafe {
        if (*block).detached.load(Ordering::Acquire) != 0 || (*block).pid != std::process::id() {
            return Ok(None);
        }
        Ok(Some(ThisTask { id: (*block).id, control: Control::at(space) }))
    }
}

/// The calling task; `None` in an ordinary process, and in a forked child of a task,
/// which has left the space. Also `None` in the space of another version of Nagaya, which one
/// line on stderr reports.
pub fn task() -> Option<ThisTask> {
    static BLOCK: OnceLock<u64> = OnceLock::new();
    let block = *BLOCK.get_or_init(|| {
        // SAFETY: getauxval reads a table. Only our loader makes an entry of this type.
        let block = unsafe { libc::getauxval(AT_NAGAYA_TASK) };
        // SAFETY: if there is an entry, it is the address of our control block.
        match (block != 0).then(|| unsafe { task_at(block as *const Task) }) {
            Some(Err(other)) => {
                proc::error_line!("{other}");
                0
            }
            _ => block,
        }
    });
    if block == 0 {
        return None;
    }
    // SAFETY: it is the address of our control block, of our version.
    unsafe { task_at(block as *const Task) }.ok()?
}

#[cfg(test)]
mod tests {
    use nagaya_gate::abi::Space;

    use super::*;

    /// A space and a task of it in this process, all else zero.
    fn block(magic: u32, abi: u32) -> &'static Task {
        // SAFETY: all zero is a value of both: integers, atomics and raw pointers.
        let (mut space, mut task) = unsafe {
            (Box::<Space>::new(std::mem::zeroed()), Box::<Task>::new(std::mem::zeroed()))
        };
        (space.magic, space.abi) = (magic, abi);
        task.space = Box::leak(space);
        (task.id, task.pid) = (7, std::process::id());
        Box::leak(task)
    }

    #[test]
    fn a_library_of_another_version_is_in_no_space_and_says_so_in_one_line() {
        // SAFETY: control blocks that live for ever.
        let at = |magic, abi| unsafe { task_at(block(magic, abi)) };
        assert_eq!(at(MAGIC, ABI).expect("our version").expect("a task").id, 7);
        let line = at(MAGIC, ABI + 1).expect_err("another version").to_string();
        assert!(line.contains(&format!("of version {}", ABI + 1)), "{line}");
        assert!(line.contains(&format!("needs version {ABI}")) && !line.contains('\n'), "{line}");
        let unknown = at(MAGIC + 1, ABI).expect_err("no nagaya's").to_string();
        assert!(unknown.contains("unknown"), "{unknown}");
    }

    #[test]
    fn a_forked_child_is_no_task() {
        let task = block(MAGIC, ABI);
        task.detached.store(1, Ordering::Release);
        // SAFETY: a control block that lives for ever.
        assert!(unsafe { task_at(task) }.expect("our version").is_none());
    }
}
