//! The operations of pvm_reduce on two arrays: PvmMax, PvmMin, PvmSum, PvmProduct. Complex numbers
//! are ordered by their modulus.

use std::ffi::{c_int, c_long, c_void};
use std::ops::{Add, Mul};

use pvm::error::Error;

/// A complex number as in `pvm3.h`: real and imaginary part.
#[derive(Clone, Copy)]
#[repr(C)]
struct Complex<T>(T, T);

trait Item: Copy {
    fn is_less(self, other: Self) -> bool;
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($kind:ty),+) => {$(
        impl Item for $kind {
            fn is_less(self, other: Self) -> bool {
                self < other
            }
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }
    )+};
}

macro_rules! floats {
    ($($kind:ty),+) => {$(
        impl Item for $kind {
            fn is_less(self, other: Self) -> bool {
                self < other
            }
            fn sum(self, other: Self) -> Self {
                self.add(other)
            }
            fn product(self, other: Self) -> Self {
                self.mul(other)
            }
        }
        impl Item for Complex<$kind> {
            fn is_less(self, other: Self) -> bool {
                let square = |Complex(a, b): Self| a * a + b * b;
                square(self) < square(other)
            }
            fn sum(self, other: Self) -> Self {
                Complex(self.0 + other.0, self.1 + other.1)
            }
            fn product(self, other: Self) -> Self {
                let (Complex(a, b), Complex(c, d)) = (self, other);
                Complex(a * c - b * d, a * d + b * c)
            }
        }
    )+};
}

integers!(i8, i16, i32, c_long);
floats!(f32, f64);

fn greater<T: Item>(x: T, y: T) -> T {
    if x.is_less(y) { y } else { x }
}

fn less<T: Item>(x: T, y: T) -> T {
    if y.is_less(x) { y } else { x }
}

/// Computes `x = f(x, y)` for each item.
///
/// # Safety
/// `x` and `y` have `count` items each, which need not be aligned.
unsafe fn each<T: Item>(x: *mut c_void, y: *const c_void, count: usize, f: impl Fn(T, T) -> T) {
    let (x, y) = (x.cast::<T>(), y.cast::<T>());
    for i in 0..count {
        // SAFETY: `i` is less than `count`, and both arrays have `count` items, required of the
        // caller.
        unsafe {
            x.add(i).write_unaligned(f(x.add(i).read_unaligned(), y.add(i).read_unaligned()))
        };
    }
}

/// Defines an operation by its name, its function, and its function for bytes if it takes bytes.
macro_rules! operation {
    ($(#[$doc:meta])+ $name:ident, $function:path $(, $byte:path)?) => {
        $(#[$doc])+
        ///
        /// # Safety
        /// The arrays have `count` items of the type. The other pointers are valid.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "pvm3.h's name")]
        pub unsafe extern "C" fn $name(
            datatype: *mut c_int,
            x: *mut c_void,
            y: *mut c_void,
            count: *mut c_int,
            info: *mut c_int,
        ) {
            // SAFETY: the pointers are valid, and the arrays have `count` items of `datatype`,
            // required of the caller.
            unsafe {
                let count = usize::try_from(*count).unwrap_or(0);
                *info = 0;
                match *datatype {
                    $(1 => each::<i8>(x, y, count, $byte),)?
                    2 => each::<i16>(x, y, count, $function),
                    3 => each::<i32>(x, y, count, $function),
                    4 => each::<f32>(x, y, count, $function),
                    5 => each::<Complex<f32>>(x, y, count, $function),
                    6 => each::<f64>(x, y, count, $function),
                    7 => each::<Complex<f64>>(x, y, count, $function),
                    8 => each::<c_long>(x, y, count, $function),
                    _ => *info = Error::BadParam.code(),
                }
            }
        }
    };
}

operation! {
    /// Stores the greater of each two items. BadParam for strings and unsigned types.
    PvmMax, greater, greater
}
operation! {
    /// Stores the lesser of each two items. BadParam for strings and unsigned types.
    PvmMin, less, less
}
operation! {
    /// Stores the sum of each two items. BadParam also for bytes.
    PvmSum, Item::sum
}
operation! {
    /// Stores the product of each two items. BadParam also for bytes.
    PvmProduct, Item::product
}
