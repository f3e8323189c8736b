//! Fills a segment: control block, image, dynamic linker and stack, laid out as Linux
//! would lay out a process.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nagaya_gate::Gate;
use nagaya_gate::abi::{EXE_MAX, Task};
use nagaya_layout::{
    EXPORT_SIZE, HUGE_PAGE_SIZE, PAGE_SIZE, Seed, SegmentLayout, TASK_BLOCK_SIZE, align_up,
};
use rustix::io::Errno;

use crate::elf::Headers;
use crate::error::{LoadError, LoadErrorKind};
use crate::program::{Executable, Program};
use crate::shrink::Reading;
use crate::stack;

/// The properties of a task besides its program.
#[derive(Debug)]
pub struct TaskInfo<'a> {
    /// ID in the space.
    pub id: u32,
    /// PID of the calling process, which becomes the task.
    pub pid: u32,
    /// Its environment.
    pub environment: &'a [CString],
    /// Soft RLIMIT_STACK in bytes; `u64::MAX` if unlimited.
    pub stack_limit: u64,
    /// Signal mask to start with, bit n-1 for signal n.
    pub sigmask: u64,
    /// True if the export area of this ID is mapped already.
    pub export_mapped: bool,
    /// The random numbers that place its image, heap, libraries and stack in the segment.
    pub seed: Seed,
}

/// Addresses of the parts of a task.
struct Places {
    /// Distance of the image and its stubs from their lowest addresses.
    shift: u64,
    /// Start of the image.
    image: u64,
    /// The mmap area.
    mmap: Range<u64>,
    /// End of the arguments and environment in the stack.
    stack: u64,
}

impl Places {
    /// Returns `None` if the segment is too small for the image.
    fn new(segment: SegmentLayout, program: &Executable, info: &TaskInfo<'_>) -> Option<Self> {
        let (seed, headers) = (info.seed, &program.headers);
        let lowest = place(program, segment.image());
        let end = lowest.checked_add(headers.span())?;
        let shift = segment.image_shift(end, headers.align, seed);
        let mmap = segment.mmap_area_start(end + shift)?;
        let mmap = mmap + segment.mmap_shift(mmap, seed);
        let stack = segment.stack_top(seed);
        let mmap_end = segment.mmap_area_end(stack, info.stack_limit);
        Some(Self { shift, image: lowest + shift, mmap: mmap..mmap_end, stack })
    }
}

/// An image in memory.
struct Mapped {
    bias: u64,
    end: u64,
}

/// Anonymous or file memory at a fixed address.
///
/// # Safety
/// The range lies in the segment that is being filled and holds nothing of use.
unsafe fn map(
    address: u64,
    size: u64,
    protection: u32,
    flags: i32,
    file: Option<(i32, u64)>,
) -> Result<(), Errno> {
    let (fd, offset) = file.unwrap_or((-1, 0));
    let anonymous = if file.is_none() { libc::MAP_ANONYMOUS } else { 0 };
    // SAFETY: a fixed mapping over a range that this function requires to be free.
    let at = unsafe {
        libc::mmap(
            address as *mut _,
            size as usize,
            protection as i32,
            libc::MAP_PRIVATE | libc::MAP_FIXED | anonymous | flags,
            fd,
            offset as i64,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::NOMEM));
    }
    Ok(())
}

/// Zeroed memory of a task at a fixed address: private, or the space's where that is shared.
///
/// # Safety
/// As for `map`; `task` is null or the segment's mapped control block.
unsafe fn map_zeros(
    gate: Gate,
    task: *mut Task,
    address: u64,
    size: u64,
    protection: u32,
) -> Result<(), Errno> {
    // SAFETY: this function requires that the range is in use by nothing else.
    unsafe {
        if gate.is_shared() {
            gate.map_memory(task, address, size, protection).map_err(Errno::from_raw_os_error)
        } else {
            map(address, size, protection, 0, None)
        }
    }
}

