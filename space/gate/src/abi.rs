//! The structures that the gate shares with its owner; `c/abi.h` in Rust.
//!
//! They lie in memory that every task of the space can write. So they are reached
//! through atomics or raw pointers, never through a reference to plain fields.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Type of the entry in a task's auxiliary vector that is the address of its control block. It is
/// not inherited by execve, so exactly tasks, and forked copies of them, have it.
pub const AT_NAGAYA_TASK: u64 = 0x4e41_4741;

/// Bytes that the gate's code may take; the page of [`Space`] follows.
pub const TEXT_SIZE: usize = 65536;
/// Scanned images that a space remembers.
pub const IMAGES_MAX: usize = 512;
/// System-call sites that a space remembers.
pub const SITES_MAX: usize = 32768;
/// Regions that a space can have at a time: the bits of [`Slot::regions`].
pub const REGIONS_MAX: usize = 64;
/// Bytes of a program's path, with its terminating zero.
pub const EXE_MAX: usize = 4096;

/// State of a slot, as it stands in [`Slot::state`].
pub mod slot_state {
    /// No task.
    pub const FREE: u32 = 0;
    /// Taken; the program has not started yet.
    pub const STARTING: u32 = 1;
    /// A task lives.
    pub const RUNNING: u32 = 2;
    /// The task is about to leave by `execve`.
    pub const LEAVING: u32 = 3;
    /// No task may live here: a [`super::Region`] lies in the segment.
    pub const REGION: u32 = 4;
}

/// State of a region, as it stands in [`Region::state`].
pub mod region_state {
    /// No region.
    pub const FREE: u32 = 0;
    /// Its maker maps it.
    pub const MAKING: u32 = 1;
    /// Mapped; tasks may join.
    pub const LIVE: u32 = 2;
    /// Nobody seems to use it any more, and the owner unmaps it.
    pub const REMOVING: u32 = 3;
}

/// Protection of the tasks from each other, as it stands in [`Space::protection`].
pub mod protection {
    /// Tasks can read and write each other's memory.
    pub const NONE: u32 = 0;
    /// Tasks cannot write each other's memory.
    pub const WRITES: u32 = 1;
    /// Tasks cannot read or write each other's memory.
    pub const ALL: u32 = 2;
}

/// The layout of the directory of exported names, which the crate `control` defines and the gate
/// reads.
pub mod exports {
    /// Offset of the first entry from the start of the directory.
    pub const ENTRIES_AT: usize = 128;
    /// Number of entries.
    pub const ENTRIES: usize = 255;
    /// Bytes of an entry.
    pub const ENTRY_SIZE: usize = 128;
    /// Offset of the address in an entry.
    pub const ADDRESS_AT: usize = 8;
    /// Offset of the hold word in an entry.
    pub const HOLD_AT: usize = 120;
}

/// One entry a task ID.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    /// PID of the task; 0 if the ID is free.
    pub pid: AtomicU32,
    /// One of [`slot_state`].
    pub state: AtomicU32,
    /// Futex of the start: 1, then 2 when the program starts. The kernel clears it if the
    /// task ends, or leaves, before its libc has given it another word to clear.
    pub starting: AtomicU32,
    /// The export area is mapped, and stays so.
    pub export_mapped: AtomicU32,
    /// Counts the tasks that had this ID.
    pub generation: AtomicU64,
    /// Address of the control block.
    pub task: AtomicU64,
    /// Bit n: the task uses region n.
    pub regions: AtomicU64,
    /// The address space (domain) of the segment.
    pub domain: AtomicU32,
    unused: u32,
    reserved: [u64; 2],
}

impl Slot {
    /// Returns true if a task was announced here, also if it has ended since.
    pub fn is_announced(&self) -> bool {
        let state = self.state.load(Ordering::Acquire);
        state == slot_state::RUNNING || state == slot_state::LEAVING
    }
}

/// A file that tasks map at one address, outside their segments (`c/region.c`).
#[repr(C)]
#[derive(Debug)]
pub struct Region {
    /// One of [`region_state`].
    pub state: AtomicU32,
    /// ID of the task that maps it.
    pub maker: AtomicU32,
    /// ID + 1 of the segment that it lies in, or 0.
    pub slot: AtomicU32,
    prot: AtomicU32,
    /// Its address; 0 before that is known.
    pub address: AtomicU64,
    /// Bytes.
    pub size: AtomicU64,
    file: [AtomicU64; 3],
    /// In whose mm it is mapped.
    pub domain: AtomicU32,
    unused: u32,
}

