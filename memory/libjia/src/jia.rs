//! `include/jia.h`. A call that fails ends the job with one line, as in JIAJIA.

use std::ffi::{CStr, c_char, c_float, c_int, c_long, c_uint, c_ulong, c_void};
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use dsm::error::DsmError;
use dsm::request_table::Setting;
use dsm::task::Task;

use crate::{allocations, reduction, this};

/// `MSG_PROC_ALL` and `MSG_TAG_ALL`.
const ALL: c_int = -1;
/// `HMIG` to `WVEC`.
const HMIG: c_int = 0;
const ADWD: c_int = 1;
const BROADCAST: c_int = 2;
const LOADBAL: c_int = 3;
const WVEC: c_int = 4;

/// Lets the task do something, which must not fail.
fn must<T>(call: &str, work: impl FnOnce(&mut Task) -> Result<T, DsmError>) -> T {
    this::with(work).unwrap_or_else(|error| this::end(&format!("{call}: {error}")))
}

/// A number that must not be negative.
fn number(call: &str, what: &str, number: c_int) -> u32 {
    u32::try_from(number)
        .unwrap_or_else(|_| this::end(&format!("{call}: {what} {number} is negative")))
}

/// # Safety
/// `size` bytes at `at` can be read, as jia.h requires of the caller.
unsafe fn bytes<'a>(at: *const c_void, size: usize) -> &'a [u8] {
    // SAFETY: as the caller promises.
    if size == 0 { &[] } else { unsafe { from_raw_parts(at.cast(), size) } }
}

