//! libpvm3, as this library uses it: functions of `pvm3.h`, and three of Nagaya's own for us.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::AtomicBool;

use pvm::error::Error;
use pvm::slots::SLOTS_SIZE;
use pvm::wire::{Answer, GroupRequest};

/// pvm_pkint and its kind.
pub type Pack = unsafe extern "C" fn(*mut c_void, c_int, c_int) -> c_int;
/// pvm_upkint and its kind.
pub type Unpack = Pack;

unsafe extern "C" {
    /// Of libc.
    fn free(memory: *mut c_void);
    /// Of libpvm3, in no header: prints and remembers an error; returns it.
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

    /// Asks the daemon: a `GroupRequest` in postcard's encoding. The `Answer` is memory for us
    /// to free. Makes the process a task. Returns 0 or an error.
    fn nagaya_pvm_ask(
        request: *const c_void,
        length: usize,
        answer: *mut *mut c_void,
        answer_length: *mut usize,
    ) -> c_int;
    /// The plain memory of the host's window, which begins with the groups' slots, as long as
    /// the process is a task; else null.
    fn nagaya_pvm_plain(size: *mut usize) -> *mut c_void;
    /// Waits until the word is no longer `is`; takes in messages meanwhile. Returns 0, or an
    /// error if the daemon has gone.
    fn nagaya_pvm_wait(word: *const u32, is: u32) -> c_int;

    /// Whether calls are traced.
    pub safe static nagaya_pvm_traced: AtomicBool;
    /// A call of this library begins, where calls are traced: the numbers of event and
    /// argument (negative for none). Returns what the next one gets.
    pub fn nagaya_pvm_trace_entry(
        event: c_int,
        group: *const c_char,
        id: c_int,
        value: c_int,
    ) -> c_int;
    /// It ends: the number of what the result is; the tasks that it lists.
    pub fn nagaya_pvm_trace_exit(
        event: c_int,
        depth: c_int,
        id: c_int,
        result: c_int,
        list: *const c_int,
        count: c_int,
    );
}

/// What a function returns: a result or, negative, an error code of PVM.
pub type Result<T> = std::result::Result<T, c_int>;

/// What a function of libpvm3 returned, as a result.
pub fn checked(result: c_int) -> Result<c_int> {
    if result < 0 { Err(result) } else { Ok(result) }
}

/// What a function of this library returns; an error is remembered, and not printed.
pub fn returned(result: Result<c_int>) -> c_int {
    result.unwrap_or_else(|code| {
        // SAFETY: an int of libpvm3, which programs write as well.
        unsafe { pvm_errno = code };
        code
    })
}

/// This task (the process becomes one), and its host's slots as long as it is that task.
pub fn slots() -> Result<(c_int, *const u8)> {
    let mut size = 0;
    // SAFETY: the second writes the size.
    let (tid, slots) = unsafe { (checked(pvm_mytid())?, nagaya_pvm_plain(&mut size)) };
    if slots.is_null() || size < SLOTS_SIZE {
        return Err(Error::SysErr.code());
    }
    Ok((tid, slots.cast()))
}

/// Asks the daemon.
pub fn ask(request: &GroupRequest) -> Result<Answer> {
    let request = postcard::to_allocvec(request).map_err(|_| Error::BadParam.code())?;
    let (mut answer, mut length) = (null_mut(), 0);
    // SAFETY: so many bytes; the others are written, the memory is so long, and ours.
    unsafe {
        checked(nagaya_pvm_ask(request.as_ptr().cast(), request.len(), &mut answer, &mut length))?;
        let bytes = std::slice::from_raw_parts(answer.cast(), length);
        let parsed = postcard::from_bytes(bytes).map_err(|_| Error::DSysErr.code());
        free(answer);
        parsed
    }
}

/// Waits until the word is no longer `is`, and takes in messages meanwhile.
///
/// # Safety
/// The word stays mapped as long as the process is a task.
pub unsafe fn wait_while(word: *const u32, is: u32) -> Result<()> {
    // SAFETY: as the caller says.
    checked(unsafe { nagaya_pvm_wait(word, is) }).map(|_| ())
}

/// PVM_STR and its kind: bytes of an item, and how it is packed. Errors: BadParam.
pub fn datatype(datatype: c_int) -> Result<(usize, Pack, Unpack)> {
    unsafe extern "C" fn pack_text(text: *mut c_void, _: c_int, _: c_int) -> c_int {
        // SAFETY: the program says that it is a string.
        unsafe { pvm_pkstr(text) }
    }
    unsafe extern "C" fn unpack_text(text: *mut c_void, _: c_int, _: c_int) -> c_int {
        // SAFETY: the program says that there is room for it.
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
