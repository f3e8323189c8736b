//! The loops of reductions.

use crate::number::{Arithmetic, Bits, Complex, Kind, LongDouble, Operation, Ordered};

/// Computes `to[i] = left[i] op right[i]` for a number of elements: `(to, left, right, count)`.
/// `to` may be `left` or `right`, and overlaps them in no other way.
pub type Loop = unsafe fn(*mut u8, *const u8, *const u8, usize);

/// Computes `to[i] = combine(left[i], right[i])` for `count` elements.
///
/// # Safety
/// The contract of [`Loop`], for elements of type `T`, which need not be aligned.
#[inline(always)]
unsafe fn each<T: Copy>(
    to: *mut u8,
    left: *const u8,
    right: *const u8,
    count: usize,
    combine: impl Fn(T, T) -> T,
) {
    let (to, left, right) = (to.cast::<T>(), left.cast::<T>(), right.cast::<T>());
    // The compiler vectorises a loop only where it need not fear an overlap.
    // SAFETY: all three have `count` elements. Each element is read before it is written.
    unsafe {
        if std::ptr::eq(to, left) {
            for i in 0..count {
                let value = combine(to.add(i).read_unaligned(), right.add(i).read_unaligned());
                to.add(i).write_unaligned(value);
            }
        } else if std::ptr::eq(to, right) {
            for i in 0..count {
                let value = combine(left.add(i).read_unaligned(), to.add(i).read_unaligned());
                to.add(i).write_unaligned(value);
            }
        } else {
            for i in 0..count {
                let value = combine(left.add(i).read_unaligned(), right.add(i).read_unaligned());
                to.add(i).write_unaligned(value);
            }
        }
    }
}

/// Number of elements from which on AVX2 is worth the check for it.
const WIDE_MIN: usize = 64;

macro_rules! loops {
    ($($name:ident: $trait:ident, $combine:expr;)*) => {
        $(
            /// # Safety
            /// The contract of [`each`].
            unsafe fn $name<T: $trait>(
                to: *mut u8,
                left: *const u8,
                right: *const u8,
                count: usize,
            ) {
                /// # Safety
                /// The contract of [`each`], and the processor has AVX2.
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx2")]
                unsafe fn wide<T: $trait>(
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

loops! {
    sum: Arithmetic, T::sum;
    product: Arithmetic, T::product;
    max: Ordered, T::larger;
    min: Ordered, T::lesser;
    and: Bits, T::and;
    or: Bits, T::or;
    xor: Bits, T::xor;
}

/// Returns the loop of an operation on numbers of a kind; none if these have no such operation.
pub const fn find(operation: Operation, kind: Kind) -> Option<Loop> {
    const fn arithmetic<T: Arithmetic>(operation: Operation) -> Option<Loop> {
        match operation {
            Operation::Sum => Some(sum::<T>),
            Operation::Product => Some(product::<T>),
            _ => None,
        }
    }
    const fn ordered<T: Arithmetic + Ordered>(operation: Operation) -> Option<Loop> {
        match operation {
            Operation::Max => Some(max::<T>),
            Operation::Min => Some(min::<T>),
            _ => arithmetic::<T>(operation),
        }
    }
    const fn bits<T: Arithmetic + Ordered + Bits>(operation: Operation) -> Option<Loop> {
        match operation {
            Operation::And => Some(and::<T>),
            Operation::Or => Some(or::<T>),
            Operation::Xor => Some(xor::<T>),
            _ => ordered::<T>(operation),
        }
    }
    match kind {
        Kind::I8 => bits::<i8>(operation),
        Kind::I16 => bits::<i16>(operation),
        Kind::I32 => bits::<i32>(operation),
        Kind::I64 => bits::<i64>(operation),
        Kind::U8 => bits::<u8>(operation),
        Kind::U16 => bits::<u16>(operation),
        Kind::U32 => bits::<u32>(operation),
        Kind::U64 => bits::<u64>(operation),
        Kind::F32 => ordered::<f32>(operation),
        Kind::F64 => ordered::<f64>(operation),
        Kind::LongDouble => ordered::<LongDouble>(operation),
        Kind::Complex32 => arithmetic::<Complex<f32>>(operation),
        Kind::Complex64 => arithmetic::<Complex<f64>>(operation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_may_replace_an_operand() {
        let (a, b): (Vec<i32>, Vec<i32>) = (0..1001).map(|i| (3 * i - 700, 900 - 5 * i)).unzip();
        for (operation, combine) in [
            (Operation::Sum, (|a, b| a + b) as fn(i32, i32) -> i32),
            (Operation::Max, |a: i32, b| a.max(b)),
            (Operation::Xor, |a, b| a ^ b),
        ] {
            let expected: Vec<i32> = a.iter().zip(&b).map(|(a, b)| combine(*a, *b)).collect();
            let run = find(operation, Kind::I32).expect("a loop");
            for count in [1, 7, 63, 64, 1001] {
                let [mut other, mut left, mut right] = [vec![0; 1001], a.clone(), b.clone()];
                // SAFETY: all arrays have 1001 elements.
                unsafe {
                    let (a, b) = (a.as_ptr().cast(), b.as_ptr().cast());
                    run(other.as_mut_ptr().cast(), a, b, count);
                    run(left.as_mut_ptr().cast(), left.as_ptr().cast(), b, count);
                    run(right.as_mut_ptr().cast(), a, right.as_ptr().cast(), count);
                }
                for result in [&other, &left, &right] {
                    assert_eq!(result[..count], expected[..count], "{operation:?} {count}");
                }
                assert_eq!(left[count..], a[count..]);
            }
        }
    }

    #[test]
    fn kinds_have_the_operations_that_suit_them() {
        assert!(find(Operation::And, Kind::F64).is_none());
        assert!(find(Operation::Max, Kind::Complex64).is_none());
        assert!(find(Operation::Min, Kind::LongDouble).is_some());
        assert!(find(Operation::Xor, Kind::U8).is_some());
    }
}
