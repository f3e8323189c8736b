//! The part of libpvm3 that this library uses: functions of `pvm3.h`, and Nagaya's own functions
//! for this library.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::AtomicBool;

use pvm::error::Error;
use pvm::slots::SLOTS_SIZE;
use pvm::wire::{Answer, GroupRequest};

/// A pack function, such as pvm_pkint.
pub type Pack = unsafe extern "C" fn(*mut c_void, c_int, c_int) -> c_int;
/// An unpack function, such as pvm_upkint.
pub type Unpack = Pack;

unsafe extern "C" {
    /// free(3).
    fn free(memory: *mut c_void);
    /// A function of libpvm3 without a declaration in `pvm3.h`. Prints an error, stores it in
    /// `pvm_errno`, and returns it.
    pub fn lpvmerr(function: *const c_char, code: c_int) -> c_int;
    fn pvm_mytid() -> c_int;
    pub fn pvm_initsend(encoding: c_int) -> c_int;
    pub fn pvm_freebuf(id: c_int) -> c_int;
    pub fn pvm_setsbuf(id: c_int) -> c_int;
    pub fn pvm_setrbuf(id: c_int) -> c_int;
    pub fn pvm_setcontext(context: c_int) -> c_int;
    pub fn pvm_send(tid: c_int, tag: c_int) -> c_int;
    pub fn pvm_mcast(tids: *const c_int, count: c_int, tag: c_int) -> c_int;
    pub fn pvm_recv(tid: c_int, tag: c_int) -> c_int;

    fn pvm_pkbyte(items: *mut c_void, count: c_int, stride: c_int) -> c_int;
    fn pvm_pkshort(items: *mut c_void, count: c_int, stride: c_int) -> c_int;
    fn pvm_pkint(items: *mut c_void, count: c_int, stride: c_int) -> c_int;
    fn pvm_pklong(items: *mut c_void, count: c_int, stride: c_int) -> c_int;
    fn pvm_pkfloat(items: *mut c_void, count: c_int, stride: c_int) -> c_int;
    fn pvm_pkdouble(items: *mut c_void, count: c_int, stride: c_int) -> c_int;
    fn pvm_pkcplx(items: *mut c_void, count: c_int, stride: c_int) -> c_int;
    fn pvm_pkdcplx(items: *mut c_void, count: c_int, stride: c_int) -> c_int;
    fn pvm_pkstr(text: *mut c_void) -> c_int;
    fn pvm_upkbyte(items: *mut c_void, count: c_int, stride: c_int) -> c_int;
    fn pvm_upkshort(items: *mut c_void, count: c_int, stride: c_int) -> c_int;
    fn pvm_upkint(items: *mut c_void, count: c_int, stride: c_int) -> c_int;
    fn pvm_upklong(items: *mut c_void, count: c_int, stride: c_int) -> c_int;
    fn pvm_upkfloat(items: *mut c_void, count: c_int, stride: c_int) -> c_int;
    fn pvm_upkdouble(items: *mut c_void, count: c_int, stride: c_int) -> c_int;
    fn pvm_upkcplx(items: *mut c_void, count: c_int, stride: c_int) -> c_int;
    fn pvm_upkdcplx(items: *mut c_void, count: c_int, stride: c_int) -> c_int;
    fn pvm_upkstr(text: *mut c_void) -> c_int;

    /// The error of the last call that failed.
    static mut pvm_errno: c_int;

    /// Sends the daemon a `GroupRequest` in postcard's encoding. The caller frees the memory of
    /// the `Answer`. Makes the process a task. Returns 0 or an error.
    fn nagaya_pvm_ask(
        request: *const c_void,
        length: usize,
        answer: *mut *mut c_void,
        answer_length: *mut usize,
    ) -> c_int;
    /// Returns the plain memory of the host's window, which begins with the groups' slots; null
    /// unless the process is a task.
    fn nagaya_pvm_plain(size: *mut usize) -> *mut c_void;
    /// Waits until the word differs from `is`, and processes messages meanwhile. Returns 0, or an
    /// error if the daemon has ended.
    fn nagaya_pvm_wait(word: *const u32, is: u32) -> c_int;

    /// True if calls are traced.
    pub safe static nagaya_pvm_traced: AtomicBool;
    /// Records the start of a traced call: the numbers of its event and argument (negative for
    /// none). Returns the depth, which [`nagaya_pvm_trace_exit`] takes.
    pub fn nagaya_pvm_trace_entry(
        event: c_int,
        group: *const c_char,
        id: c_int,
        value: c_int,
    ) -> c_int;
    /// Records the end of a traced call: the number of its result, and the tasks that it lists.
    pub fn nagaya_pvm_trace_exit(
        event: c_int,
        depth: c_int,
        id: c_int,
        result: c_int,
        list: *const c_int,
        count: c_int,
    );
}

