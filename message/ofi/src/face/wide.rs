//! Numbers that no single instruction can change: complex numbers, and C's long double.
//!
//! An operation takes the target's lock for such numbers. So operations are atomic with each other,
//! but not with the target's own instructions. A task that is killed meanwhile may leave a number
//! half written.

use std::arch::asm;
use std::cmp::Ordering;

use crate::abi;

/// The bytes of a number. The longest is a complex number of two long doubles.
pub type Bytes = [u8; 32];

/// An operation: its number, the old value, the operand, and the value to compare with. `None`: the
/// type has no such operation.
pub type Change = fn(u32, &Bytes, &Bytes, &Bytes) -> Option<Bytes>;

/// Returns the operations, the size and the alignment of a type.
pub fn numbers(datatype: u32) -> Option<(Change, usize, usize)> {
    Some(match datatype {
        abi::FLOAT_COMPLEX => (complex::<f32>, 8, 4),
        abi::DOUBLE_COMPLEX => (complex::<f64>, 16, 8),
        abi::LONG_DOUBLE => (real, 16, 16),
        abi::LONG_DOUBLE_COMPLEX => (complex::<LongDouble>, 32, 16),
        _ => return None,
    })
}

/// A part of a complex number.
trait Real: Copy {
    /// Number of bytes from one part to the next.
    const BYTES: usize;
    fn read(bytes: &[u8]) -> Self;
    fn write(self, bytes: &mut [u8]);
    fn sum(self, other: Self) -> Self;
    fn difference(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn compare(self, other: Self) -> Option<Ordering>;
    fn truth(is: bool) -> Self;
    fn is_true(self) -> bool {
        self.compare(Self::truth(false)) != Some(Ordering::Equal)
    }
}

macro_rules! floats {
    ($($type:ty),*) => {
        $(impl Real for $type {
            const BYTES: usize = size_of::<Self>();
            fn read(bytes: &[u8]) -> Self {
                Self::from_le_bytes(std::array::from_fn(|n| bytes[n]))
            }
            fn write(self, bytes: &mut [u8]) {
                bytes[..Self::BYTES].copy_from_slice(&self.to_le_bytes());
            }
            fn sum(self, other: Self) -> Self {
                self + other
            }
            fn difference(self, other: Self) -> Self {
                self - other
            }
            fn product(self, other: Self) -> Self {
                self * other
            }
            fn compare(self, other: Self) -> Option<Ordering> {
                self.partial_cmp(&other)
            }
            fn truth(is: bool) -> Self {
                if is { 1.0 } else { 0.0 }
            }
        })*
    };
}

floats!(f32, f64);

/// C's long double on x86-64: 80 bits, in 16 bytes.
#[derive(Debug, Clone, Copy)]
struct LongDouble([u8; 10]);

/// Computes `$left $operation $right` in the x87 unit.
macro_rules! x87 {
    ($operation:literal, $left:expr, $right:expr) => {{
        let mut result = LongDouble([0; 10]);
        // SAFETY: the code reads and writes ten bytes each. It leaves the register stack empty, as
        // the ABI requires between functions.
        unsafe {
            asm!(
                "fld tbyte ptr [{left}]",
                "fld tbyte ptr [{right}]",
                $operation,
                "fstp tbyte ptr [{result}]",
                left = in(reg) &raw const $left.0,
                right = in(reg) &raw const $right.0,
                result = in(reg) &raw mut result.0,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack),
            );
        }
        result
    }};
}

