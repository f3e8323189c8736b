//! Copies the bytes of a message into a program's buffer.

use crate::protocol::parts::Parts;

/// Copies bytes into a buffer of ours, as many as it has room for.
pub fn scatter(buffer: &Parts, bytes: usize, mut read: impl FnMut(usize, &mut [u8])) {
    let mut done = 0;
    for part in buffer.list() {
        let length = (bytes - done).min(part.length as usize);
        if length == 0 {
            continue;
        }
        // SAFETY: the program's buffer, which it has given us for this.
        let to = unsafe { std::slice::from_raw_parts_mut(part.address as *mut u8, length) };
        read(done, to);
        done += length;
    }
}
