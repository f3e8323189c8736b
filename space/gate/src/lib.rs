//! The gate: freestanding code to which a task's patched system-call sites jump.
//!
//! A shared address space makes some system calls wrong: one `brk` and one search for free
//! addresses for each mm, one `/proc/self/exe`, a `fork` that would copy all tasks. It makes one
//! kind needless: `process_vm_readv` between tasks is a plain copy. The gate answers these in user
//! space. It is written in C and assembly (`c/`), since it may use no thread area, no libc, and no
//! vector register except those that `c/loops.S` restores. `build.rs` turns it into one flat
//! image, which is mapped once for each space. This crate embeds the image and provides its entry
//! points to the loader.
//!
//! `c/entry.S` is the best file to begin with, then `c/dispatch.c`, `c/patch.c` and `c/sites.c`.

pub mod abi;
pub mod sites;

use abi::{Space, Start, Task};

/// `magic` of the head and of [`Space`]: `GATE_MAGIC` of `c/abi.h`.
pub const MAGIC: u32 = 0x6574_6167;
/// Version of the structures: `GATE_ABI` of `c/abi.h`, which the image carries in its head. A test
/// and [`Gate::at`] compare the two.
pub const ABI: u32 = 8;

/// The code, to be mapped at the start of a space's control area.
pub static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/gate.bin"));

/// `gate_head` in `c/entry.S`: offsets of the entry points.
struct Head;

impl Head {
    const FAULTS_INIT: usize = 9;
    const THUNK_INIT: usize = 10;
    const COPY_STRING: usize = 7;
    const COPY_VECTOR: usize = 11;
    const COPY_STREAM: usize = 12;
    const MAP_MEMORY: usize = 13;
    const START: usize = 4;
    const PATCH: usize = 5;

    fn word(index: usize) -> usize {
        let at = index * 4;
        u32::from_le_bytes([IMAGE[at], IMAGE[at + 1], IMAGE[at + 2], IMAGE[at + 3]]) as usize
    }
}

/// The gate of one space, at the address where its image is mapped executable.
#[derive(Debug, Clone, Copy)]
pub struct Gate {
    address: usize,
}

/// The loops that copy (`c/loops.S`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyLoop {
    /// `rep movsb`.
    String = 0,
    /// AVX2, with prefetch.
    Vector = 1,
    /// AVX2, non-temporal stores.
    Stream = 2,
}

impl Gate {
    /// Returns the gate that is mapped at `address`.
    ///
    /// # Safety
    /// [`IMAGE`] must be mapped there, readable and executable. A filled-in [`Space`] must lie
    /// [`abi::TEXT_SIZE`] bytes behind it. Both must stay as long as the value is used.
    pub unsafe fn at(address: usize) -> Self {
        assert_eq!((Head::word(0) as u32, Head::word(1) as u32), (MAGIC, ABI));
        Self { address }
    }

    /// The space's parameters.
    pub fn space(&self) -> *mut Space {
        (self.address + abi::TEXT_SIZE) as *mut Space
    }

    fn entry(&self, index: usize) -> usize {
        self.address + Head::word(index)
    }

    /// Redirects the system-call sites of a new mapping of the file `fd` to the gate. Sites whose
    /// number cannot be found are counted in the task. Error: errno of mmap or mprotect; the
    /// mapping must not be executed then.
    ///
    /// # Safety
    /// `task` must be a control block of this space that nothing else uses yet. `text` must be a
    /// private mapping of `length` bytes at `offset` of the file with protection `prot`, in which
    /// no code runs.
    pub unsafe fn patch(
        &self,
        task: *mut Task,
        text: usize,
        length: u64,
        fd: i32,
        offset: u64,
        prot: u32,
    ) -> Result<(), i32> {
        type Patch = unsafe extern "C" fn(*mut Task, usize, u64, i32, u64, u32) -> i64;
        // SAFETY: the entry has this type (gate_patch in c/gate.h), and `at` requires that it is
        // mapped and executable. This function requires the rest.
        let result = unsafe {
            let patch: Patch = core::mem::transmute(self.entry(Head::PATCH));
            patch(task, text, length, fd, offset, prot)
        };
        if result < 0 { Err(-result as i32) } else { Ok(()) }
    }

    /// Returns true if the tasks' memory is shared memory of the space.
    pub fn is_shared(&self) -> bool {
        // SAFETY: written before anybody else knows of the space, and never again.
        unsafe { (*self.space()).alias != 0 }
    }

