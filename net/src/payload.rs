//! The memory that is sent, kept for as long as UCX reads it.

use std::sync::Arc;

/// The body of a message, after its header.
pub enum Payload {
    /// Owned: freed when it is sent.
    Bytes(Vec<u8>),
    /// Shared, for several receivers.
    Shared(Arc<[u8]>),
    /// Somebody else's, see [`Payload::borrowed`].
    Borrowed(*const u8, usize),
}

// SAFETY: `Payload::borrowed` requires that its memory can be read until the message is sent, and
// no thread owns that memory.
unsafe impl Send for Payload {}

impl Payload {
    /// None.
    pub const EMPTY: Self = Self::Bytes(Vec::new());

    /// Borrows memory without a copy: shared windows, large arrays.
    ///
    /// # Safety
    /// The memory must stay readable and allocated until `send` returns `Done`, or an event
    /// reports the message as `Sent` or `Unsent`, or the fabric is dropped.
    pub unsafe fn borrowed(start: *const u8, bytes: usize) -> Self {
        Self::Borrowed(start, bytes)
    }

    /// Returns the start and the length in bytes.
    pub fn extent(&self) -> (*const u8, usize) {
        match self {
            Self::Bytes(bytes) => (bytes.as_ptr(), bytes.len()),
            Self::Shared(bytes) => (bytes.as_ptr(), bytes.len()),
            Self::Borrowed(start, bytes) => (*start, *bytes),
        }
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl From<Arc<[u8]>> for Payload {
    fn from(bytes: Arc<[u8]>) -> Self {
        Self::Shared(bytes)
    }
}