impl Real for LongDouble {
    const BYTES: usize = 16;
    fn read(bytes: &[u8]) -> Self {
        Self(std::array::from_fn(|n| bytes[n]))
    }
    fn write(self, bytes: &mut [u8]) {
        bytes[..10].copy_from_slice(&self.0);
        bytes[10..Self::BYTES].fill(0);
    }
    fn sum(self, other: Self) -> Self {
        x87!("faddp st(1), st", self, other)
    }
    fn difference(self, other: Self) -> Self {
        x87!("fsubp st(1), st", self, other)
    }
    fn product(self, other: Self) -> Self {
        x87!("fmulp st(1), st", self, other)
    }
    fn compare(self, other: Self) -> Option<Ordering> {
        let (unordered, below, equal): (u8, u8, u8);
        // SAFETY: the code reads ten bytes each. It leaves the register stack empty, as the ABI
        // requires between functions.
        unsafe {
            asm!(
                "fld tbyte ptr [{right}]",
                "fld tbyte ptr [{left}]",
                "fucomip st, st(1)",
                "setp {unordered}",
                "setb {below}",
                "sete {equal}",
                "fstp st(0)",
                left = in(reg) &raw const self.0,
                right = in(reg) &raw const other.0,
                unordered = out(reg_byte) unordered,
                below = out(reg_byte) below,
                equal = out(reg_byte) equal,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack, readonly),
            );
        }
        match (unordered, below, equal) {
            (1, ..) => None,
            (_, 1, _) => Some(Ordering::Less),
            (.., 1) => Some(Ordering::Equal),
            _ => Some(Ordering::Greater),
        }
    }
    fn truth(is: bool) -> Self {
        // The exponent's bias is 0x3fff, and the mantissa has its leading bit.
        let (exponent, mantissa) = if is { (0x3fff, 1u64 << 63) } else { (0u16, 0) };
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&mantissa.to_le_bytes());
        bytes[8..].copy_from_slice(&exponent.to_le_bytes());
        Self(bytes)
    }
}

fn written<N: Real>(parts: &[N]) -> Option<Bytes> {
    let mut bytes = Bytes::default();
    parts.iter().zip(bytes.chunks_mut(N::BYTES)).for_each(|(part, to)| part.write(to));
    Some(bytes)
}

/// Executes an operation on long double numbers.
fn real(op: u32, old: &Bytes, operand: &Bytes, compare: &Bytes) -> Option<Bytes> {
    use Ordering::{Equal, Greater, Less};
    let [was, by, with] = [old, operand, compare].map(|bytes| LongDouble::read(bytes));
    let if_so = |is: bool| Some(if is { *operand } else { *old });
    let logical = |is: bool| written(&[LongDouble::truth(is)]);
    let order = with.compare(was);
    match op {
        abi::MIN => if_so(by.compare(was) == Some(Less)),
        abi::MAX => if_so(by.compare(was) == Some(Greater)),
        abi::SUM => written(&[was.sum(by)]),
        abi::PROD => written(&[was.product(by)]),
        abi::LOR => logical(was.is_true() || by.is_true()),
        abi::LAND => logical(was.is_true() && by.is_true()),
        abi::LXOR => logical(was.is_true() != by.is_true()),
        abi::ATOMIC_READ => Some(*old),
        abi::ATOMIC_WRITE => Some(*operand),
        abi::CSWAP => if_so(order == Some(Equal)),
        abi::CSWAP_NE => if_so(order != Some(Equal)),
        abi::CSWAP_LE => if_so(matches!(order, Some(Less | Equal))),
        abi::CSWAP_LT => if_so(order == Some(Less)),
        abi::CSWAP_GE => if_so(matches!(order, Some(Greater | Equal))),
        abi::CSWAP_GT => if_so(order == Some(Greater)),
        _ => None,
    }
}

/// Executes an operation on complex numbers, which have no order.
fn complex<N: Real>(op: u32, old: &Bytes, operand: &Bytes, compare: &Bytes) -> Option<Bytes> {
    let parts = |bytes: &Bytes| [N::read(bytes), N::read(&bytes[N::BYTES..])];
    let [was, by, with] = [old, operand, compare].map(parts);
    let is_true = |number: [N; 2]| number.into_iter().any(N::is_true);
    let logical = |is: bool| written(&[N::truth(is), N::truth(false)]);
    let if_so = |is: bool| Some(if is { *operand } else { *old });
    let same = || with.into_iter().zip(was).all(|(a, b)| a.compare(b) == Some(Ordering::Equal));
    match op {
        abi::SUM => written(&[was[0].sum(by[0]), was[1].sum(by[1])]),
        abi::PROD => written(&[
            was[0].product(by[0]).difference(was[1].product(by[1])),
            was[0].product(by[1]).sum(was[1].product(by[0])),
        ]),
        abi::LOR => logical(is_true(was) || is_true(by)),
        abi::LAND => logical(is_true(was) && is_true(by)),
        abi::LXOR => logical(is_true(was) != is_true(by)),
        abi::ATOMIC_READ => Some(*old),
        abi::ATOMIC_WRITE => Some(*operand),
        abi::CSWAP => if_so(same()),
        abi::CSWAP_NE => if_so(!same()),
        _ => None,
    }
}