    /// Maps the space's memory over this range of a segment. `task` may be null while its control
    /// block is not mapped. Error: errno of mremap or mprotect.
    ///
    /// # Safety
    /// The space's memory must be shared. The range must lie in a segment that the caller may
    /// fill. `task`, if not null, must be that segment's control block.
    pub unsafe fn map_memory(
        &self,
        task: *mut Task,
        address: u64,
        size: u64,
        prot: u32,
    ) -> Result<(), i32> {
        type MapMemory = unsafe extern "C" fn(*mut Task, u64, u64, u32) -> i64;
        // SAFETY: as in `patch`; the type is map_memory's in c/gate.h.
        let result = unsafe {
            let map: MapMemory = core::mem::transmute(self.entry(Head::MAP_MEMORY));
            map(task, address, size, prot)
        };
        if result < 0 { Err(-result as i32) } else { Ok(()) }
    }

    /// Makes the page through which the kernel enters the task's fault handler.
    /// Error: a negative errno of mmap or mprotect.
    ///
    /// # Safety
    /// As for [`Gate::patch`]; the stub area of the task is unmapped.
    pub unsafe fn thunk_init(&self, task: *mut Task) -> Result<(), i32> {
        type ThunkInit = unsafe extern "C" fn(*mut Task) -> i64;
        // SAFETY: as in `patch`; the type is gate_thunk_init's.
        let result = unsafe {
            let init: ThunkInit = core::mem::transmute(self.entry(Head::THUNK_INIT));
            init(task)
        };
        if result < 0 { Err(-result as i32) } else { Ok(()) }
    }

    /// Installs the gate's handlers for SIGSEGV and SIGBUS in the calling process.
    ///
    /// # Safety
    /// The calling process must be the one that becomes `task`, and `thunk_init` must have
    /// succeeded.
    pub unsafe fn faults_init(&self, task: *mut Task) {
        type FaultsInit = unsafe extern "C" fn(*mut Task);
        // SAFETY: as in `patch`; the type is gate_faults_init's.
        unsafe {
            let init: FaultsInit = core::mem::transmute(self.entry(Head::FAULTS_INIT));
            init(task);
        }
    }

    /// Copies with one of the loops, outside a task: a bad address is an ordinary fault.
    ///
    /// # Safety
    /// As for `copy_nonoverlapping`; the processor and the system know AVX2 and XGETBV
    /// with ECX = 1, if the loop is a vector loop.
    pub unsafe fn copy(&self, by: CopyLoop, to: *mut u8, from: *const u8, size: usize) {
        type Copy = unsafe extern "C" fn(*mut u8, *const u8, usize) -> u64;
        let entry = match by {
            CopyLoop::String => Head::COPY_STRING,
            CopyLoop::Vector => Head::COPY_VECTOR,
            CopyLoop::Stream => Head::COPY_STREAM,
        };
        // SAFETY: as in `patch`; the type is that of all loops.
        let left = unsafe {
            let copy: Copy = core::mem::transmute(self.entry(entry));
            copy(to, from, size)
        };
        assert_eq!(left, 0);
    }

    /// Becomes the program: switches to its stack, wakes the starter, jumps.
    ///
    /// # Safety
    /// `start` lies in the task's block and describes a loaded program; nothing that the
    /// calling process must still release is left.
    pub unsafe fn start(&self, start: *const Start) -> ! {
        type StartFn = unsafe extern "C" fn(*const Start) -> !;
        // SAFETY: as in `patch`; the type is gate_start's.
        unsafe {
            let enter: StartFn = core::mem::transmute(self.entry(Head::START));
            enter(start)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_names_this_version() {
        assert_eq!(Head::word(0) as u32, MAGIC);
        assert_eq!(Head::word(1) as u32, ABI);
        assert!(IMAGE.len() <= abi::TEXT_SIZE);
        for index in 2..=13 {
            assert!(Head::word(index) < IMAGE.len(), "entry {index}");
        }
    }

    #[test]
    fn rust_and_c_agree_on_every_structure() {
        let table = Head::word(8);
        let read = |n: usize| {
            let at = table + n * 4;
            u32::from_le_bytes(IMAGE[at..at + 4].try_into().unwrap()) as usize
        };
        let ours = abi::offsets();
        let theirs: Vec<usize> = (0..ours.len()).map(read).collect();
        assert_eq!(theirs, ours);
    }

    #[test]
    fn a_space_fits_into_its_page_and_a_task_into_its_block() {
        assert!(size_of::<Space>() <= 4096);
        assert!(size_of::<Task>() <= 16 << 10);
    }
}
