//! Seeds of random tests, which are reproducible.

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
