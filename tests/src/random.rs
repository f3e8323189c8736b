//! Seeds of random tests.

/// A random seed, printed so that a failure can be replayed: set `NAGAYA_SEED` to repeat it.
pub fn seed() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    let seed = match std::env::var("NAGAYA_SEED") {
        Ok(text) => text.parse().expect("NAGAYA_SEED is a number"),
        Err(_) => std::collections::hash_map::RandomState::new().build_hasher().finish() >> 32,
    };
    println!("NAGAYA_SEED={seed}");
    seed
}
