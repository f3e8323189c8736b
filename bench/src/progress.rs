//! What is being measured, on standard error: one line that is overwritten on a terminal,
//! a line each elsewhere.

use std::io::{IsTerminal, stderr};

/// Says what begins; an empty text clears the line.
pub fn progress(text: &str) {
    if stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
    } else if !text.is_empty() {
        eprintln!("{text}");
    }
}