/// A system-call site in an image.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Where the jump goes.
    pub(crate) offset: u32,
    nr: u16,
    /// Bytes between the first instruction and `syscall`.
    pub(crate) moved: u8,
    /// Bytes of the first instruction.
    pub(crate) first: u8,
}

/// The result of the scan of a file's executable part.
#[repr(C)]
#[derive(Debug)]
pub struct Image {
    state: u32,
    sites: u32,
    file: [u64; 5],
    offset: u64,
    length: u64,
    first_site: u32,
    unreached: u32,
}

/// The sizes for which the gate uses each copy loop.
#[repr(C)]
#[derive(Debug)]
pub struct CopyPlan {
    /// [`crate::CopyLoop`] by the number of the size's highest bit.
    pub loops: [AtomicU8; 64],
    /// [`COPY_AVX512`], [`COPY_FSGSBASE`].
    pub features: AtomicU32,
    unused: u32,
}

/// Bit of [`CopyPlan::features`]: registers are 64 bytes wide, and must be kept so.
pub const COPY_AVX512: u32 = 1;
/// Bit of [`CopyPlan::features`]: programs may execute `rdfsbase`.
pub const COPY_FSGSBASE: u32 = 2;

/// Parameters and state of a space, right behind the gate's code.
#[repr(C)]
#[derive(Debug)]
pub struct Space {
    /// [`crate::MAGIC`].
    pub magic: u32,
    /// [`crate::ABI`].
    pub abi: u32,
    /// Address of segment 0.
    pub base: u64,
    /// Bytes.
    pub segment_size: u64,
    /// Start of the control area.
    pub window: u64,
    /// IDs are below this.
    pub tasks_max: u32,
    /// IDs ever used are below this.
    pub tasks_high: AtomicU32,
    /// 1: a task has given a region up.
    pub regions_left: AtomicU32,
    /// PID of the creator.
    pub owner_pid: u32,
    /// TID of the thread that is notified of tasks that leave.
    pub watcher_tid: AtomicU32,
    /// Futex: counts exports, starts and ends.
    pub event: AtomicU32,
    images_used: AtomicU32,
    sites_used: AtomicU32,
    /// `tasks_max` slots.
    pub slots: *mut Slot,
    /// ID + 1 by PID.
    pub pids: *mut AtomicU32,
    /// [`IMAGES_MAX`] entries.
    pub images: *mut Image,
    /// [`SITES_MAX`] entries.
    pub sites: *mut Site,
    /// [`REGIONS_MAX`] entries.
    pub regions: *mut Region,
    /// The copy plan.
    pub copy: CopyPlan,
    /// Number of processes of the job on this node, inside this space or not; 0: unknown.
    pub tasks_expected: AtomicU32,
    /// 1: a dying task has kept others out of its core file.
    pub dump_marks: AtomicU32,
    /// Address at which the memory of all segments is mapped without access; 0: segments are
    /// private.
    pub alias: u64,
    /// The owner's descriptor of that memory.
    pub memory_fd: u32,
    /// The owner's thread that tasks [`Ask`]; 0: all is on this machine.
    pub agent_tid: AtomicU32,
    /// Its inode.
    pub memory_ino: u64,
    /// `tasks_max` entries.
    pub asks: *mut Ask,
    /// A bit a block of [`PUBLISHED_BLOCK`] bytes, from segment 0 on: other machines may have
    /// pages of it.
    pub published: *mut AtomicU64,
    /// The number that other machines know the owner's domain by.
    pub machine: AtomicU32,
    /// 1: the parts of a task lie at fixed addresses in its segment; 0: at random ones.
    pub fixed_addresses: u32,
    /// The pool that contains published blocks, if machines share memory; otherwise zeros.
    pub pool: Pool,
    /// `tasks_max` entries.
    pub outsides: *mut Outside,
    /// 1: tasks may give up rights, and keep access to the memory of the others.
    pub keep_access: AtomicU32,
    /// The owner's effective user at the space's creation.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// One of [`protection`].
    pub protection: AtomicU32,
}

