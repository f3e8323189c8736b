//! `include/nagaya_dsm.h`: the same with error codes.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::Ordering;

use dsm::error::DsmError;
use dsm::task::Task;

use crate::this;

/// `struct nagaya_dsm_homes`.
#[repr(C)]
struct Homes {
    block: usize,
    first: u32,
}

/// `enum nagaya_dsm_error`.
fn code(error: &DsmError) -> c_int {
    this::remember(error);
    match error {
        DsmError::Argument(_) => -1,
        DsmError::State(_) => -2,
        DsmError::System(_) => -3,
    }
}

fn result(result: Result<(), DsmError>) -> c_int {
    result.map_or_else(|error| code(&error), |()| 0)
}

fn try_with(work: impl FnOnce(&mut Task) -> Result<(), DsmError>) -> c_int {
    result(this::with(work))
}

fn told(number: fn(&Task) -> u32) -> c_int {
    this::with(|task| Ok(number(task) as c_int)).unwrap_or_else(|error| code(&error))
}

#[unsafe(no_mangle)]
extern "C" fn nagaya_dsm_reason() -> *const c_char {
    this::reason()
}

#[unsafe(no_mangle)]
extern "C" fn nagaya_dsm_init() -> c_int {
    result(this::join().map_err(|failed| failed.error))
}

#[unsafe(no_mangle)]
extern "C" fn nagaya_dsm_exit() -> c_int {
    result(this::leave())
}

#[unsafe(no_mangle)]
extern "C" fn nagaya_dsm_task() -> c_int {
    told(Task::rank)
}

#[unsafe(no_mangle)]
extern "C" fn nagaya_dsm_tasks() -> c_int {
    told(Task::size)
}

#[unsafe(no_mangle)]
extern "C" fn nagaya_dsm_node() -> c_int {
    told(Task::node)
}

#[unsafe(no_mangle)]
extern "C" fn nagaya_dsm_nodes() -> c_int {
    told(Task::nodes)
}

#[unsafe(no_mangle)]
extern "C" fn nagaya_dsm_page_size() -> usize {
    this::with(|task| Ok(task.page_bytes())).unwrap_or(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nagaya_dsm_alloc(size: usize, homes: *const Homes) -> *mut c_void {
    let address = this::with(|task| {
        // SAFETY: null, or a structure as the caller promises.
        let (block, first) = match unsafe { homes.as_ref() } {
            Some(homes) => (homes.block, homes.first),
            None => (size.div_ceil(this::SIZE.load(Ordering::Relaxed) as usize), 0),
        };
        task.allocate(size as u64, block as u64, first)
    });
    match address {
        Ok(address) => std::ptr::with_exposed_provenance_mut(address),
        Err(error) => {
            code(&error);
            std::ptr::null_mut()
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn nagaya_dsm_acquire(lock: u32) -> c_int {
    try_with(|task| task.acquire(lock))
}

#[unsafe(no_mangle)]
extern "C" fn nagaya_dsm_release(lock: u32) -> c_int {
    try_with(|task| task.release(lock))
}

#[unsafe(no_mangle)]
extern "C" fn nagaya_dsm_barrier() -> c_int {
    try_with(Task::barrier)
}

/// Copies as much of the numbers as the caller's structure has room for.
///
/// # Safety
/// So many bytes can be written there.
unsafe fn copy<T: Copy>(from: &T, to: *mut c_void, size: usize) {
    let bytes = size.min(size_of::<T>());
    // SAFETY: numbers without padding, which differ in type only; as the caller promises.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(from).cast(), to.cast::<u8>(), bytes)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nagaya_dsm_statistics(to: *mut c_void, size: usize) -> c_int {
    try_with(|task| {
        let totals = task.totals()?;
        // SAFETY: as the caller promises.
        unsafe { copy(&totals, to, size) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nagaya_dsm_page_statistics(
    address: *const c_void,
    to: *mut c_void,
    size: usize,
) -> c_int {
    try_with(|task| {
        let none = || DsmError::Argument(format!("{address:p} is not in shared memory"));
        let page = task.of_page(address.addr())?.ok_or_else(none)?;
        // SAFETY: as the caller promises.
        unsafe { copy(&page, to, size) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nagaya_dsm_lock_statistics(lock: u32, to: *mut c_void, size: usize) -> c_int {
    try_with(|task| {
        let none = || DsmError::Argument(format!("lock {lock}: this node has not used it"));
        let lock = task.of_lock(lock)?.ok_or_else(none)?;
        // SAFETY: as the caller promises.
        unsafe { copy(&lock, to, size) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nagaya_dsm_ride_statistics(
    carrier: u32,
    to: *mut c_void,
    size: usize,
) -> c_int {
    try_with(|task| {
        let none = || DsmError::Argument(format!("{carrier} is nothing that pages ride on"));
        let rides = task.of_rides(carrier)?.ok_or_else(none)?;
        // SAFETY: as the caller promises.
        unsafe { copy(&rides, to, size) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nagaya_dsm_reset_statistics() -> c_int {
    try_with(Task::count_anew)
}
