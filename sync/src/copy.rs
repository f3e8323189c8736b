//! Copies of memory that are fast wherever the two buffers lie.
//!
//! The C library copies 4 KiB and more by string instructions on many processors. On AMD's Zen 3
//! these take 20 times as long (16 KiB: 7 µs instead of 0.3) if the place of the target in its page
//! is 1 to 31 bytes after that of the source. Such copies use vector registers, which are 8 times
//! as fast there. Two buffers of malloc(3) lie like that by chance, and elements that move by one
//! within an array do so often.
//!
//! On other processors, string instructions stay the faster ones. So a process measures it once.

use std::hint::black_box;
use std::ptr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Least length for which the C library uses string instructions, in bytes.
const STRING_MIN: usize = 4096;
/// Distances of the places in a page from which on they are fast again.
const FAST_FROM: usize = 32;
const PAGE: usize = 4096;

/// Returns true if string instructions are slow on some processors.
#[inline]
fn is_critical(from: *const u8, to: *const u8, bytes: usize) -> bool {
    let ahead = to.addr().wrapping_sub(from.addr()) % PAGE;
    bytes >= STRING_MIN && ahead.wrapping_sub(1) < FAST_FROM - 1
}

/// Copies bytes.
///
/// # Safety
/// `bytes` bytes at `from` are readable, those at `to` are writable, and the two do not overlap.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: this function has the contract of both.
    unsafe {
        match is_critical(from, to, bytes) && vectors_are_faster() {
            false => ptr::copy_nonoverlapping(from, to, bytes),
            true => copy_by_vectors(from, to, bytes),
        }
    }
}

/// Copies bytes.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy_slice(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len());
    // SAFETY: both have this length, and a mutable slice overlaps no other.
    unsafe { copy(from.as_ptr(), to.as_mut_ptr(), from.len()) };
}

/// Returns true if this processor copies critical buffers faster by vector registers.
#[cold]
fn vectors_are_faster() -> bool {
    static FASTER: OnceLock<bool> = OnceLock::new();
    *FASTER.get_or_init(|| {
        const BYTES: usize = 2 * STRING_MIN;
        const AHEAD: usize = 16;
        let mut memory = vec![1_u8; 2 * BYTES + AHEAD];
        let (from, to) = memory.split_at_mut(BYTES + AHEAD);
        let mut time = |copy: unsafe fn(*const u8, *mut u8, usize)| {
            let once = |_| {
                let begin = Instant::now();
                // SAFETY: both parts have `BYTES` bytes and do not overlap.
                unsafe { copy(black_box(from.as_ptr()), to.as_mut_ptr(), BYTES) };
                begin.elapsed()
            };
            (0..5).map(once).min().unwrap_or(Duration::ZERO)
        };
        debug_assert_eq!(BYTES % PAGE, 0);
        time(copy_by_vectors) < time(ptr::copy_nonoverlapping)
    })
}

/// # Safety
/// That of [`copy`].
#[cold]
#[cfg(target_arch = "x86_64")]
unsafe fn copy_by_vectors(from: *const u8, to: *mut u8, bytes: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128};
    /// Bytes of a turn of the loop.
    const TURN: usize = 4 * size_of::<__m128i>();
    let whole = bytes - bytes % TURN;
    // SAFETY: all accesses are to the bytes of `copy`'s contract. Loads and stores may be
    // unaligned.
    unsafe {
        for at in (0..whole).step_by(TURN) {
            let (from, to) = (from.add(at).cast::<__m128i>(), to.add(at).cast::<__m128i>());
            let registers: [__m128i; 4] = std::array::from_fn(|n| _mm_loadu_si128(from.add(n)));
            for (n, register) in registers.into_iter().enumerate() {
                _mm_storeu_si128(to.add(n), register);
            }
        }
        ptr::copy_nonoverlapping(from.add(whole), to.add(whole), bytes - whole);
    }
}

/// # Safety
/// That of [`copy`].
#[cold]
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_by_vectors(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: this function has the contract of this copy.
    unsafe { ptr::copy_nonoverlapping(from, to, bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_copied_at_any_distance() {
        let from: Vec<u8> = (0..20_000_u32).map(|n| (n * 7 + n / 256) as u8).collect();
        for copy in [copy, copy_by_vectors] as [unsafe fn(*const u8, *mut u8, usize); 2] {
            for ahead in (0..40).chain([2048, 4090, 4095]) {
                for bytes in [1, 63, 2048, 4095, 4096, 4097, 4159, 4160, 9999] {
                    let mut to = vec![0xee; from.len()];
                    let place = from.as_ptr().addr() + ahead;
                    let begin = place.wrapping_sub(to.as_ptr().addr()) % PAGE;
                    // SAFETY: both have 20,000 bytes; `begin` + `bytes` is less than 14,100.
                    unsafe { copy(from.as_ptr(), to.as_mut_ptr().add(begin), bytes) };
                    assert_eq!(to[begin..begin + bytes], from[..bytes], "{ahead} {bytes}");
                    let others = to[..begin].iter().chain(&to[begin + bytes..]);
                    assert!(others.into_iter().all(|&byte| byte == 0xee), "{ahead} {bytes}");
                }
            }
        }
    }

    #[test]
    fn only_long_copies_to_a_few_bytes_ahead_are_critical() {
        let at = |address: usize| ptr::without_provenance::<u8>(address);
        let critical = |ahead: usize, bytes| is_critical(at(0x7000), at(0x1_3000 + ahead), bytes);
        assert!(critical(1, 4096) && critical(31, 1 << 20));
        assert!(!critical(0, 4096) && !critical(32, 4096) && !critical(4095, 4096));
        assert!(!critical(8, 4095));
    }
}
