//! JIAJIA's calls for Fortran: `include/jiaf.h`, under the names that gfortran gives to external
//! procedures.
//!
//! Fortran passes arguments by reference. JIAJIA's own programs pass numbers by `%val`. Both are
//! accepted: a position-independent program has no variable below 4 GiB, and one linked to fixed
//! addresses none below its own beginning.

use std::ffi::{c_char, c_float, c_int, c_uint, c_ulong, c_void};
use std::sync::OnceLock;

use crate::{jia, this};

/// The least address of a variable.
fn least_address() -> usize {
    /// The head of the file, in which no variable is.
    const HEAD: usize = 4096;
    static LEAST: OnceLock<usize> = OnceLock::new();
    *LEAST.get_or_init(|| {
        // SAFETY: a plain call.
        let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
        (headers & !(HEAD - 1)).saturating_add(HEAD).min(1 << 32)
    })
}

/// A number, by reference or by value.
///
/// # Safety
/// A reference is to an `INTEGER*4`.
unsafe fn number(argument: usize) -> c_int {
    match argument >= least_address() && argument as isize > 0 {
        // SAFETY: as the caller promises.
        true => unsafe { std::ptr::with_exposed_provenance::<c_int>(argument).read_unaligned() },
        // By value, in the lower half of the register.
        false => argument as c_int,
    }
}

/// The same for a size.
///
/// # Safety
/// As [`number`].
unsafe fn size(call: &str, argument: usize) -> usize {
    // SAFETY: as the caller promises.
    let bytes = unsafe { number(argument) };
    usize::try_from(bytes)
        .unwrap_or_else(|_| this::end(&format!("{call}: size {bytes} is negative")))
}

/// Declares procedures that take numbers and return nothing.
macro_rules! of_numbers {
    ($($name:ident($($argument:ident),*) = $call:path;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: usize),*) {
            // SAFETY: a Fortran program passes INTEGER*4.
            $(let $argument = unsafe { number($argument) };)*
            $call($($argument),*)
        }
    )*};
}

of_numbers! {
    jia_lock_(lock) = jia::jia_lock;
    jia_unlock_(lock) = jia::jia_unlock;
    jia_setcv_(cv) = jia::jia_setcv;
    jia_resetcv_(cv) = jia::jia_resetcv;
    jia_waitcv_(cv) = jia::jia_waitcv;
    jia_config_(option, value) = jia::jia_config;
    jia_barrier_() = jia::jia_barrier;
    jia_wait_() = jia::jia_wait;
    jia_exit_() = jia::jia_exit;
    jia_loadcheck_() = jia::jia_loadcheck;
}

#[unsafe(no_mangle)]
extern "C" fn jiaf_init_() {
    jia::jia_init(0, std::ptr::null_mut());
}

#[unsafe(no_mangle)]
extern "C" fn jia_init_() {
    jiaf_init_();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jia_alloc_(bytes: usize) -> c_ulong {
    // SAFETY: INTEGER*4.
    jia::jia_alloc(unsafe { size("jia_alloc", bytes) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jia_alloc1_(bytes: usize) -> c_ulong {
    // SAFETY: INTEGER*4.
    jia::jia_alloc1(unsafe { size("jia_alloc1", bytes) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jia_alloc2_(bytes: usize, block: usize) -> c_ulong {
    // SAFETY: INTEGER*4.
    unsafe { jia::jia_alloc2(size("jia_alloc2", bytes), size("jia_alloc2", block)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jia_alloc2p_(bytes: usize, host: usize) -> c_ulong {
    // SAFETY: INTEGER*4.
    unsafe { jia::jia_alloc2p(size("jia_alloc2p", bytes), number(host)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jia_alloc3_(bytes: usize, block: usize, start: usize) -> c_ulong {
    // SAFETY: INTEGER*4.
    unsafe { jia::jia_alloc3(size("jia_alloc3", bytes), size("jia_alloc3", block), number(start)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jia_alloc4_(
    bytes: usize,
    blocks: *const c_int,
    length: usize,
    start: usize,
) -> c_ulong {
    // SAFETY: INTEGER*4, and an array of this length.
    unsafe { jia::jia_alloc4(size("jia_alloc4", bytes), blocks, number(length), number(start)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jia_alloc_array_(
    bytes: usize,
    blocks: *const c_int,
    length: usize,
) -> c_ulong {
    // SAFETY: INTEGER*4, and an array of this length.
    unsafe { jia::jia_alloc_array(size("jia_alloc_array", bytes), blocks, number(length)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jia_alloc_random_(bytes: usize) -> c_ulong {
    // SAFETY: INTEGER*4.
    jia::jia_alloc_random(unsafe { size("jia_alloc_random", bytes) })
}

/// Takes the shared variable itself, as the address of an allocation.
#[unsafe(no_mangle)]
extern "C" fn jia_free_(memory: *mut c_void) {
    jia::jia_free(memory);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jia_send_(buffer: *const c_void, bytes: usize, to: usize, tag: usize) {
    // SAFETY: INTEGER*4, and a buffer of this size.
    unsafe { jia::jia_send(buffer, size("jia_send", bytes), number(to), number(tag)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jia_recv_(
    buffer: *mut c_void,
    bytes: usize,
    from: usize,
    tag: usize,
) -> c_int {
    // SAFETY: INTEGER*4, and a buffer of this size.
    unsafe { jia::jia_recv(buffer, size("jia_recv", bytes), number(from), number(tag)) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jia_bcast_(buffer: *mut c_void, bytes: usize, root: usize) {
    // SAFETY: INTEGER*4, and a buffer of this size.
    unsafe { jia::jia_bcast(buffer, size("jia_bcast", bytes), number(root)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jia_reduce_(
    values: *const c_void,
    result: *mut c_void,
    count: usize,
    operation: usize,
    root: usize,
) {
    // SAFETY: INTEGER*4, and arrays of this length.
    unsafe { jia::jia_reduce(values, result, number(count), number(operation), number(root)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jia_divtask_(begin: *mut c_int, end: *mut c_int) {
    // SAFETY: two INTEGER*4.
    unsafe { jia::jia_divtask(begin, end) }
}

/// JIAJIA's subroutine: of the iterations `first` to `last`, those of this task, in equal parts.
#[unsafe(no_mangle)]
unsafe extern "C" fn jia_distask_(
    begin: *mut c_int,
    end: *mut c_int,
    first: *const c_int,
    last: *const c_int,
) {
    // SAFETY: four INTEGER*4.
    unsafe {
        (*begin, *end) = (*first, *last);
        jia::jia_divtask(begin, end);
    }
}

/// The length of the text follows the arguments, as gfortran passes it.
#[unsafe(no_mangle)]
unsafe extern "C" fn jia_error_(text: *const c_char, length: usize) {
    // SAFETY: a CHARACTER of this length.
    let text = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    this::end(String::from_utf8_lossy(text).trim_end())
}

#[unsafe(no_mangle)]
extern "C" fn jia_clock_() -> c_float {
    jia::jia_clock()
}

#[unsafe(no_mangle)]
extern "C" fn jia_startstat_() -> c_uint {
    jia::jia_startstat()
}

#[unsafe(no_mangle)]
extern "C" fn jia_stopstat_() -> c_uint {
    jia::jia_stopstat()
}
