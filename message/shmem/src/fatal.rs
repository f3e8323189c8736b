//! Errors that the standard leaves undefined: one line that names the PE, then the job ends.

use std::fmt::Arguments;

use crate::{job, setup};

/// Exit status of all PEs after a fatal error.
const STATUS: u8 = 1;

/// Reports an error of this PE in one line, and ends all PEs.
#[cold]
#[inline(never)]
pub fn end(function: &str, text: Arguments<'_>) -> ! {
    match job::try_get() {
        Some(job) => {
            proc::error_line!("nagaya-shmem: PE {}: {function}: {text}", job.me);
            job.end_others(STATUS.into());
            setup::exit(STATUS.into())
        }
        None => {
            proc::error_line!("nagaya-shmem: {function}: {text}");
            // SAFETY: ends this process; no destructor of the program runs.
            unsafe { libc::_exit(STATUS.into()) }
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
