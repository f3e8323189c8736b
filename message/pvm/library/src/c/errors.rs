//! Error reports: `pvm_errno`, lines on standard error, and PvmAutoErr.

use std::ffi::{CStr, c_char, c_int};
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicPtr};

use pvm::error::{TEXTS, text};
use pvm::tid::Tid;

/// The last error's code.
#[unsafe(no_mangle)]
pub static pvm_errno: AtomicI32 = AtomicI32::new(0);

/// The number of texts in `pvm_errlist`.
#[unsafe(no_mangle)]
pub static pvm_nerr: c_int = TEXTS.len() as c_int;

/// Texts of errors; the index is the negated code.
#[unsafe(no_mangle)]
pub static pvm_errlist: [AtomicPtr<c_char>; TEXTS.len() + 1] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; TEXTS.len() + 1];

/// Fills `pvm_errlist` when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static FILL: extern "C" fn() = {
    extern "C" fn fill() {
        for (place, text) in pvm_errlist.iter().zip(TEXTS) {
            let text = std::ffi::CString::new(text).expect("no zero in it");
            place.store(text.into_raw(), Relaxed);
        }
    }
    fill
};

/// PvmAutoErr: 0 prints nothing, 1 prints, 2 ends the program, 3 aborts it.
pub static AUTO_ERR: AtomicI32 = AtomicI32::new(1);

/// Stores an error in `pvm_errno` without printing it. Returns its code.
pub fn remember(code: c_int) -> c_int {
    pvm_errno.store(code, Relaxed);
    code
}

/// Reports the error of a function as PvmAutoErr asks for. Returns true if the program is to end.
#[cold]
pub fn report(name: &str, code: c_int) -> bool {
    remember(code);
    let action = AUTO_ERR.load(Relaxed);
    if action == 0 {
        return false;
    }
    print(&format!("{name}()"));
    match action {
        2 => {
            AUTO_ERR.store(1, Relaxed);
            true
        }
        3 => std::process::abort(),
        _ => false,
    }
}

/// The tid at the start of error lines, or 0 before the process is a task.
static TID: AtomicI32 = AtomicI32::new(0);

/// Sets the tid at the start of error lines.
pub fn set_tid(tid: Option<Tid>) {
    TID.store(tid.map_or(0, Tid::as_int), Relaxed);
}

/// Returns the tid, as `t40001`, or the PID of a process that is no task.
fn who() -> String {
    match TID.load(Relaxed) {
        0 => format!("pid{}", std::process::id()),
        tid => Tid(tid as u32).to_string(),
    }
}

fn print(what: &str) {
    let who = who();
    let text = text(pvm_errno.load(Relaxed));
    proc::error_line!("libpvm [{who}]: {what}: {text}");
}

/// Writes a line of the library, in the format of pvmlogprintf.
pub fn log(line: &str) {
    let who = who();
    let mut whole = String::new();
    for line in line.lines() {
        let _ = writeln!(whole, "libpvm [{who}] {line}");
    }
    proc::stderr::write(&whole);
}

/// Writes a line of the library, in the format of pvmlogerror.
pub fn log_error(line: &str) {
    let who = who();
    proc::error_line!("libpvm [{who}]: {line}");
}

/// See `pvm3.h`. Prints the last error's text.
///
/// # Safety
/// `what` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_perror(what: *const c_char) -> c_int {
    let what = match what.is_null() {
        true => "(null)".into(),
        // SAFETY: `what` is a string, required of the caller.
        false => unsafe { CStr::from_ptr(what) }.to_string_lossy(),
    };
    print(&what);
    0
}

/// See `pvm3.h`. Returns the last error's text.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_strerror() -> *const c_char {
    let code = pvm_errno.load(Relaxed);
    match pvm_errlist.get(code.unsigned_abs() as usize) {
        Some(text) if code <= 0 && !text.load(Relaxed).is_null() => text.load(Relaxed),
        _ => c"Unknown Error".as_ptr(),
    }
}
