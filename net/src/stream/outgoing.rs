//! A message on its way out, cut into records.

use super::frame::{Head, SHORT_BYTES_MAX};
use crate::payload::Payload;
use zerocopy::IntoBytes as _;

/// A message that has not left completely.
pub struct Outgoing {
    header: Vec<u8>,
    payload: Payload,
    /// Bytes of the payload that have left; none while the header has not.
    left: Option<usize>,
    /// The sender's name for it.
    pub tag: u64,
}

impl Outgoing {
    /// A message of which nothing has left.
    pub fn new(header: Vec<u8>, payload: Payload, tag: u64) -> Self {
        Self { header, payload, left: None, tag }
    }

    /// Returns true if a part of it has left.
    pub fn has_begun(&self) -> bool {
        self.left.is_some()
    }

    /// Passes the next record to `put`, as parts that follow each other; its length is at most
    /// `bytes_max`, or that of a frame's first record. `put` may fail, and nothing has left then.
    /// Returns true if it was the last one.
    pub fn put_next<E>(
        &mut self,
        bytes_max: usize,
        put: impl FnOnce(&[&[u8]]) -> Result<(), E>,
    ) -> Result<bool, E> {
        let payload = bytes_of(&self.payload);
        let (left, is_last) = match self.left {
            None => {
                let is_short = payload.len() <= SHORT_BYTES_MAX;
                let short = if is_short { payload } else { &[] };
                put(&[Head::new(&self.header, payload).as_bytes(), &self.header, short])?;
                (0, is_short)
            }
            Some(left) => {
                let end = payload.len().min(left + bytes_max);
                put(&[&payload[left..end]])?;
                (end, end == payload.len())
            }
        };
        self.left = Some(left);
        Ok(is_last)
    }
}

/// Returns the bytes of a payload whose message is not reported as sent yet.
pub fn bytes_of(payload: &Payload) -> &[u8] {
    match payload.extent() {
        (_, 0) => &[],
        // SAFETY: the payload is readable until its message is reported as sent, which
        // `Payload::borrowed` requires of its user. The caller has not reported it yet.
        (start, bytes) => unsafe { std::slice::from_raw_parts(start, bytes) },
    }
}
