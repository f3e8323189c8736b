//! Prefetches of cache lines that another core has. They arrive while the caller does something
//! else. This is the only file of the protocol with `unsafe`.

/// Prefetches a line to read it.
#[inline]
pub fn will_read<T>(at: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect but on the cache, and faults at no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(at).cast());
    }
}

/// Prefetches a line to write it.
#[inline]
pub fn will_write<T>(at: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect but on the cache, and faults at no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(std::ptr::from_ref(at).cast());
    }
}