/// The bytes of a file in memory that is shared, where a mapping of the file would be private.
///
/// # Safety
/// As for `map_zeros`.
unsafe fn read_file(
    gate: Gate,
    task: *mut Task,
    address: u64,
    size: u64,
    protection: u32,
    (file, offset): (&File, u64),
) -> Result<(), LoadErrorKind> {
    let pages = size.next_multiple_of(PAGE_SIZE);
    // SAFETY: this function requires an unused segment, and the memory is mapped before it is
    // written.
    unsafe {
        map_zeros(gate, task, address, pages, READ_WRITE).map_err(LoadErrorKind::Memory)?;
        let bytes = std::slice::from_raw_parts_mut(address as *mut u8, size as usize);
        let read = file.read_exact_at(bytes, offset);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => LoadErrorKind::Truncated,
            _ => LoadErrorKind::Memory(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        })?;
        if protection != READ_WRITE
            && libc::mprotect(address as *mut _, pages as usize, protection as i32) != 0
        {
            let error = Errno::from_io_error(&io::Error::last_os_error());
            return Err(LoadErrorKind::Memory(error.unwrap_or(Errno::NOMEM)));
        }
    }
    Ok(())
}

/// Address space for the stubs of an image that lies where it is linked to.
const FIXED_STUBS_SIZE: u64 = 64 << 20;

const READ_WRITE: u32 = (libc::PROT_READ | libc::PROT_WRITE) as u32;

/// Maps the head of the segment, which has the control block, or clears it where it is mapped.
///
/// # Safety
/// As for [`load`]. The export area is mapped if `export_mapped`.
unsafe fn map_head(gate: Gate, segment: SegmentLayout, export_mapped: bool) -> Result<(), Errno> {
    if export_mapped {
        // Peers may have written to it since the last task of this ID ended. SAFETY: `load`
        // requires that the caller may fill the segment, whose export area is mapped.
        unsafe {
            match gate.is_shared() {
                false => {
                    let (at, size) = (segment.start() as *mut _, EXPORT_SIZE as usize);
                    libc::madvise(at, size, libc::MADV_DONTNEED);
                }
                // Other domains look at it: its pages stay.
                true => ptr::write_bytes(segment.start() as *mut u8, 0, EXPORT_SIZE as usize),
            }
        }
    }
    let head = if export_mapped { segment.task_block() } else { segment.start() };
    let head_end = if gate.is_shared() { segment.stubs() } else { segment.memory_bitmap() };
    // SAFETY: `load` requires that the caller may fill the segment, whose head is mapped.
    unsafe {
        map_zeros(gate, ptr::null_mut(), head, head_end - head, READ_WRITE)?;
        if gate.is_shared() && !export_mapped {
            // A reader in another domain must not find a hole. Above all the space's owner has no
            // gate.
            ptr::write_bytes(segment.start() as *mut u8, 0, EXPORT_SIZE as usize);
        }
    }
    Ok(())
}

/// Fills in the control block, except for what follows from the image.
///
/// # Safety
/// `task` must be mapped, and nothing else may use it.
unsafe fn fill(
    task: *mut Task,
    gate: Gate,
    segment: SegmentLayout,
    places: &Places,
    program: &Program,
    info: &TaskInfo<'_>,
) {
    // SAFETY: this function requires that the block is mapped and unused.
    unsafe {
        (*task).segment = segment.start();
        (*task).segment_end = segment.end();
        (*task).space = gate.space();
        (*task).id = info.id;
        (*task).pid = info.pid;
        (*task).own_start = segment.image() + places.shift;
        (*task).mmap_start = places.mmap.start;
        (*task).mmap_end = places.mmap.end;
        (*task).bitmap = segment.bitmap() as *mut AtomicU64;
        (*task).memory = segment.memory_bitmap() as *mut AtomicU64;
        (*task).plain = segment.plain_bitmap() as *mut AtomicU64;
        // A jump reaches the stubs wherever the image lies.
        (*task).stub_next = segment.stubs() + places.shift;
        (*task).stub_end = segment.image() + places.shift;
        (*task).start.sigmask = info.sigmask;
        (*task).start.wake = ptr::null::<AtomicU32>();
        set_exe(task, &program.real_path);
    }
}