/// The result of a function, or a negative error code of PVM.
pub type Result<T> = std::result::Result<T, c_int>;

/// Converts the return value of a function of libpvm3.
pub fn checked(result: c_int) -> Result<c_int> {
    if result < 0 { Err(result) } else { Ok(result) }
}

/// Converts a result to the return value of a function. Stores an error in `pvm_errno`, and does
/// not print it.
pub fn returned(result: Result<c_int>) -> c_int {
    result.unwrap_or_else(|code| {
        // SAFETY: `pvm_errno` is an int that libpvm3 exports for writing.
        unsafe { pvm_errno = code };
        code
    })
}

/// Makes the process a task. Returns its tid, and the slots of its host, which are valid while
/// the process is that task.
pub fn slots() -> Result<(c_int, *const u8)> {
    let mut size = 0;
    // SAFETY: pvm_mytid has no preconditions; `nagaya_pvm_plain` writes `size`, a local.
    let (tid, slots) = unsafe { (checked(pvm_mytid())?, nagaya_pvm_plain(&mut size)) };
    if slots.is_null() || size < SLOTS_SIZE {
        return Err(Error::SysErr.code());
    }
    Ok((tid, slots.cast()))
}

/// Sends a request to the daemon, and returns its answer.
pub fn ask(request: &GroupRequest) -> Result<Answer> {
    let request = postcard::to_allocvec(request).map_err(|_| Error::BadParam.code())?;
    let (mut answer, mut length) = (null_mut(), 0);
    // SAFETY: `request` has `request.len()` bytes. On success `answer` points to `length` bytes,
    // allocated by malloc, which this function frees once.
    unsafe {
        checked(nagaya_pvm_ask(request.as_ptr().cast(), request.len(), &mut answer, &mut length))?;
        let bytes = std::slice::from_raw_parts(answer.cast(), length);
        let parsed = postcard::from_bytes(bytes).map_err(|_| Error::DSysErr.code());
        free(answer);
        parsed
    }
}

/// Waits until the word differs from `is`, and processes messages meanwhile.
///
/// # Safety
/// The word stays mapped while the process is a task.
pub unsafe fn wait_while(word: *const u32, is: u32) -> Result<()> {
    // SAFETY: the word stays mapped while the process is a task, required of the caller.
    checked(unsafe { nagaya_pvm_wait(word, is) }).map(|_| ())
}

/// Returns the size of an item of a datatype, such as PVM_INT, and its pack and unpack functions.
/// Errors: BadParam.
pub fn datatype(datatype: c_int) -> Result<(usize, Pack, Unpack)> {
    unsafe extern "C" fn pack_text(text: *mut c_void, _: c_int, _: c_int) -> c_int {
        // SAFETY: the items of type PVM_STR are a string, required of the caller of pvm_reduce and
        // its relatives.
        unsafe { pvm_pkstr(text) }
    }
    unsafe extern "C" fn unpack_text(text: *mut c_void, _: c_int, _: c_int) -> c_int {
        // SAFETY: the buffer has room for the string, required of the caller of pvm_reduce and
        // its relatives.
        unsafe { pvm_upkstr(text) }
    }
    Ok(match datatype {
        0 => (1, pack_text, unpack_text),
        1 => (1, pvm_pkbyte, pvm_upkbyte),
        2 => (2, pvm_pkshort, pvm_upkshort),
        3 => (4, pvm_pkint, pvm_upkint),
        4 => (4, pvm_pkfloat, pvm_upkfloat),
        5 => (8, pvm_pkcplx, pvm_upkcplx),
        6 => (8, pvm_pkdouble, pvm_upkdouble),
        7 => (16, pvm_pkdcplx, pvm_upkdcplx),
        8 => (size_of::<std::ffi::c_long>(), pvm_pklong, pvm_upklong),
        _ => return Err(Error::BadParam.code()),
    })
}
