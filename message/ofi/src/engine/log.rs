//! Log lines by libfabric's log, which FI_LOG_LEVEL turns on.

use std::ffi::CString;

use crate::engine::library;

/// Writes a line at this level, about this part of libfabric (`abi::LOG_*`). `text` is called only
/// if libfabric logs that level.
pub fn write(level: u32, part: u32, text: impl FnOnce() -> String) {
    if !library::logs(level, part) {
        return;
    }
    if let Ok(text) = CString::new(text() + "\n") {
        library::log(level, part, &text);
    }
}
