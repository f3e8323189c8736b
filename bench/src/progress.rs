//! The progress, on standard error: on a terminal one line that is overwritten, else a line for
//! each step.

use std::io::{IsTerminal, stderr};

/// Reports the next step; an empty text clears the line.
pub fn progress(text: &str) {
    if stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
    } else if !text.is_empty() {
        eprintln!("{text}");
    }
}
