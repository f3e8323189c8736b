//! Errors that the standard leaves undefined: one line that names the PE, then the job ends.

use std::ffi::c_int;
use std::fmt::Arguments;
use std::sync::OnceLock;

/// Exit status of all PEs after a fatal error.
const STATUS: c_int = 1;

/// The number of this PE, and the function that ends all PEs with an exit status.
static END: OnceLock<(usize, fn(c_int) -> !)> = OnceLock::new();

/// Sets the number of this PE and the function that ends all PEs: from now on there are others.
pub fn end_by(me: usize, end: fn(c_int) -> !) {
    let _ = END.set((me, end));
}

/// Reports an error of this PE in one line, and ends all PEs.
#[cold]
#[inline(never)]
pub fn end(function: &str, text: Arguments<'_>) -> ! {
    match END.get() {
        Some((me, end)) => {
            proc::error_line!("nagaya-shmem: PE {me}: {function}: {text}");
            end(STATUS)
        }
        None => {
            proc::error_line!("nagaya-shmem: {function}: {text}");
            // SAFETY: ends this process; no destructor of the program runs.
            unsafe { libc::_exit(STATUS) }
        }
    }
}

/// Reports an error in one line, and ends all PEs: the function's name, then a format.
macro_rules! fatal {
    ($function:expr, $($format:tt)+) => {
        $crate::fatal::end($function, format_args!($($format)+))
    };
}
pub(crate) use fatal;
