//! The caller's arrays, which packing reads and unpacking writes.
//!
//! Item `i` of an array lies `i × stride` items after the first; strides may be 0 or negative.

use std::slice;

/// The type of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// 1 byte
    Byte,
    /// `short`
    Short,
    /// `int`
    Int,
    /// `long`
    Long,
    /// `unsigned short`
    UShort,
    /// `unsigned int`
    UInt,
    /// `unsigned long`
    ULong,
    /// `float`
    Float,
    /// `double`
    Double,
    /// two `float`
    Complex,
    /// two `double`
    DoubleComplex,
}

impl Kind {
    /// Returns the bytes of an item in memory.
    pub fn size(self) -> usize {
        match self {
            Kind::Byte => 1,
            Kind::Short | Kind::UShort => 2,
            Kind::Int | Kind::UInt | Kind::Float => 4,
            Kind::Long | Kind::ULong | Kind::Double | Kind::Complex => 8,
            Kind::DoubleComplex => 16,
        }
    }
}

/// An array to pack.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    pub(crate) kind: Kind,
    pub(crate) at: *const u8,
    pub(crate) count: i32,
    pub(crate) stride: i32,
}

impl Source {
    /// Describes `count` items from `at`; none if `count` is not positive.
    ///
    /// # Safety
    /// All items must stay readable and unchanged until the call that takes the source returns.
    /// Items packed in place must stay readable as long as the message lives, and must not
    /// change while a call reads it.
    pub unsafe fn new(kind: Kind, at: *const u8, count: i32, stride: i32) -> Source {
        Source { kind, at, count, stride }
    }

    pub(crate) fn contiguous(&self) -> bool {
        self.stride == 1
    }

    /// Returns the number of items.
    pub(crate) fn len(&self) -> usize {
        self.count.max(0) as usize
    }

    pub(crate) fn item(&self, i: usize) -> &[u8] {
        assert!(i < self.len());
        let size = self.kind.size();
        let offset = i as isize * self.stride as isize * size as isize;
        // SAFETY: `i` is less than the number of items, checked above. `new` requires that all
        // items are readable and unchanged.
        unsafe { slice::from_raw_parts(self.at.offset(offset), size) }
    }

    /// Returns all items of an array with stride 1.
    pub(crate) fn all(&self) -> &[u8] {
        assert!(self.contiguous());
        if self.len() == 0 {
            return &[];
        }
        // SAFETY: with stride 1, checked above, the items are contiguous. `new` requires that
        // all are readable and unchanged.
        unsafe { slice::from_raw_parts(self.at, self.len() * self.kind.size()) }
    }
}

/// An array to unpack into.
#[derive(Debug)]
pub struct Target {
    pub(crate) kind: Kind,
    at: *mut u8,
    count: i32,
    stride: i32,
}

impl Target {
    /// Describes `count` items from `at`; none if `count` is not positive.
    ///
    /// # Safety
    /// All items must stay writable, and nobody else may use them, until the call that takes the
    /// target returns. No item may be part of an in-place message that is being unpacked.
    pub unsafe fn new(kind: Kind, at: *mut u8, count: i32, stride: i32) -> Target {
        Target { kind, at, count, stride }
    }

    pub(crate) fn contiguous(&self) -> bool {
        self.stride == 1
    }

    /// Returns the count as the caller passed it.
    pub(crate) fn count(&self) -> i32 {
        self.count
    }

    pub(crate) fn len(&self) -> usize {
        self.count.max(0) as usize
    }

    /// Writes at `offset` bytes into item `i`. With stride 1, the bytes may extend over later
    /// items.
    pub(crate) fn write(&mut self, i: usize, offset: usize, bytes: &[u8]) {
        self.write_with(i, offset, bytes.len(), |to| to.copy_from_slice(bytes));
    }

    /// Does the same as [`Target::write`] with `len` bytes that `fill` writes.
    pub(crate) fn write_with<T>(
        &mut self,
        i: usize,
        offset: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        let size = self.kind.size();
        let room = if self.contiguous() { (self.len() - i) * size } else { size };
        assert!(i < self.len() && offset + len <= room);
        let item = i as isize * self.stride as isize * size as isize;
        // SAFETY: the bytes lie in one item, or with stride 1 in adjacent items, checked above.
        // `new` requires that these are writable and unused by others, so no message's memory
        // overlaps.
        fill(unsafe { slice::from_raw_parts_mut(self.at.offset(item).add(offset), len) })
    }
}
