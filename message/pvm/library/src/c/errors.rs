//! Telling errors: `pvm_errno`, lines on standard error, and what PvmAutoErr asks for.

use std::ffi::{CStr, c_char, c_int};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicPtr};

use pvm::error::{TEXTS, text};

use super::library::quietly;

/// The last error's code.
#[unsafe(no_mangle)]
pub static pvm_errno: AtomicI32 = AtomicI32::new(0);

/// How many texts `pvm_errlist` has.
#[unsafe(no_mangle)]
pub static pvm_nerr: c_int = TEXTS.len() as c_int;

/// Texts of errors, by code without its sign.
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

/// PvmAutoErr: 0 keeps quiet, 1 prints, 2 ends the program, 3 aborts it.
pub static AUTO_ERR: AtomicI32 = AtomicI32::new(1);

/// Remembers an error without telling. Returns its code.
pub fn remember(code: c_int) -> c_int {
    pvm_errno.store(code, Relaxed);
    code
}

/// Tells an error of a function. Returns its code.
#[cold]
pub fn tell(name: &str, code: c_int) -> c_int {
    remember(code);
    match AUTO_ERR.load(Relaxed) {
        0 => return code,
        1 => print(&format!("{name}()")),
        2 => {
            print(&format!("{name}()"));
            AUTO_ERR.store(1, Relaxed);
            super::processes::pvm_exit();
            // SAFETY: ends the program, as asked for.
            unsafe { libc::exit(code) };
        }
        3 => {
            print(&format!("{name}()"));
            std::process::abort();
        }
        _ => print(&format!("{name}()")),
    }
    code
}

/// `t40001`, or the PID of what is no task.
fn who() -> Result<String, String> {
    let tid = quietly(|library| library.with(|state| Ok(state.task.tid())));
    match tid.ok().flatten() {
        Some(tid) => Ok(tid.to_string()),
        None => Err(format!("pid{}", std::process::id())),
    }
}

fn write(line: &str) {
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn print(what: &str) {
    let who = who().unwrap_or_else(|pid| pid);
    let text = text(pvm_errno.load(Relaxed));
    write(&format!("libpvm [{who}]: {what}: {text}\n"));
}

/// A line of the library's own, as pvmlogprintf writes it.
pub fn log(line: &str) {
    let who = who().unwrap_or_else(|pid| pid);
    let mut whole = String::new();
    for line in line.lines() {
        let _ = writeln!(whole, "libpvm [{who}] {line}");
    }
    write(&whole);
}

/// A line of the library's own, as pvmlogerror writes it.
pub fn log_error(line: &str) {
    let who = who().unwrap_or_else(|pid| pid);
    write(&format!("libpvm [{who}]: {line}\n"));
}

/// See `pvm3.h`. Prints the last error's text.
///
/// # Safety
/// `what` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_perror(what: *const c_char) -> c_int {
    let what = match what.is_null() {
        true => "(null)".into(),
        // SAFETY: a string, as our caller says.
        false => unsafe { CStr::from_ptr(what) }.to_string_lossy(),
    };
    print(&what);
    0
}

/// See `pvm3.h`. The last error's text.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_strerror() -> *const c_char {
    let code = pvm_errno.load(Relaxed);
    match pvm_errlist.get(code.unsigned_abs() as usize) {
        Some(text) if code <= 0 && !text.load(Relaxed).is_null() => text.load(Relaxed),
        _ => c"Unknown Error".as_ptr(),
    }
}

/// What libgpvm3 and programs tell errors of their own with.
///
/// # Safety
/// `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lpvmerr(name: *const c_char, code: c_int) -> c_int {
    // SAFETY: a string, as our caller says.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    tell(&name, code)
}
