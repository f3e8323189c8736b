//! Assembly of long messages that arrive in parts. If the sender ends before the last part, the
//! message is dropped.

use std::collections::HashMap;

use pvm::envelope::Part;
use pvm::message::MESSAGE_SIZE_MAX;
use pvm::tid::Tid;

/// Bytes that are allocated for an announced message in advance. Further memory is allocated as
/// parts arrive.
const ANNOUNCED_BYTES_MAX: usize = 1 << 20;

/// Incomplete messages.
#[derive(Debug, Default)]
pub struct Parts {
    begun: HashMap<(Tid, u32), Vec<u8>>,
}

impl Parts {
    /// Adds a part of `length` bytes, which `read` reads. Returns the message if this was the last
    /// part. A part that does not continue the previous one drops the message.
    pub fn add(
        &mut self,
        part: Part,
        length: usize,
        read: impl FnOnce(&mut [u8]),
    ) -> Option<Vec<u8>> {
        let key = (Tid(part.source as u32), part.serial);
        let total = part.total as usize;
        if part.offset == 0 {
            let room = total.min(ANNOUNCED_BYTES_MAX);
            self.begun.insert(key, Vec::with_capacity(room));
        }
        let bytes = self.begun.get_mut(&key)?;
        let offset = bytes.len();
        // The longest message has an envelope and fragment lengths besides its data.
        let too_long = offset + length > total || total > 2 * MESSAGE_SIZE_MAX;
        if part.offset as usize != offset || too_long || length == 0 {
            self.begun.remove(&key);
            return None;
        }
        bytes.resize(offset + length, 0);
        read(&mut bytes[offset..]);
        if bytes.len() < total {
            return None;
        }
        self.begun.remove(&key)
    }

    /// Drops the incomplete messages of tasks that have ended.
    pub fn forget(&mut self, fits: impl Fn(Tid) -> bool) {
        self.begun.retain(|(tid, _), _| !fits(*tid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(serial: u32, offset: u32, total: u32) -> Part {
        Part { source: 0x4_0001, destination: 0x4_0002, serial, offset, total }
    }

    fn add(parts: &mut Parts, part: Part, bytes: &[u8]) -> Option<Vec<u8>> {
        parts.add(part, bytes.len(), |to| to.copy_from_slice(bytes))
    }

    #[test]
    fn parts_of_two_messages_may_come_in_turns() {
        let mut parts = Parts::default();
        assert_eq!(add(&mut parts, part(1, 0, 4), b"ab"), None);
        assert_eq!(add(&mut parts, part(2, 0, 3), b"xy"), None);
        assert_eq!(add(&mut parts, part(1, 2, 4), b"cd"), Some(b"abcd".to_vec()));
        assert_eq!(add(&mut parts, part(2, 2, 3), b"z"), Some(b"xyz".to_vec()));
    }

    #[test]
    fn a_message_with_a_wrong_or_missing_part_never_comes() {
        let mut parts = Parts::default();
        assert_eq!(add(&mut parts, part(1, 0, 6), b"ab"), None);
        assert_eq!(add(&mut parts, part(1, 3, 6), b"def"), None);
        assert_eq!(add(&mut parts, part(1, 2, 6), b"cdef"), None);
        assert_eq!(add(&mut parts, part(3, 0, 2), b"abc"), None);
        assert_eq!(add(&mut parts, part(4, 0, 4), b"ab"), None);
        parts.forget(|tid| tid == Tid(0x4_0001));
        assert_eq!(add(&mut parts, part(4, 2, 4), b"cd"), None);
        assert!(parts.begun.is_empty());
    }
}
