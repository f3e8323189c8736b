//! The random numbers of the NAS benchmarks: x ← 5^13 x modulo 2^46. (Bailey et al., *The NAS
//! parallel benchmarks*, 1994.)

/// A place in the sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Random(u64);

const FACTOR: u64 = 1_220_703_125;
const BITS: u32 = 46;
const MASK: u64 = (1 << BITS) - 1;

impl Random {
    /// The sequence of a seed, `skipped` numbers on.
    pub fn new(seed: u64, skipped: u64) -> Self {
        let (mut x, mut factor, mut left) = (seed & MASK, FACTOR, skipped);
        while left > 0 {
            if left & 1 == 1 {
                x = x.wrapping_mul(factor) & MASK;
            }
            factor = factor.wrapping_mul(factor) & MASK;
            left >>= 1;
        }
        Self(x)
    }

    /// The next number, above 0 and below 1.
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(FACTOR) & MASK;
        self.0 as f64 / (1u64 << BITS) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_skip_is_to_draw_and_forget() {
        let mut one = Random::new(314_159_265, 0);
        for skipped in 1..50 {
            one.next();
            assert_eq!(Random::new(314_159_265, skipped).0, one.0);
        }
    }
}
