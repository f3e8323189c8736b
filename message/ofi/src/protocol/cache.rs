//! Lines of the processor's cache that are going to be needed: another core has them, and they may
//! come while something else is done.

/// It will be read.
#[inline]
pub fn will_read<T>(at: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: changes nothing.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(at).cast());
    }
}

/// It will be written.
#[inline]
pub fn will_write<T>(at: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: changes nothing.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(std::ptr::from_ref(at).cast());
    }
}