/// Returns a number.
///
/// # Safety
/// `at` has `size` readable bytes; `size` is at most 32.
pub unsafe fn load(at: u64, size: usize) -> Bytes {
    let mut bytes = Bytes::default();
    // SAFETY: both have `size` bytes, by this function's contract.
    unsafe { std::ptr::copy_nonoverlapping(at as *const u8, bytes.as_mut_ptr(), size) };
    bytes
}

/// Writes a number.
///
/// # Safety
/// `at` has room for `size` bytes; `size` is at most 32.
pub unsafe fn store(at: u64, size: usize, bytes: &Bytes) {
    // SAFETY: both have `size` bytes, by this function's contract.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, size) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(number: f64) -> LongDouble {
        let mut made = LongDouble([0; 10]);
        // SAFETY: the code reads eight bytes and writes ten.
        unsafe {
            asm!(
                "fld qword ptr [{from}]",
                "fstp tbyte ptr [{to}]",
                from = in(reg) &raw const number,
                to = in(reg) &raw mut made.0,
                out("st(0)") _,
                options(nostack),
            );
        }
        made
    }

    fn bytes<N: Real>(parts: &[N]) -> Bytes {
        written(parts).expect("always")
    }

    /// The operand is 3, the old value and the value to compare with are 6, as in `number`.
    #[test]
    fn operations_are_what_their_names_say() {
        let of = |number: f64| bytes(&[long(number)]);
        let (six, three) = (of(6.0), of(3.0));
        let wanted = [3, 6, 9, 18, 1, 1, -1, -1, 0, -1, 6, 3, 3, 6, 3, 6, 3, 6, -1];
        for (op, wanted) in (abi::MIN..=abi::MSWAP).zip(wanted) {
            let wanted = (wanted >= 0).then(|| of(wanted.into()));
            assert_eq!(real(op, &six, &three, &six), wanted, "operation {op}");
        }
        let nan = of(f64::NAN);
        assert_eq!(real(abi::CSWAP, &nan, &three, &nan), Some(nan));
        assert_eq!(real(abi::CSWAP_NE, &nan, &three, &nan), Some(three));
        // A long double has a longer mantissa than a double.
        let tiny = long(2.0).product(long(2f64.powi(-64)));
        let sum = long(1.0).sum(tiny);
        assert_eq!(sum.compare(long(1.0)), Some(Ordering::Greater));
        assert_eq!(sum.difference(long(1.0)).compare(tiny), Some(Ordering::Equal));
    }

    fn are_complex<N: Real>(of: fn(f64) -> N) {
        let of = |re: f64, im: f64| bytes(&[of(re), of(im)]);
        let (was, by) = (of(1.0, 2.0), of(3.0, -4.0));
        let zero = of(0.0, 0.0);
        let wanted = [
            (abi::SUM, Some(of(4.0, -2.0))),
            (abi::PROD, Some(of(11.0, 2.0))),
            (abi::LOR, Some(of(1.0, 0.0))),
            (abi::LAND, Some(of(1.0, 0.0))),
            (abi::LXOR, Some(zero)),
            (abi::ATOMIC_READ, Some(was)),
            (abi::ATOMIC_WRITE, Some(by)),
            (abi::CSWAP, Some(by)),
            (abi::CSWAP_NE, Some(was)),
            (abi::MIN, None),
            (abi::BOR, None),
            (abi::CSWAP_LE, None),
        ];
        for (op, wanted) in wanted {
            assert_eq!(complex::<N>(op, &was, &by, &was), wanted, "operation {op}");
        }
        assert_eq!(complex::<N>(abi::LAND, &was, &zero, &was), Some(zero));
        assert_eq!(complex::<N>(abi::CSWAP, &was, &by, &of(1.0, 0.0)), Some(was));
    }

    #[test]
    fn complex_numbers_are_sums_products_and_equal() {
        are_complex::<f32>(|number| number as f32);
        are_complex::<f64>(|number| number);
        are_complex::<LongDouble>(long);
    }
}
