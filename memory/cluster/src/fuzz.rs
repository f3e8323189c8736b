//! Entry points of the fuzz targets (docs/fuzzing.md): messages of other machines, and what the
//! kernel reports about threads. Nothing else uses them.

use crate::blocks::Bits;
use crate::frame::Frame;
use crate::sleepers;

/// Reads a message of another machine. Returns true if its header is one.
pub fn message(header: &[u8], body: &[u8]) -> bool {
    if let Some(bits) = Bits::parse(body) {
        assert_eq!(bits.bytes(), body, "bits are sent as they came");
    }
    let frame = Frame::parse(header);
    if let Some(frame) = frame {
        assert_eq!(Frame::parse(&frame.bytes()), Some(frame));
    }
    frame.is_some()
}

/// Reads /proc/PID/task/TID/syscall.
pub fn thread(text: &str) {
    sleepers::fuzz(text);
}