/// Maps the stack in the last part of the segment, with the program's arguments, which end at
/// `contents_end`.
///
/// # Safety
/// `task` must be the control block of the segment, whose end must be free.
unsafe fn map_stack(
    gate: Gate,
    task: *mut Task,
    contents_end: u64,
    contents: &stack::Contents<'_>,
    limit: u64,
    executable: bool,
) -> Result<(), LoadErrorKind> {
    let top = contents_end.next_multiple_of(PAGE_SIZE);
    let bytes = contents.build(contents_end).map_err(LoadErrorKind::Memory)?;
    if bytes.len() as u64 > limit / 4 {
        return Err(LoadErrorKind::ArgumentsTooLong);
    }
    let sp = contents_end - bytes.len() as u64;
    // As the kernel does: the arguments and 128 KiB; it grows up to its limit by itself. Shared
    // memory does not grow, and is not there until it is touched.
    let size = align_up(top - sp + (128 << 10), PAGE_SIZE).unwrap_or(limit).min(limit);
    let size = if gate.is_shared() { limit } else { size };
    let protection = READ_WRITE | if executable { libc::PROT_EXEC as u32 } else { 0 };
    let flags = libc::MAP_GROWSDOWN | libc::MAP_STACK | libc::MAP_NORESERVE;
    // SAFETY: the end of the segment is kept free of other mappings for the stack, and
    // `bytes` was built for exactly this place.
    unsafe {
        if gate.is_shared() {
            map_zeros(gate, task, top - size, size, protection).map_err(LoadErrorKind::Memory)?;
        } else {
            map(top - size, size, protection, flags, None).map_err(LoadErrorKind::Memory)?;
        }
        ptr::copy_nonoverlapping(bytes.as_ptr(), sp as *mut u8, bytes.len());
        (*task).stack_end = top;
        (*task).start.sp = sp;
    }
    Ok(())
}

/// Loads `program` into `segment` and returns its control block. The program starts with
/// [`Gate::start`] on the block's `start`.
///
/// After an error the segment may be half filled; the caller unmaps it.
///
/// # Safety
/// The segment must belong to the space of `gate`. Nothing may be mapped in it, except its export
/// area if `info.export_mapped`, and nothing else may use it.
pub unsafe fn load(
    gate: Gate,
    segment: SegmentLayout,
    program: &Program,
    info: &TaskInfo<'_>,
) -> Result<*mut Task, LoadError> {
    let path = &program.executable.path;
    let memory = |errno| LoadError::new(path, LoadErrorKind::Memory(errno));
    let too_small = || {
        let linker = program.linker.as_ref().map_or(0, |l| l.headers.span());
        let needed = program.executable.headers.span() + linker;
        LoadError::new(path, LoadErrorKind::SegmentTooSmall { needed, segment: segment.size() })
    };
    let places = Places::new(segment, &program.executable, info).ok_or_else(too_small)?;
    let (image_start, mmap_start) = (places.image, places.mmap.start);

    // SAFETY: `load` requires that the caller may fill the segment.
    unsafe { map_head(gate, segment, info.export_mapped) }.map_err(memory)?;
    let task = segment.task_block() as *mut Task;
    // SAFETY: just mapped, zeroed, large enough (a test in `gate` compares sizes), and not yet
    // known to anybody else.
    unsafe { fill(task, gate, segment, &places, program, info) };
    // SAFETY: the block is filled in, the stub area is unmapped.
    unsafe { gate.thunk_init(task) }.map_err(|e| memory(Errno::from_raw_os_error(e)))?;
    let is_fixed = program.executable.headers.is_fixed;
    // SAFETY: `image_start..image_end` lies before the mmap area and is unmapped.
    let image = unsafe { map_image(gate, task, &program.executable, image_start, !is_fixed) }?;
    let mut bias = image.bias;
    if is_fixed {
        // SAFETY: just mapped in the segment.
        unsafe { map_fixed(gate, task, &program.executable, image_start) }?;
        bias = 0;
    }
    let own_entry = bias.wrapping_add(program.executable.headers.entry);
    let mut entry = own_entry;
    let mut linker_base = 0;
    if let Some(linker) = &program.linker {
        let at = place(linker, mmap_start);
        let end = at + linker.headers.span();
        if end > places.mmap.end {
            return Err(too_small());
        }
        // SAFETY: the mmap area is unmapped, and its bitmap is set before any claim.
        unsafe {
            take(task, mmap_start, end);
            map_image(gate, task, linker, at, true)?;
        }
        linker_base = at.wrapping_sub(linker.headers.start());
        entry = linker_base.wrapping_add(linker.headers.entry);
    }
    // SAFETY: `load` requires an unused segment; the heap begins behind the image and ends before
    // the mmap area.
    unsafe {
        let heap = image.end + segment.heap_shift(image.end, mmap_start, info.seed);
        (*task).brk_start = heap;
        (*task).brk = AtomicU64::new(heap);
        (*task).brk_limit = mmap_start - PAGE_SIZE;
        (*task).start.entry = entry;
    }

    let contents = stack::Contents {
        arguments: &program.arguments,
        environment: info.environment,
        name: &program.name,
        auxiliary: stack::Auxiliary {
            headers: bias.wrapping_add(program.executable.headers.headers_address),
            headers_count: program.executable.headers.headers_count,
            linker_base,
            entry: own_entry,
            task: Some(task as u64),
            vdso: stack::own(libc::AT_SYSINFO_EHDR),
        },
    };
    let executable = program.executable.headers.executable_stack;
    let limit = info.stack_limit.min(segment.stack_size_max()) & !(PAGE_SIZE - 1);
    // SAFETY: the segment is `task`'s, and its end is free.
    unsafe { map_stack(gate, task, places.stack, &contents, limit, executable) }
        .map_err(|kind| LoadError::new(path, kind))?;
    // SAFETY: madvise(2) changes no memory here. Forks of others do not copy this segment (see the
    // gate's family.c). Gaps in the segment make the result ENOMEM, after the effect.
    unsafe {
        libc::madvise(segment.start() as *mut _, segment.size() as usize, libc::MADV_DONTFORK);
    }
    Ok(task)
}

