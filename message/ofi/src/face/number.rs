//! Numbers of atomic operations: the types, the operations, and the accesses to memory.
//!
//! Integers and floating-point numbers of up to eight bytes change by compare-and-swap on the
//! target's memory. So the operations are atomic with the target's own atomic instructions, too.
//! Longer numbers (`wide`) change under a lock in the target's memory.

use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use crate::abi;
use crate::face::wide;

/// A number of up to eight bytes. In memory it is the low bytes of a word.
trait Number: Copy + PartialOrd {
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn truth(is: bool) -> Self;
    /// Returns `None` for numbers without bits.
    fn bitwise(op: u32, left: u64, right: u64) -> Option<u64>;
}

macro_rules! integers {
    ($($type:ty),*) => {
        $(impl Number for $type {
            #[inline]
            fn of(bits: u64) -> Self {
                bits as Self
            }
            #[inline]
            fn bits(self) -> u64 {
                // The bytes above the number are 0.
                u64::from_le_bytes(std::array::from_fn(|i| {
                    self.to_le_bytes().get(i).copied().unwrap_or(0)
                }))
            }
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn truth(is: bool) -> Self {
                Self::from(is)
            }
            fn bitwise(op: u32, left: u64, right: u64) -> Option<u64> {
                match op {
                    abi::BOR => Some(left | right),
                    abi::BAND => Some(left & right),
                    abi::BXOR => Some(left ^ right),
                    _ => None,
                }
            }
        })*
    };
}

macro_rules! floats {
    ($($type:ty: $bits:ty),*) => {
        $(impl Number for $type {
            #[inline]
            fn of(bits: u64) -> Self {
                Self::from_bits(bits as $bits)
            }
            #[inline]
            fn bits(self) -> u64 {
                self.to_bits().into()
            }
            fn sum(self, other: Self) -> Self {
                self + other
            }
            fn product(self, other: Self) -> Self {
                self * other
            }
            fn truth(is: bool) -> Self {
                if is { 1.0 } else { 0.0 }
            }
            fn bitwise(_: u32, _: u64, _: u64) -> Option<u64> {
                None
            }
        })*
    };
}

integers!(i8, u8, i16, u16, i32, u32, i64, u64);
floats!(f32: u32, f64: u64);

/// Returns the new value of `old` after an operation. `None`: the type has no such operation.
#[inline]
fn change<N: Number>(op: u32, old: u64, operand: u64, compare: u64) -> Option<u64> {
    let (was, by, with) = (N::of(old), N::of(operand), N::of(compare));
    let is_true = |number: N| number != N::truth(false);
    let logical = |is: bool| Some(N::truth(is).bits());
    let if_so = |is: bool| Some(if is { operand } else { old });
    match op {
        abi::MIN => if_so(by < was),
        abi::MAX => if_so(by > was),
        abi::SUM => Some(was.sum(by).bits()),
        abi::PROD => Some(was.product(by).bits()),
        abi::LOR => logical(is_true(was) || is_true(by)),
        abi::LAND => logical(is_true(was) && is_true(by)),
        abi::LXOR => logical(is_true(was) != is_true(by)),
        abi::ATOMIC_READ => Some(old),
        abi::ATOMIC_WRITE => Some(operand),
        abi::CSWAP => if_so(with == was),
        abi::CSWAP_NE => if_so(with != was),
        abi::CSWAP_LE => if_so(with <= was),
        abi::CSWAP_LT => if_so(with < was),
        abi::CSWAP_GE => if_so(with >= was),
        abi::CSWAP_GT => if_so(with > was),
        abi::MSWAP => {
            let taken = N::bitwise(abi::BAND, operand, compare)?;
            let left = N::bitwise(abi::BAND, old, !compare)?;
            N::bitwise(abi::BOR, taken, left)
        }
        _ => N::bitwise(op, old, operand),
    }
}

/// An operation: its number, the old value, the operand, and the value to compare with.
pub type Change = fn(u32, u64, u64, u64) -> Option<u64>;

/// The way in which numbers of a type change.
#[derive(Clone, Copy)]
pub enum Method {
    /// By compare-and-swap.
    Word(Change),
    /// Under the target's lock.
    Wide(wide::Change),
}

impl Method {
    /// Returns true if the type has this operation.
    pub fn has(self, op: u32) -> bool {
        let none = wide::Bytes::default();
        match self {
            Self::Word(change) => change(op, 0, 0, 0).is_some(),
            Self::Wide(change) => change(op, &none, &none, &none).is_some(),
        }
    }
}

/// A type of numbers.
#[derive(Clone, Copy)]
pub struct DataType {
    pub method: Method,
    /// Number of bytes.
    pub size: usize,
    /// Alignment of addresses.
    pub align: usize,
}

