//! Random numbers that are reproducible from a printed seed (SplitMix64).

/// A generator.
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % limit as u64).expect("is below a usize")
    }
}

/// A random seed, printed so that a failure can be replayed: set `SEED` to repeat it.
pub fn seed() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    let seed = match std::env::var("SEED") {
        Ok(text) => text.parse().expect("SEED is a number"),
        Err(_) => std::collections::hash_map::RandomState::new().build_hasher().finish() >> 32,
    };
    println!("SEED={seed}");
    seed
}
