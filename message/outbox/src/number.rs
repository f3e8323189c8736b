//! Numbers that reductions combine, and the operations on them.
//!
//! Rust has no type for the `long double` of C: an x87 number of 80 bits. Its operations are
//! instructions of the x87 on two numbers in memory.

use std::arch::asm;

/// An operation of a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Operation {
    Sum,
    Product,
    Max,
    Min,
    And,
    Or,
    Xor,
}

/// A kind of number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of Rust's types")]
pub enum Kind {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    /// The `long double` of C.
    LongDouble,
    /// The `float _Complex` of C.
    Complex32,
    /// The `double _Complex` of C.
    Complex64,
}

impl Kind {
    /// Returns the size of a number in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::Complex32 => 8,
            Self::LongDouble | Self::Complex64 => 16,
        }
    }
}

/// A number with a sum and a product. Those of integers wrap.
pub trait Arithmetic: Copy {
    /// Returns the sum.
    fn sum(self, other: Self) -> Self;
    /// Returns the product.
    fn product(self, other: Self) -> Self;
}

/// A number with an order.
pub trait Ordered: Copy {
    /// Returns the larger one; `other` if they have no order.
    fn larger(self, other: Self) -> Self;
    /// Returns the lesser one; `other` if they have no order.
    fn lesser(self, other: Self) -> Self;
}

/// A number of bits.
pub trait Bits: Copy {
    /// Returns the bits of both.
    fn and(self, other: Self) -> Self;
    /// Returns the bits of any.
    fn or(self, other: Self) -> Self;
    /// Returns the bits of one of them.
    fn xor(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Arithmetic for $integer {
            fn sum(self, other: Self) -> Self { self.wrapping_add(other) }
            fn product(self, other: Self) -> Self { self.wrapping_mul(other) }
        }
        impl Bits for $integer {
            fn and(self, other: Self) -> Self { self & other }
            fn or(self, other: Self) -> Self { self | other }
            fn xor(self, other: Self) -> Self { self ^ other }
        }
    )*};
}
integers!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! reals {
    ($($real:ty),*) => {$(
        impl Arithmetic for $real {
            fn sum(self, other: Self) -> Self { self + other }
            fn product(self, other: Self) -> Self { self * other }
        }
        impl Arithmetic for Complex<$real> {
            fn sum(self, other: Self) -> Self {
                Self { real: self.real + other.real, imaginary: self.imaginary + other.imaginary }
            }
            fn product(self, other: Self) -> Self {
                Self {
                    real: self.real * other.real - self.imaginary * other.imaginary,
                    imaginary: self.real * other.imaginary + self.imaginary * other.real,
                }
            }
        }
    )*};
}
reals!(f32, f64);

macro_rules! ordered {
    ($($number:ty),*) => {$(
        impl Ordered for $number {
            fn larger(self, other: Self) -> Self { if self > other { self } else { other } }
            fn lesser(self, other: Self) -> Self { if self < other { self } else { other } }
        }
    )*};
}
ordered!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);

/// A complex number of C.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Complex<T> {
    /// Its real part.
    pub real: T,
    /// Its imaginary part.
    pub imaginary: T,
}

/// A `long double` of C: 80 bits of the x87, and padding.
#[repr(C, align(16))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongDouble(pub [u8; 16]);

/// Computes a `long double` from two, which the instructions find in `st(1)` and `st(0)`. They
/// leave one number.
macro_rules! x87 {
    ($left:expr, $right:expr, $($line:literal),*) => {{
        let (left, right, mut result) = ($left, $right, LongDouble([0; 16]));
        // SAFETY: the instructions read two numbers and write one, all of them local variables. The
        // x87's stack is empty before and after, as its clobbered registers require.
        unsafe {
            asm!(
                "fld tbyte ptr [{left}]",
                "fld tbyte ptr [{right}]",
                $($line,)*
                "fstp tbyte ptr [{result}]",
                left = in(reg) &raw const left,
                right = in(reg) &raw const right,
                result = in(reg) &raw mut result,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack)
            )
        };
        result
    }};
}

impl Arithmetic for LongDouble {
    fn sum(self, other: Self) -> Self {
        x87!(self, other, "faddp st(1), st")
    }
    fn product(self, other: Self) -> Self {
        x87!(self, other, "fmulp st(1), st")
    }
}

impl Ordered for LongDouble {
    fn larger(self, other: Self) -> Self {
        // If other < self, the result is self. Without an order the carry flag is set, too.
        x87!(other, self, "fucomi st, st(1)", "fcmovbe st, st(1)", "fstp st(1)")
    }
    fn lesser(self, other: Self) -> Self {
        x87!(self, other, "fucomi st, st(1)", "fcmovnbe st, st(1)", "fstp st(1)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Converts by the x87.
    fn long(value: f64) -> LongDouble {
        let mut result = LongDouble([0; 16]);
        // SAFETY: the instructions read and write these variables.
        unsafe {
            asm!(
                "fld qword ptr [{value}]",
                "fstp tbyte ptr [{result}]",
                value = in(reg) &raw const value,
                result = in(reg) &raw mut result,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
            )
        };
        result
    }

    #[test]
    fn long_doubles_have_sums_products_and_an_order() {
        for (a, b) in [(1.5, -2.25), (-3.0, 4.0), (7.0, 7.0), (0.5, 1e300)] {
            assert_eq!(long(a).sum(long(b)), long(a + b));
            assert_eq!(long(a).product(long(b)), long(a * b));
            assert_eq!(Ordered::larger(long(a), long(b)), long(a.max(b)), "{a} {b}");
            assert_eq!(Ordered::lesser(long(a), long(b)), long(a.min(b)), "{a} {b}");
        }
        // Above the precision of f64.
        let (large, small) = (long((1_u64 << 60) as f64), long(1.0));
        assert_ne!(large.sum(small), large);
    }

    #[test]
    fn the_second_number_is_the_result_if_there_is_no_order() {
        let nan = f64::NAN;
        assert_eq!(Ordered::larger(nan, 1.0), 1.0);
        assert_eq!(Ordered::lesser(nan, 1.0), 1.0);
        assert!(Ordered::larger(1.0, nan).is_nan() && Ordered::lesser(1.0, nan).is_nan());
        assert_eq!(Ordered::larger(long(nan), long(1.0)), long(1.0));
        assert_eq!(Ordered::lesser(long(nan), long(1.0)), long(1.0));
        assert_eq!(Ordered::larger(long(1.0), long(nan)), long(nan));
        assert_eq!(Ordered::lesser(long(1.0), long(nan)), long(nan));
    }

    #[test]
    fn complex_numbers_have_sums_and_products() {
        let (a, b) =
            (Complex { real: 1.0, imaginary: 2.0 }, Complex { real: 3.0, imaginary: -4.0 });
        assert_eq!(a.sum(b), Complex { real: 4.0, imaginary: -2.0 });
        assert_eq!(a.product(b), Complex { real: 11.0, imaginary: 2.0 });
    }
}
