//! The memory that is sent, kept for as long as UCX reads it.

use std::sync::Arc;

/// What a message carries besides its header.
pub enum Payload {
    /// Owned: freed when it is sent.
    Bytes(Vec<u8>),
    /// Shared, for several receivers.
    Shared(Arc<[u8]>),
    /// Somebody else's, see [`Payload::borrowed`].
    Borrowed(*const u8, usize),
}

// SAFETY: whoever made a borrowed one promises that its memory can be read until it is sent,
// which no thread is bound to.
unsafe impl Send for Payload {}

impl Payload {
    /// None.
    pub const EMPTY: Self = Self::Bytes(Vec::new());

    /// Memory that is neither copied nor owned: shared windows, large arrays.
    ///
    /// # Safety
    /// It can be read, and is not freed, until `send` has said `Done`, or an event says that
    /// the message is `Sent` or `Unsent`, or the fabric is dropped.
    pub unsafe fn borrowed(start: *const u8, bytes: usize) -> Self {
        Self::Borrowed(start, bytes)
    }

    /// Where it begins, and its length in bytes.
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
