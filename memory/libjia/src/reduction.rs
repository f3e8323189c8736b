//! Sums, maxima and minima of arrays, by which jia_reduce combines the values of two tasks.

/// Combines the received values, its second argument, into the present ones.
type Join = fn(&mut [u8], &[u8]);

/// Returns the size of an operation's values and the function that combines them, or `None` if
/// there is no such operation.
pub fn operation(number: i32) -> Option<(usize, Join)> {
    Some(match number {
        0 => (4, |there, came| join::<4, i32>(there, came, i32::wrapping_add)),
        1 => (4, |there, came| join::<4, i32>(there, came, i32::max)),
        2 => (4, |there, came| join::<4, i32>(there, came, i32::min)),
        10 => (4, |there, came| join::<4, f32>(there, came, |a, b| a + b)),
        11 => (4, |there, came| join::<4, f32>(there, came, f32::max)),
        12 => (4, |there, came| join::<4, f32>(there, came, f32::min)),
        20 => (8, |there, came| join::<8, f64>(there, came, |a, b| a + b)),
        21 => (8, |there, came| join::<8, f64>(there, came, f64::max)),
        22 => (8, |there, came| join::<8, f64>(there, came, f64::min)),
        _ => return None,
    })
}

/// A number of this size in bytes.
trait Number<const BYTES: usize>: Copy {
    fn of(bytes: [u8; BYTES]) -> Self;
    fn bytes(self) -> [u8; BYTES];
}

macro_rules! numbers {
    ($($number:ty: $bytes:literal),*) => {$(
        impl Number<$bytes> for $number {
            fn of(bytes: [u8; $bytes]) -> Self {
                Self::from_ne_bytes(bytes)
            }
            fn bytes(self) -> [u8; $bytes] {
                self.to_ne_bytes()
            }
        }
    )*};
}

numbers! { i32: 4, f32: 4, f64: 8 }

fn join<const BYTES: usize, N: Number<BYTES>>(
    there: &mut [u8],
    came: &[u8],
    join: impl Fn(N, N) -> N,
) {
    let (there, _) = there.as_chunks_mut::<BYTES>();
    let (came, _) = came.as_chunks::<BYTES>();
    for (there, came) in there.iter_mut().zip(came) {
        *there = join(N::of(*there), N::of(*came)).bytes();
    }
}
