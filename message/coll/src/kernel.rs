//! The loops of reductions: our own for the common operators on the common numbers, the MPI's
//! for all others.

use std::ffi::c_int;

use crate::buffer::{Failed, size_in_a_row};
use crate::mpi::{Handle, Mpi, SUCCESS};
use crate::spread::copy;
use crate::types::{Function, Number, Operator};

/// `to[i] = left[i] op right[i]`, so many of them. `to` may be `right`.
type Loop = unsafe fn(*mut u8, *const u8, *const u8, usize);

/// How elements are put together.
#[derive(Clone, Copy)]
pub struct Kernel {
    /// Bytes of an element.
    pub size: usize,
    /// Whether the order does not matter.
    pub is_commutative: bool,
    own: Option<Loop>,
    kind: Handle,
    operator: Handle,
}

impl Kernel {
    /// For this type and operator; `None`: the MPI is to do it, or to say why not. The answer is
    /// the same for all ranks, since they must name the same.
    #[inline]
    pub fn new(mpi: &Mpi, kind: Handle, operator: Handle) -> Result<Option<Self>, Failed> {
        let (kind, operator) = (mpi.handle(kind), mpi.handle(operator));
        let named = mpi.types.named(kind);
        let kernel = match (mpi.types.function(operator), named) {
            (Function::Own(function), Some(named)) if function.is_for(named.class) => {
                let own = named.number.and_then(|number| own_loop(function, number));
                Self { size: named.size, is_commutative: true, own, kind, operator }
            }
            (Function::Users, _) => {
                let size = match named {
                    Some(named) => Some(named.size),
                    None => size_in_a_row(mpi, kind)?,
                };
                let Some(size) = size else { return Ok(None) };
                Self { size, is_commutative: false, own: None, kind, operator }
            }
            _ => return Ok(None),
        };
        Ok(Some(kernel))
    }

    /// `to = left op right`, so many elements.
    ///
    /// # Safety
    /// All have room for them. `to` is `right`, or apart from both.
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
            // SAFETY: the caller's promise.
            unsafe { own(to, left, right, count) };
            return Ok(());
        }
        if !std::ptr::eq(to, right) {
            // SAFETY: apart, says the caller.
            unsafe { copy(right, to, count * self.size) };
        }
        // SAFETY: the caller's promise; pieces are small, so the count fits.
        let status =
            unsafe { (mpi.reduce_local)(left, to, count as c_int, self.kind, self.operator) };
        if status == SUCCESS { Ok(()) } else { Err(status) }
    }
}

/// # Safety
/// As [`Kernel::combine`]; elements of type `T`, perhaps not aligned.
#[inline(always)]
unsafe fn each<T: Copy>(
    to: *mut u8,
    left: *const u8,
    right: *const u8,
    count: usize,
    combine: impl Fn(T, T) -> T,
) {
    let (to, left, right) = (to.cast::<T>(), left.cast::<T>(), right.cast::<T>());
    // SAFETY: the caller's promise. Each is read before it is written.
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
            /// As [`each`].
            unsafe fn $name<T: Numeric>(
                to: *mut u8,
                left: *const u8,
                right: *const u8,
                count: usize,
            ) {
                /// # Safety
                /// As [`each`]; and the processor has AVX2.
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx2")]
                unsafe fn wide<T: Numeric>(
                    to: *mut u8,
                    left: *const u8,
                    right: *const u8,
                    count: usize,
                ) {
                    // SAFETY: the caller's promise.
                    unsafe { each::<T>(to, left, right, count, $combine) }
                }
                #[cfg(target_arch = "x86_64")]
                if count >= WIDE && std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: the caller's promise, and it has AVX2.
                    return unsafe { wide::<T>(to, left, right, count) };
                }
                // SAFETY: the caller's promise.
                unsafe { each::<T>(to, left, right, count, $combine) }
            }
        )*
    };
}

/// From so many elements on wide registers are worth the question.
const WIDE: usize = 64;

/// A number that we calculate with.
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
