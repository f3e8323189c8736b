//! The layout of strided elements.

use crate::fatal::fatal;

/// The layout of the elements of a strided operation.
#[derive(Clone, Copy)]
pub struct Strides {
    /// Bytes of an element.
    pub element: usize,
    /// Elements from one to the next, in the target.
    pub target: isize,
    /// Elements from one to the next, in the source.
    pub source: isize,
    /// Number of elements.
    pub n: usize,
}

impl Strides {
    /// Checks the strides, which the standard requires to be at least 1.
    pub fn check(&self, function: &str) {
        if self.n > 1 && (self.target < 1 || self.source < 1) {
            let Self { target, source, .. } = self;
            fatal!(function, "the strides {target} and {source} must be at least 1");
        }
    }

    /// The bytes from the first element's begin to the last one's end.
    pub fn span(&self, stride: isize) -> usize {
        (self.n - 1) * stride.unsigned_abs() * self.element + self.element
    }
}