/// Returns the address of the first page of an image that must not begin below `lowest`.
fn place(executable: &Executable, lowest: u64) -> u64 {
    let align = executable.headers.align;
    lowest.next_multiple_of(align) + executable.headers.start() % align
}

/// # Safety
/// `task` must be a mapped control block that nothing else uses.
unsafe fn set_exe(task: *mut Task, path: &Path) {
    let bytes = path.as_os_str().as_bytes();
    let length = bytes.len().min(EXE_MAX - 1);
    // SAFETY: `length` bytes and the zero that is already there fit.
    unsafe {
        ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut (*task).exe).cast::<u8>(), length);
        (*task).exe_length = length as u32;
    }
}

/// Takes the pages from the start of the mmap area up to `end`.
///
/// # Safety
/// `task` must be filled in and used by nothing else; `end` must lie in its mmap area.
unsafe fn take(task: *mut Task, start: u64, end: u64) {
    let pages = (end - start).div_ceil(PAGE_SIZE);
    for word in 0..pages.div_ceil(64) {
        let left = (pages - word * 64).min(64);
        let mask = if left == 64 { u64::MAX } else { (1 << left) - 1 };
        // SAFETY: the bitmap has a bit for every page of the segment.
        unsafe { (*(*task).bitmap.add(word as usize)).fetch_or(mask, Ordering::Relaxed) };
    }
}

/// Maps an image at the fixed addresses to which it is linked, outside the segment. Its writable
/// memory is the memory in the segment at `there`. The mm must have no mappings at these
/// addresses.
///
/// # Safety
/// [`map_image`] must have mapped the image at `there`; `task` is as for [`Gate::patch`].
unsafe fn map_fixed(
    gate: Gate,
    task: *mut Task,
    executable: &Executable,
    there: u64,
) -> Result<(), LoadError> {
    let fail = |kind| LoadError::new(&executable.path, kind);
    let memory = |errno| fail(LoadErrorKind::Memory(errno));
    let last = || Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::NOMEM);
    let (start, size) = (executable.headers.start(), executable.headers.span());
    let fd = executable.file.as_raw_fd();
    // SAFETY: MAP_FIXED_NOREPLACE changes no existing mapping, and the later maps replace only
    // this one. `load` requires that nothing else uses the block.
    unsafe {
        let flags = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | libc::MAP_NORESERVE
            | libc::MAP_FIXED_NOREPLACE;
        let at = libc::mmap(start as *mut _, size as usize, libc::PROT_NONE, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return Err(match last() {
                Errno::EXIST | Errno::PERM => fail(LoadErrorKind::Taken(start)),
                errno => memory(errno),
            });
        }
        (*task).fixed_start = start;
        (*task).fixed_end = start + size;
        (*task).fixed_to = there;
        let stubs = fixed_stubs(&executable.headers);
        (*task).fixed_stubs = AtomicU64::new(stubs.start);
        (*task).fixed_stubs_end = stubs.end;
        for load in &executable.headers.loads {
            let page = load.address & !(PAGE_SIZE - 1);
            let end = (load.address + load.memory_size).next_multiple_of(PAGE_SIZE);
            if load.protection & libc::PROT_WRITE as u32 != 0 {
                let (from, flags) =
                    (there + (page - start), libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
                let at = libc::mremap(
                    from as *mut _,
                    0,
                    (end - page) as usize,
                    flags,
                    page as *mut libc::c_void,
                );
                if at == libc::MAP_FAILED {
                    return Err(memory(last()));
                }
                // As private memory is: a fork's child copies it.
                libc::madvise(at, (end - page) as usize, libc::MADV_DOFORK);
                continue;
            }
            let bytes = load.address - page + load.file_size;
            let offset = load.offset - (load.address - page);
            map(page, bytes, load.protection, 0, Some((fd, offset))).map_err(memory)?;
            if load.protection & libc::PROT_EXEC as u32 != 0 {
                let reading = Reading::begin(page, page + bytes);
                gate.patch(task, page as usize, bytes, fd, offset, load.protection)
                    .map_err(|e| memory(Errno::from_raw_os_error(e)))?;
                if reading.is_lost() {
                    return Err(fail(LoadErrorKind::Truncated));
                }
            }
        }
    }
    Ok(())
}

