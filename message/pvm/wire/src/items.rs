//! The caller's arrays: where packing reads and unpacking writes.
//!
//! Item `i` of an array lies `i × stride` items after its first; strides may be 0 or negative.

use std::slice;

/// What an item is.
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
    /// Bytes of an item in memory.
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
    /// `count` items from `at`; none if `count` is not positive.
    ///
    /// # Safety
    /// All items must stay readable and unchanged until the call that takes the source
    /// returns. Packed in place they must stay readable as long as the message lives, and
    /// must not change while a call reads it.
    pub unsafe fn new(kind: Kind, at: *const u8, count: i32, stride: i32) -> Source {
        Source { kind, at, count, stride }
    }

    pub(crate) fn contiguous(&self) -> bool {
        self.stride == 1
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count.max(0) as usize
    }

    pub(crate) fn item(&self, i: usize) -> &[u8] {
        assert!(i < self.len());
        let size = self.kind.size();
        let offset = i as isize * self.stride as isize * size as isize;
        // SAFETY: an item of the array, readable as `new` demands.
        unsafe { slice::from_raw_parts(self.at.offset(offset), size) }
    }

    /// All items, of an array without gaps.
    pub(crate) fn all(&self) -> &[u8] {
        assert!(self.contiguous());
        if self.len() == 0 {
            return &[];
        }
        // SAFETY: all items, one after another, readable as `new` demands.
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
    /// `count` items from `at`; none if `count` is not positive.
    ///
    /// # Safety
    /// All items must stay writable, and nobody else may use them, until the call that takes
    /// the target returns. No item may be part of a message packed in place that is unpacked.
    pub unsafe fn new(kind: Kind, at: *mut u8, count: i32, stride: i32) -> Target {
        Target { kind, at, count, stride }
    }

    pub(crate) fn contiguous(&self) -> bool {
        self.stride == 1
    }

    /// As the caller said.
    pub(crate) fn count(&self) -> i32 {
        self.count
    }

    pub(crate) fn len(&self) -> usize {
        self.count.max(0) as usize
    }

    /// Writes into item `i`, or for arrays without gaps from there on, at `offset` bytes.
    pub(crate) fn write(&mut self, i: usize, offset: usize, bytes: &[u8]) {
        self.write_with(i, offset, bytes.len(), |to| to.copy_from_slice(bytes));
    }

    /// As [`Target::write`], of `len` bytes that `fill` writes.
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
        // SAFETY: inside an item, or several without gaps, writable as `new` demands; a
        // message's own memory does not overlap with it.
        fill(unsafe { slice::from_raw_parts_mut(self.at.offset(item).add(offset), len) })
    }
}
