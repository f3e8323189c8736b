//! A buffer in several parts (`struct iovec`), by address and length.

use libc::iovec;

/// Largest number of parts of a buffer.
pub const PARTS: usize = 4;

/// A range of memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Part {
    /// Address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub length: u64,
}

/// A buffer in several parts.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parts {
    list: [Part; PARTS],
    count: u64,
}

impl Parts {
    /// Makes a buffer in one part.
    #[inline]
    pub fn one(address: u64, length: u64) -> Self {
        let mut list = [Part::default(); PARTS];
        list[0] = Part { address, length };
        Self { list, count: 1 }
    }

    /// Makes a buffer of these parts. Returns `None` if there are more than [`PARTS`].
    #[inline]
    pub fn of(parts: &[iovec]) -> Option<Self> {
        if let [part] = parts {
            return Some(Self::one(part.iov_base as u64, part.iov_len as u64));
        }
        let mut made = Self::default();
        for part in parts {
            let place = made.list.get_mut(made.count as usize)?;
            *place = Part { address: part.iov_base as u64, length: part.iov_len as u64 };
            made.count += 1;
        }
        Some(made)
    }

    /// Returns the parts.
    #[inline]
    pub fn list(&self) -> &[Part] {
        &self.list[..(self.count as usize).min(PARTS)]
    }

    /// Returns the number of bytes of all parts.
    #[inline]
    pub fn length(&self) -> u64 {
        self.list().iter().fold(0u64, |sum, part| sum.saturating_add(part.length))
    }

    /// Returns the first part.
    pub fn first(&self) -> Part {
        self.list[0]
    }

    /// Returns the address of the first part.
    pub fn address(&self) -> u64 {
        self.list[0].address
    }
}
