//! Messages on standard error. Each is one write(2), so that messages of several processes do not
//! mix: a pipe keeps up to `PIPE_BUF` bytes (4,096) together, a terminal a line.

use std::fmt::Arguments;
use std::io::Write as _;

/// Writes a line, as `format!` composes it, to standard error.
///
/// Does nothing if nobody can read it: the terminal may be gone.
#[macro_export]
macro_rules! error_line {
    ($($part:tt)*) => { $crate::stderr::write_line(::std::format_args!($($part)*)) };
}

/// Writes the text and the end of a line; see [`error_line!`](crate::error_line).
pub fn write_line(text: Arguments<'_>) {
    write(&format!("{text}\n"));
}

/// Writes text that has its ends of lines.
pub fn write(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