/// A file or device, as /proc/PID/maps names it.
#[repr(C)]
#[derive(Debug)]
pub struct Pool {
    /// Its device: the major number in the upper half, the minor one in the lower.
    pub device: AtomicU64,
    /// Its inode; 0: there is none.
    pub inode: AtomicU64,
}

/// Bytes for which a bit of [`Space::published`] stands.
pub const PUBLISHED_BLOCK: u64 = 2 << 20;

/// The request of a task to the agent of a space over several machines (`c/machines.c`).
#[repr(C)]
#[derive(Debug)]
pub struct Ask {
    /// 1: it waits for an answer, by this futex; 0.
    pub state: AtomicU32,
    /// TID of the requesting thread, or 0; a futex.
    pub lock: AtomicU32,
    /// One of [`ask`].
    pub what: AtomicU32,
    /// TID of the thread that maps or unmaps memory of the task, if there is a [`Pool`], or 0; a
    /// futex.
    pub mappings: AtomicU32,
    /// The start address.
    pub address: AtomicU64,
    /// The size in bytes.
    pub size: AtomicU64,
}

impl Ask {
    /// Drops the request of a thread that has ended.
    pub fn forget(&self) {
        self.state.store(0, Ordering::Release);
        self.lock.store(0, Ordering::Release);
        self.mappings.store(0, Ordering::Release);
    }
}

/// The kinds of requests, the values of [`Ask::what`].
pub mod ask {
    /// Memory was mapped.
    pub const MAPPED: u32 = 0;
    /// Memory is to read as zeros on all machines.
    pub const DISCARD: u32 = 1;
    /// The memory's file is to hold what it holds.
    pub const BRING: u32 = 2;
    /// Wake the waiters of a futex in another machine's memory.
    pub const WAKE: u32 = 3;
}

/// Mappings outside its segment that a task can have at a time.
pub const OUTSIDE_MAX: usize = 31;

/// The mappings and contexts of a task outside its segment (`c/outside.c`).
#[repr(C)]
#[derive(Debug)]
pub struct Outside {
    /// 1: rings of asynchronous I/O may lie in the segment.
    pub uses_aio: AtomicU32,
    unused: u32,
    reserved: u64,
    /// Mappings at addresses that the kernel chose.
    pub mappings: [MappedRange; OUTSIDE_MAX],
}

/// A mapping; at address 0 or 1 there is none.
#[repr(C)]
#[derive(Debug)]
pub struct MappedRange {
    /// The start address.
    pub address: AtomicU64,
    /// The size in bytes.
    pub size: AtomicU64,
}

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Debug)]
pub struct KernelSigaction {
    handler: u64,
    flags: u64,
    restorer: u64,
    mask: u64,
}

/// The entry point, stack and registers of a program at its start.
#[repr(C)]
#[derive(Debug)]
pub struct Start {
    /// Initial stack pointer.
    pub sp: u64,
    /// Entry point of the dynamic linker, or of a static program.
    pub entry: u64,
    /// Set to 2 and woken once the starter's memory is no longer used; may be null.
    pub wake: *const AtomicU32,
    /// The program's signal mask.
    pub sigmask: u64,
}

