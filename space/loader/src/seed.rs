//! Random numbers for the addresses of a program.

use nagaya_layout::Seed;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Returns random numbers of the kernel. Error: getrandom's.
pub fn random_seed() -> Result<Seed, Errno> {
    let mut bytes = [0u8; 32];
    // At most 256 bytes are never returned in part.
    getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    let number =
        |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight of 32 bytes"));
    Ok(Seed { image: number(0), heap: number(8), mmap: number(16), stack: number(24) })
}
