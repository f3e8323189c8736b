//! Random numbers of programs. They depend only on an index, so every task can compute its own.

/// Returns the number of the index `at`: splitmix64, by Steele, Lea, Flood.
pub(super) fn chance(at: u64) -> u64 {
    let mut z = at.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// The numbers of the NAS benchmarks: x ← 5^13 x modulo 2^46. (Bailey et al., *The NAS parallel
/// benchmarks*, 1994.)
#[derive(Clone, Copy, Debug)]
pub(super) struct Nas(u64);

const FACTOR: u64 = 1_220_703_125;
const MASK: u64 = (1 << 46) - 1;

impl Nas {
    /// Creates the sequence of a seed, without its first `skipped` numbers.
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

    /// Returns the next number, above -1 and below 1.
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(FACTOR) & MASK;
        2.0 * (self.0 as f64 / (1u64 << 46) as f64) - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_skip_is_to_draw_and_forget() {
        let mut one = Nas::new(314_159_265, 0);
        for skipped in 1..50 {
            one.next();
            assert_eq!(Nas::new(314_159_265, skipped).0, one.0);
        }
    }
}