/// A task's control block, in its segment behind the export area.
#[repr(C)]
#[derive(Debug)]
pub struct Task {
    /// Start of the segment.
    pub segment: u64,
    /// End of the segment.
    pub segment_end: u64,
    /// The space.
    pub space: *const Space,
    /// ID.
    pub id: u32,
    /// PID.
    pub pid: u32,
    /// Not 0 in the child of a fork, which has left the space.
    pub detached: AtomicU32,
    fork_lock: AtomicU32,
    forking: AtomicU32,
    fork_copied: AtomicU32,
    returns_lock: AtomicU32,
    no_madvise: AtomicU32,
    returns: [AtomicU64; 16],
    thunk: u64,
    /// Start of the heap.
    pub brk_start: u64,
    /// Current end of the heap.
    pub brk: AtomicU64,
    /// Maximum end of the heap.
    pub brk_limit: u64,
    /// Start of the program's mappings. Nagaya uses the addresses below.
    pub own_start: u64,
    /// Start of the mmap area.
    pub mmap_start: u64,
    /// End of the mmap area.
    pub mmap_end: u64,
    /// End of the mapping of the main stack.
    pub stack_end: u64,
    /// One bit a page of the mmap area.
    pub bitmap: *mut AtomicU64,
    /// One bit a page of the segment: it is shared memory.
    pub memory: *mut AtomicU64,
    /// One bit a page of the segment: it is shared memory that may be read and written.
    pub plain: *mut AtomicU64,
    small_cursor: AtomicU64,
    large_cursor: AtomicU64,
    /// Next free byte of the stub area.
    pub stub_next: u64,
    /// End of the stub area.
    pub stub_end: u64,
    fault_actions: [KernelSigaction; 2],
    /// Start of an image that is linked to fixed addresses; 0: none.
    pub fixed_start: u64,
    /// Its end.
    pub fixed_end: u64,
    /// Start of the same bytes in the segment, for other tasks.
    pub fixed_to: u64,
    /// Next free byte of its stub area.
    pub fixed_stubs: AtomicU64,
    /// End of that.
    pub fixed_stubs_end: u64,
    /// Transfers that were one copy in user space.
    pub copies: AtomicU64,
    /// Their bytes.
    pub copied_bytes: AtomicU64,
    /// System-call sites led through the gate.
    pub sites_patched: AtomicU64,
    /// Number of sites whose call number the patcher could not find, or which it could not reach.
    pub sites_unreached: AtomicU64,
    takes_faults: [AtomicU64; 64],
    rseq: [u64; 2],
    masks_fault: [AtomicU64; 2],
    /// The start of the program.
    pub start: Start,
    shms: [[u64; 2]; 64],
    more_shms: u64,
    /// Signal that the task receives at its parent's end (PR_SET_PDEATHSIG); 0: none.
    pub death_signal: u32,
    /// The same as the program set it.
    pub own_death_signal: AtomicU32,
    loss_reported: AtomicU32,
    /// PID of the parent that `death_signal` refers to.
    pub parent: u32,
    /// Bytes of `exe` without its terminating zero.
    pub exe_length: u32,
    /// Absolute path of the program.
    pub exe: [u8; EXE_MAX],
}

/// Sizes and offsets in the order of `gate_offsets` in `c/dispatch.c`.
#[cfg(test)]
pub(crate) fn offsets() -> Vec<usize> {
    use core::mem::{offset_of, size_of};
    vec![
        size_of::<Slot>(),
        size_of::<Site>(),
        size_of::<Image>(),
        size_of::<Space>(),
        size_of::<Task>(),
        offset_of!(Slot, generation),
        offset_of!(Slot, regions),
        offset_of!(Image, offset),
        offset_of!(Image, unreached),
        offset_of!(Space, base),
        offset_of!(Space, tasks_max),
        offset_of!(Space, event),
        offset_of!(Space, slots),
        offset_of!(Space, sites),
        offset_of!(Space, regions),
        offset_of!(Space, copy),
        offset_of!(Space, copy.features),
        offset_of!(Space, copy.features),
        offset_of!(Space, tasks_expected),
        offset_of!(Space, alias),
        offset_of!(Space, memory_fd),
        offset_of!(Space, memory_ino),
        offset_of!(Space, published),
        offset_of!(Space, machine),
        offset_of!(Space, pool),
        offset_of!(Space, outsides),
        offset_of!(Space, keep_access),
        offset_of!(Space, protection),
        exports::ENTRIES_AT,
        exports::ENTRIES,
        exports::ENTRY_SIZE,
        exports::ADDRESS_AT,
        exports::HOLD_AT,
        size_of::<Outside>(),
        offset_of!(Outside, mappings),
        size_of::<Ask>(),
        offset_of!(Ask, address),
        size_of::<Region>(),
        offset_of!(Region, address),
        offset_of!(Task, id),
        offset_of!(Task, returns),
        offset_of!(Task, brk_start),
        offset_of!(Task, mmap_start),
        offset_of!(Task, bitmap),
        offset_of!(Task, memory),
        offset_of!(Task, stub_next),
        offset_of!(Task, fault_actions),
        offset_of!(Task, copies),
        offset_of!(Task, start),
        offset_of!(Task, no_madvise),
        offset_of!(Task, shms),
        offset_of!(Task, more_shms),
        offset_of!(Task, death_signal),
        offset_of!(Task, parent),
        offset_of!(Task, exe_length),
        offset_of!(Task, exe),
    ]
}
