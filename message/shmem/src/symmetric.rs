//! Symmetric objects: the symmetric heap and the program's static data.
//!
//! An object's address in another PE is the own address plus a distance. There is one distance for
//! the heap and one for static data, for each PE. The parts of a segment have random distances from
//! each other, so a distance is a value from a table, not a multiple of the segment size.

use std::ffi::{c_int, c_void};
use std::ptr;

use control::fnv1a;

/// Alignment of the heap, and the largest one of an object. Programs ask for up to 16 MiB.
pub const HEAP_ALIGNMENT: usize = 16 << 20;

/// A range of this PE's memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct Range {
    /// First address.
    pub start: usize,
    /// Size in bytes.
    pub bytes: usize,
}

impl Range {
    /// Returns true if the bytes lie in this range.
    #[inline(always)]
    pub fn contains(&self, address: usize, bytes: usize) -> bool {
        let at = address.wrapping_sub(self.start);
        at < self.bytes && bytes <= self.bytes - at
    }
}

/// The program: its static data, and a number that identifies it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Program {
    /// Initialised and zeroed data.
    pub data: Range,
    /// Equal for equal programs.
    pub number: u64,
}

impl Program {
    /// Returns the program of this process.
    pub fn this() -> Self {
        let mut program = Self::default();
        // SAFETY: the callback gets the pointer that is passed here.
        unsafe { libc::dl_iterate_phdr(Some(first_object), (&raw mut program).cast()) };
        program
    }
}

/// Reads the first object of the process, which is the program.
unsafe extern "C" fn first_object(
    info: *mut libc::dl_phdr_info,
    _: usize,
    program: *mut c_void,
) -> c_int {
    // SAFETY: `dl_iterate_phdr` passes the description of a loaded object and its headers.
    let (base, headers) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        (info.dlpi_addr as usize, headers)
    };
    let is_data = |h: &&libc::Elf64_Phdr| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_W != 0;
    let mut all: Option<(usize, usize)> = None;
    for header in headers.iter().filter(is_data) {
        let start = base.wrapping_add(header.p_vaddr as usize);
        let end = start + header.p_memsz as usize;
        all = Some(all.map_or((start, end), |(s, e)| (s.min(start), e.max(end))));
    }
    // Two builds of a program differ in these numbers nearly always.
    let words = headers.iter().flat_map(|h| {
        [u64::from(h.p_type) << 32 | u64::from(h.p_flags), h.p_vaddr, h.p_filesz, h.p_memsz]
    });
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    let (start, end) = all.unwrap_or_default();
    // SAFETY: `Program::this` passes a pointer to its variable.
    unsafe {
        let data = Range { start, bytes: end - start };
        *program.cast::<Program>() = Program { data, number: fnv1a(&bytes) };
    }
    1
}

/// Maps memory for a symmetric heap of `bytes` bytes. None if there is no room.
pub fn map_heap(bytes: usize) -> Option<Range> {
    let mapped = bytes.checked_add(HEAP_ALIGNMENT)?;
    let (rights, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    );
    // SAFETY: a new mapping at an address that the kernel or the gate chooses.
    let at = unsafe { libc::mmap(ptr::null_mut(), mapped, rights, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return None;
    }
    let start = at.addr().next_multiple_of(HEAP_ALIGNMENT);
    // SAFETY: the advice concerns the mapping that was just made. Without huge pages it has no
    // effect.
    unsafe { libc::madvise(at.with_addr(start), bytes, libc::MADV_HUGEPAGE) };
    Some(Range { start, bytes })
}