/// Returns the range for the stubs of an image that is mapped at its fixed addresses.
fn fixed_stubs(headers: &Headers) -> Range<u64> {
    let start = (headers.start() + headers.span()).next_multiple_of(HUGE_PAGE_SIZE);
    start..start + FIXED_STUBS_SIZE
}

/// All addresses outside its segment that a program linked to fixed addresses takes; empty for
/// others.
pub fn fixed_addresses(headers: &Headers) -> Range<u64> {
    match headers.is_fixed {
        true => headers.start()..fixed_stubs(headers).end,
        false => 0..0,
    }
}

/// Maps the loadable parts of an executable so that its first page is at `at`. If it `runs` there,
/// redirects its system-call sites to the gate.
///
/// # Safety
/// Nothing may be mapped in the image's span at `at`; `task` is as for [`Gate::patch`].
unsafe fn map_image(
    gate: Gate,
    task: *mut Task,
    executable: &Executable,
    at: u64,
    runs: bool,
) -> Result<Mapped, LoadError> {
    let fail = |kind| LoadError::new(&executable.path, kind);
    let memory = |errno| fail(LoadErrorKind::Memory(errno));
    let bias = at.wrapping_sub(executable.headers.start());
    let fd = executable.file.as_raw_fd();
    let mut end = at;
    for load in &executable.headers.loads {
        let in_page = load.address % PAGE_SIZE;
        let start = bias.wrapping_add(load.address - in_page);
        let file_end = start + in_page + load.file_size;
        let memory_end = start + in_page + load.memory_size;
        let file_pages_end = file_end.next_multiple_of(PAGE_SIZE);
        let memory_pages_end = memory_end.next_multiple_of(PAGE_SIZE);
        let zeros = if load.file_size == 0 { start } else { file_pages_end };
        // SAFETY: all parts lie within the span, which this function requires to be free. They are
        // in ascending order, so a later one replaces at most the last page of an earlier one, as
        // in execve.
        unsafe {
            if load.file_size > 0 {
                let size = file_end - start;
                let offset = load.offset - in_page;
                if gate.is_shared() && load.protection & libc::PROT_WRITE as u32 != 0 {
                    let file = (&executable.file, offset);
                    read_file(gate, task, start, size, load.protection, file).map_err(fail)?;
                } else {
                    map(start, size, load.protection, 0, Some((fd, offset))).map_err(memory)?;
                }
                let reading = Reading::begin(start, file_pages_end);
                if runs && load.protection & libc::PROT_EXEC as u32 != 0 {
                    gate.patch(task, start as usize, size, fd, offset, load.protection)
                        .map_err(|e| memory(Errno::from_raw_os_error(e)))?;
                }
                // Zeros up to the end of the page, where the file's bytes would show. Beyond the
                // end of the file the kernel has done this.
                if memory_end > file_end && load.protection & libc::PROT_WRITE as u32 != 0 {
                    ptr::write_bytes(file_end as *mut u8, 0, (file_pages_end - file_end) as usize);
                }
                if reading.is_lost() {
                    return Err(fail(LoadErrorKind::Truncated));
                }
            }
            if memory_pages_end > zeros {
                map_zeros(gate, task, zeros, memory_pages_end - zeros, load.protection)
                    .map_err(memory)?;
            }
        }
        end = end.max(memory_pages_end);
    }
    Ok(Mapped { bias, end })
}

const _: () =
    assert!(EXPORT_SIZE.is_multiple_of(PAGE_SIZE) && TASK_BLOCK_SIZE >= size_of::<Task>() as u64);
const _: () = assert!(HUGE_PAGE_SIZE.is_multiple_of(PAGE_SIZE));