/// Returns the type with this number of libfabric's.
pub fn data_type(datatype: u32) -> Option<DataType> {
    let (change, size): (Change, usize) = match datatype {
        abi::INT8 => (change::<i8>, 1),
        abi::UINT8 => (change::<u8>, 1),
        abi::INT16 => (change::<i16>, 2),
        abi::UINT16 => (change::<u16>, 2),
        abi::INT32 => (change::<i32>, 4),
        abi::UINT32 => (change::<u32>, 4),
        abi::INT64 => (change::<i64>, 8),
        abi::UINT64 => (change::<u64>, 8),
        abi::FLOAT => (change::<f32>, 4),
        abi::DOUBLE => (change::<f64>, 8),
        _ => {
            let (change, size, align) = wide::numbers(datatype)?;
            return Some(DataType { method: Method::Wide(change), size, align });
        }
    };
    Some(DataType { method: Method::Word(change), size, align: size })
}

/// Changes a number by compare-and-swap. Returns the old value.
///
/// # Safety
/// A number of `size` bytes is there, aligned, and may be read and written.
pub unsafe fn update(at: u64, size: usize, mut change: impl FnMut(u64) -> u64) -> u64 {
    macro_rules! swap {
        ($atomic:ty, $word:ty) => {{
            // SAFETY: an aligned number of this size, by the function's contract. Accesses are
            // atomic, as the target's threads and other peers may use it at the same time.
            let word = unsafe { &*(at as *const $atomic) };
            let mut old = word.load(Acquire);
            loop {
                let new = change(old.into()) as $word;
                match word.compare_exchange_weak(old, new, AcqRel, Acquire) {
                    Ok(_) => return old.into(),
                    Err(now) => old = now,
                }
            }
        }};
    }
    debug_assert!(at.is_multiple_of(size as u64), "the caller has checked the alignment");
    match size {
        1 => swap!(AtomicU8, u8),
        2 => swap!(AtomicU16, u16),
        4 => swap!(AtomicU32, u32),
        _ => swap!(AtomicU64, u64),
    }
}

/// Returns a number of the target's.
///
/// # Safety
/// As for `update`, but the number need not be writable.
pub unsafe fn read(at: u64, size: usize) -> u64 {
    debug_assert!(at.is_multiple_of(size as u64), "the caller has checked the alignment");
    // SAFETY: an aligned number of `size` bytes, by this function's contract.
    unsafe {
        match size {
            1 => (*(at as *const AtomicU8)).load(Acquire).into(),
            2 => (*(at as *const AtomicU16)).load(Acquire).into(),
            4 => (*(at as *const AtomicU32)).load(Acquire).into(),
            _ => (*(at as *const AtomicU64)).load(Acquire),
        }
    }
}

/// Returns a number in a buffer of the program's.
///
/// # Safety
/// A number of `size` bytes is there; `size` is at most 8.
pub unsafe fn load(at: u64, size: usize) -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: both have `size` bytes, by this function's contract.
    unsafe { std::ptr::copy_nonoverlapping(at as *const u8, bytes.as_mut_ptr(), size) };
    u64::from_le_bytes(bytes)
}

/// Writes a number into a buffer of the program's.
///
/// # Safety
/// There is room for `size` bytes; `size` is at most 8.
pub unsafe fn store(at: u64, size: usize, bits: u64) {
    // SAFETY: both have `size` bytes, by this function's contract.
    unsafe { std::ptr::copy_nonoverlapping(bits.to_le_bytes().as_ptr(), at as *mut u8, size) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The operand is 3, the old value and the value to compare with are 6.
    #[test]
    fn operations_are_what_their_names_say() {
        let wanted = [3, 6, 9, 18, 1, 1, 7, 2, 0, 5, 6, 3, 3, 6, 3, 6, 3, 6, 2];
        for (op, wanted) in (abi::MIN..=abi::MSWAP).zip(wanted) {
            assert_eq!(change::<i32>(op, 6, 3, 6), Some(wanted), "operation {op}");
            let bits = |number: u64| (number as f64).to_bits();
            let is_bitwise = [abi::BOR, abi::BAND, abi::BXOR, abi::MSWAP].contains(&op);
            let wanted = (!is_bitwise).then(|| bits(wanted));
            assert_eq!(change::<f64>(op, bits(6), bits(3), bits(6)), wanted, "operation {op}");
        }
    }

    #[test]
    fn signs_and_widths_count() {
        let (minus, plus) = (0xff, 1);
        assert_eq!(change::<i8>(abi::MIN, plus, minus, 0), Some(minus));
        assert_eq!(change::<u8>(abi::MIN, plus, minus, 0), Some(plus));
        assert_eq!(change::<i8>(abi::SUM, 127, 1, 0), Some(0x80));
        assert_eq!(change::<u16>(abi::PROD, 0x8001, 2, 0), Some(2));
    }

    #[test]
    fn only_the_number_is_changed() {
        let mut memory = [0x11u8; 16];
        let at = memory.as_mut_ptr() as u64;
        let at = at.next_multiple_of(8);
        // SAFETY: the array has 16 bytes, so two lie behind `at + 2`.
        let old = unsafe { update(at + 2, 2, |old| old + 1) };
        assert_eq!(old, 0x1111);
        assert_eq!(memory.iter().filter(|&&byte| byte != 0x11).count(), 1);
    }
}
