//! The loops of reductions: this library's for common operators on common numbers, the MPI's for
//! all others.

use std::ffi::c_int;

use crate::abi::{Handle, SUCCESS};
use crate::buffer::{Failed, contiguous_size};
use crate::mpi::Mpi;
use crate::spread::copy;
use crate::types::{Function, Number, Operator};

/// `to[i] = left[i] op right[i]` for a number of elements. `to` may be `right`.
type Loop = unsafe fn(*mut u8, *const u8, *const u8, usize);

/// The loop that combines elements of one type by one operator.
#[derive(Clone, Copy)]
pub struct Kernel {
    /// Bytes of an element.
    pub size: usize,
    /// True if the order of operands does not matter.
    pub is_commutative: bool,
    own: Option<Loop>,
    kind: Handle,
    operator: Handle,
}

impl Kernel {
    /// Returns the kernel of a type and an operator. `None`: the MPI runs the operation, or returns
    /// the error. All ranks get the same result, since they must pass the same operator.
    #[inline]
    pub fn new(mpi: &Mpi, kind: Handle, operator: Handle) -> Result<Option<Self>, Failed> {
        let (kind, operator) = (mpi.handle(kind), mpi.handle(operator));
        let named = mpi.types.named(kind);
        let kernel = match (mpi.types.function(operator), named) {
            (Function::Predefined(function), Some(named)) if function.is_for(named.class) => {
                let own = named.number.and_then(|number| own_loop(function, number));
                Self { size: named.size, is_commutative: true, own, kind, operator }
            }
            (Function::User, _) => {
                let size = match named {
                    Some(named) => Some(named.size),
                    None => contiguous_size(mpi, kind)?,
                };
                let Some(size) = size else { return Ok(None) };
                Self { size, is_commutative: false, own: None, kind, operator }
            }
            _ => return Ok(None),
        };
        Ok(Some(kernel))
    }

    /// Computes `to = left op right` for `count` elements.
    ///
    /// # Safety
    /// All three have `count` elements. `to` is `right`, or overlaps neither.
    #[inline]
    pub unsafe fn combine(
        &self,
        mpi: &Mpi,
        to: *mut u8,
        left: *const u8,
        right: *const u8,
        count: usize,
    ) -> Result<(), Failed> {
        if let Some(own) = self.own {
            // SAFETY: this function has the contract of the loop.
            unsafe { own(to, left, right, count) };
            return Ok(());
        }
        if !std::ptr::eq(to, right) {
            // SAFETY: both have `count` elements, and `to` does not overlap `right` if it is not
            // `right`.
            unsafe { copy(right, to, count * self.size) };
        }
        // SAFETY: both have `count` elements. Pieces are small, so the count fits into an `int`.
        let status =
            unsafe { (mpi.reduce_local)(left, to, count as c_int, self.kind, self.operator) };
        if status == SUCCESS { Ok(()) } else { Err(status) }
    }
}

/// Computes `to[i] = combine(left[i], right[i])` for `count` elements.
///
/// # Safety
/// The contract of [`Kernel::combine`], for elements of type `T`, which need not be aligned.
#[inline(always)]
unsafe fn each<T: Copy>(
    to: *mut u8,
    left: *const u8,
    right: *const u8,
    count: usize,
    combine: impl Fn(T, T) -> T,
) {
    let (to, left, right) = (to.cast::<T>(), left.cast::<T>(), right.cast::<T>());
    // SAFETY: all three have `count` elements. If `to` is `right`, each element is read before it
    // is written.
    unsafe {
        for i in 0..count {
            let value = combine(left.add(i).read_unaligned(), right.add(i).read_unaligned());
            to.add(i).write_unaligned(value);
        }
    }
}

macro_rules! loops {
    ($($name:ident: $combine:expr;)*) => {
        $(
            /// # Safety
            /// The contract of [`each`].
            unsafe fn $name<T: Numeric>(
                to: *mut u8,
                left: *const u8,
                right: *const u8,
                count: usize,
            ) {
                /// # Safety
                /// The contract of [`each`], and the processor has AVX2.
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx2")]
                unsafe fn wide<T: Numeric>(
                    to: *mut u8,
                    left: *const u8,
                    right: *const u8,
                    count: usize,
                ) {
                    // SAFETY: this function has the contract of `each`.
                    unsafe { each::<T>(to, left, right, count, $combine) }
                }
                #[cfg(target_arch = "x86_64")]
                if count >= WIDE_MIN && std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: this function has the contract of `each`, and the processor has AVX2.
                    return unsafe { wide::<T>(to, left, right, count) };
                }
                // SAFETY: this function has the contract of `each`.
                unsafe { each::<T>(to, left, right, count, $combine) }
            }
        )*
    };
}

/// Number of elements from which on AVX2 is worth the check for it.
const WIDE_MIN: usize = 64;

/// A number that this library reduces.
trait Numeric: Copy + PartialOrd {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
}

macro_rules! numeric {
    ($($integer:ty),*; $($real:ty),*) => {
        $(impl Numeric for $integer {
            fn sum(self, other: Self) -> Self { self.wrapping_add(other) }
            fn product(self, other: Self) -> Self { self.wrapping_mul(other) }
        })*
        $(impl Numeric for $real {
            fn sum(self, other: Self) -> Self { self + other }
            fn product(self, other: Self) -> Self { self * other }
        })*
    };
}
numeric!(i32, i64, u32, u64; f32, f64);

loops! {
    sum: T::sum;
    product: T::product;
    largest: |a, b| if a > b { a } else { b };
    least: |a, b| if a < b { a } else { b };
}

fn own_loop(operator: Operator, number: Number) -> Option<Loop> {
    fn of<T: Numeric>(operator: Operator) -> Option<Loop> {
        match operator {
            Operator::Sum => Some(sum::<T>),
            Operator::Prod => Some(product::<T>),
            Operator::Max => Some(largest::<T>),
            Operator::Min => Some(least::<T>),
            _ => None,
        }
    }
    match number {
        Number::I32 => of::<i32>(operator),
        Number::I64 => of::<i64>(operator),
        Number::U32 => of::<u32>(operator),
        Number::U64 => of::<u64>(operator),
        Number::F32 => of::<f32>(operator),
        Number::F64 => of::<f64>(operator),
    }
}