/// # Safety
/// `size` bytes at `at` can be written, as jia.h requires of the caller.
unsafe fn bytes_mut<'a>(at: *mut c_void, size: usize) -> &'a mut [u8] {
    // SAFETY: as the caller promises.
    if size == 0 { &mut [] } else { unsafe { from_raw_parts_mut(at.cast(), size) } }
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_init(_: c_int, _: *mut *mut c_char) {
    if let Err(failed) = this::join() {
        let line = format!("jia_init: {}", failed.error);
        match failed.error {
            // The task that there is ends its job.
            DsmError::State(_) => this::end(&line),
            _ => {
                this::flush();
                failed.end_all(&line)
            }
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_exit() {
    if let Err(error) = this::leave() {
        this::end(&format!("jia_exit: {error}"));
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_task() -> c_int {
    this::RANK.load(Ordering::Relaxed) as c_int
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_tasks() -> c_int {
    this::SIZE.load(Ordering::Relaxed) as c_int
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn jia_error() {
    unsafe extern "C" {
        fn nagaya_jia_error();
    }
    // The arguments are where the caller has put them.
    std::arch::naked_asm!("jmp {}", sym nagaya_jia_error)
}

/// To `c/error.c`.
#[unsafe(no_mangle)]
unsafe extern "C" fn nagaya_jia_end(line: *const c_char) -> ! {
    // SAFETY: a string of the shim's.
    this::end(unsafe { CStr::from_ptr(line) }.to_string_lossy().trim_end())
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_alloc(size: usize) -> c_ulong {
    /// How many allocations had no host of their own.
    static TURNS: AtomicU32 = AtomicU32::new(0);
    let host = TURNS.fetch_add(1, Ordering::Relaxed) % this::SIZE.load(Ordering::Relaxed);
    must("jia_alloc", |task| allocations::allocate(task, &[(size, 0, host)])) as c_ulong
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_alloc1(size: usize) -> c_ulong {
    must("jia_alloc1", |task| allocations::allocate(task, &[(size, 0, 0)])) as c_ulong
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_alloc2(size: usize, block: usize) -> c_ulong {
    must("jia_alloc2", |task| allocations::allocate(task, &[(size, block, 0)])) as c_ulong
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_alloc2p(size: usize, host: c_int) -> c_ulong {
    let host = number("jia_alloc2p", "host", host);
    must("jia_alloc2p", |task| allocations::allocate(task, &[(size, 0, host)])) as c_ulong
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_alloc3(size: usize, block: usize, start: c_int) -> c_ulong {
    let start = number("jia_alloc3", "host", start);
    must("jia_alloc3", |task| allocations::allocate(task, &[(size, block, start)])) as c_ulong
}

/// Memory of blocks that follow each other; `place` gives index and host of the next.
fn in_blocks(
    call: &str,
    total: usize,
    blocks: &[c_int],
    place: impl Fn(usize) -> (usize, u32),
) -> c_ulong {
    must(call, |task| {
        if blocks.is_empty() {
            return Err(DsmError::Argument("an array of no blocks; give at least one".into()));
        }
        let (mut pieces, mut left) = (Vec::new(), total);
        while left > 0 {
            let (index, host) = place(pieces.len());
            let block = usize::try_from(blocks[index]).ok().filter(|&bytes| bytes > 0);
            let block = block.ok_or_else(|| {
                DsmError::Argument(format!("block {index} of {} bytes; give more", blocks[index]))
            })?;
            let bytes = block.next_multiple_of(task.page_bytes()).min(left);
            pieces.push((bytes, 0, host));
            left -= bytes;
        }
        allocations::allocate(task, &pieces)
    }) as c_ulong
}

/// # Safety
/// As C callers promise: an array of this length.
unsafe fn array<'a>(call: &str, at: *const c_int, length: c_int) -> &'a [c_int] {
    let length = number(call, "length", length) as usize;
    // SAFETY: as the caller promises.
    if length == 0 { &[] } else { unsafe { from_raw_parts(at, length) } }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_alloc4(
    total: usize,
    blocks: *const c_int,
    length: c_int,
    start: c_int,
) -> c_ulong {
    // SAFETY: as the caller promises.
    let blocks = unsafe { array("jia_alloc4", blocks, length) };
    let (start, hosts) = (number("jia_alloc4", "host", start) as usize, jia_tasks() as usize);
    if start >= hosts {
        this::end(&format!("jia_alloc4: host {start}: there are {hosts}, from 0 on"));
    }
    // Each host gets a block of the same size, until the turn is at host 0: then the next size.
    let place = |number: usize| {
        let turn = start + number;
        (turn / hosts % blocks.len(), (turn % hosts) as u32)
    };
    in_blocks("jia_alloc4", total, blocks, place)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_alloc_array(
    total: usize,
    sizes: *const c_int,
    length: c_int,
) -> c_ulong {
    // SAFETY: as the caller promises.
    let blocks = unsafe { array("jia_alloc_array", sizes, length) };
    let hosts = jia_tasks() as usize;
    if blocks.len() > hosts {
        this::end(&format!("jia_alloc_array: {length} blocks for {hosts} hosts; give no more"));
    }
    let place = |number: usize| {
        let host = number % blocks.len();
        (host, host as u32)
    };
    in_blocks("jia_alloc_array", total, blocks, place)
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_alloc_random(size: usize) -> c_ulong {
    /// The same sequence in all tasks.
    static STATE: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);
    // Knuth's multiplier; the high bits are the random ones.
    let next = |state: u64| state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    let state = next(STATE.load(Ordering::Relaxed));
    STATE.store(state, Ordering::Relaxed);
    let host = (state >> 33) % jia_tasks() as u64;
    let pieces = [(size, 0, host as u32)];
    must("jia_alloc_random", |task| allocations::allocate(task, &pieces)) as c_ulong
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_free(memory: *mut c_void) {
    if !memory.is_null() {
        allocations::free(memory.expose_provenance(), |work| must("jia_free", work));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_get(
    buffer: *mut c_void,
    address: *const c_void,
    size: c_int,
) -> *mut c_void {
    let size = number("jia_get", "size", size) as usize;
    must("jia_get", |_| Ok(()));
    // The task is free meanwhile: a page may have to come.
    // SAFETY: as the caller promises.
    unsafe { std::ptr::copy(address.cast::<u8>(), buffer.cast::<u8>(), size) };
    buffer
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_put(buffer: *const c_void, address: *mut c_void) {
    let page_bytes = must("jia_put", |task| Ok(task.page_bytes()));
    // SAFETY: as the caller promises.
    unsafe { std::ptr::copy(buffer.cast::<u8>(), address.cast::<u8>(), page_bytes) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn assert(condition: c_int, message: *const c_char) {
    if condition == 0 {
        // SAFETY: a string, as the caller promises.
        unsafe { nagaya_jia_end(message) }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_lock(lock: c_int) {
    let lock = number("jia_lock", "lock", lock);
    must("jia_lock", |task| task.acquire(lock));
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_unlock(lock: c_int) {
    let lock = number("jia_unlock", "lock", lock);
    must("jia_unlock", |task| task.release(lock));
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_barrier() {
    must("jia_barrier", Task::barrier);
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_wait() {
    must("jia_wait", Task::meet);
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_setcv(cv: c_int) {
    let cv = number("jia_setcv", "condition variable", cv);
    must("jia_setcv", |task| task.set(cv));
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_resetcv(cv: c_int) {
    let cv = number("jia_resetcv", "condition variable", cv);
    must("jia_resetcv", |task| task.reset(cv));
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_waitcv(cv: c_int) {
    let cv = number("jia_waitcv", "condition variable", cv);
    must("jia_waitcv", |task| task.wait(cv));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_send(buffer: *const c_void, size: usize, to: c_int, tag: c_int) {
    let to = number("jia_send", "task", to);
    // Shared memory, perhaps, which the agent must not touch: this thread may wait for it.
    // SAFETY: as the caller promises.
    let text = unsafe { bytes(buffer, size) }.to_vec();
    must("jia_send", |task| task.send(&text, to, tag));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_recv(
    buffer: *mut c_void,
    size: usize,
    from: c_int,
    tag: c_int,
) -> c_long {
    let from = (from != ALL).then(|| number("jia_recv", "task", from));
    let tag = (tag != ALL).then(|| number("jia_recv", "tag", tag) as i32);
    must("jia_recv", |task| {
        let text = task.receive(from, tag)?;
        let size = size.min(text.len());
        // SAFETY: as the caller promises.
        unsafe { bytes_mut(buffer, size) }.copy_from_slice(&text[..size]);
        Ok(size as c_long)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_bcast(buffer: *mut c_void, size: usize, root: c_int) {
    let root = number("jia_bcast", "task", root);
    must("jia_bcast", |task| {
        let is_root = task.rank() == root;
        // SAFETY: as the caller promises.
        let mut text = if is_root { unsafe { bytes(buffer, size) }.to_vec() } else { Vec::new() };
        task.broadcast(&mut text, root)?;
        if !is_root {
            let size = size.min(text.len());
            // SAFETY: as the caller promises.
            unsafe { bytes_mut(buffer, size) }.copy_from_slice(&text[..size]);
        }
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_reduce(
    values: *const c_void,
    result: *mut c_void,
    count: c_int,
    operation: c_int,
    root: c_int,
) {
    let root = number("jia_reduce", "task", root);
    let count = number("jia_reduce", "count", count) as usize;
    let Some((size, join)) = reduction::operation(operation) else {
        this::end(&format!("jia_reduce: {operation} is no operation; jia.h lists them"));
    };
    let size = count * size;
    // SAFETY: as the caller promises.
    let mut text = unsafe { bytes(values, size) }.to_vec();
    must("jia_reduce", |task| task.reduce(&mut text, root, join));
    // SAFETY: as the caller promises.
    unsafe { bytes_mut(result, size) }.copy_from_slice(&text);
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_config(option: c_int, value: c_int) {
    let on = value != 0;
    must("jia_config", |task| match option {
        HMIG => task.configure(Setting::Migrate, on),
        ADWD => task.configure(Setting::Alone, on),
        LOADBAL => {
            task.balance(on);
            Ok(())
        }
        BROADCAST | WVEC => Ok(()),
        _ => Err(DsmError::Argument(format!("{option} is no option; jia.h lists them"))),
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_divtask(begin: *mut c_int, end: *mut c_int) {
    must("jia_divtask", |task| {
        // SAFETY: as the caller promises.
        let (from, to) = unsafe { (*begin, *end) };
        let (first, last) = task.part(from.into(), to.into());
        // SAFETY: as the caller promises.
        unsafe { (*begin, *end) = (first as c_int, last as c_int) };
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_loadcheck() {
    must("jia_loadcheck", Task::check_load);
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_clock() -> c_float {
    this::seconds() as c_float
}

fn microseconds() -> c_uint {
    (this::seconds() * 1e6) as u64 as c_uint
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_startstat() -> c_uint {
    must("jia_startstat", Task::count_anew);
    microseconds()
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_stopstat() -> c_uint {
    must("jia_stopstat", Task::report);
    microseconds()
}

#[unsafe(no_mangle)]
pub extern "C" fn jia_newlock() -> c_int {
    static NEXT: AtomicI32 = AtomicI32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
