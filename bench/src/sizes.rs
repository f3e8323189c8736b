//! Message sizes: which ones are measured, how they are written, and what is asked of each.

/// The sizes of a full run, in bytes: two small ones, then powers of two, 4 KB to 16 MB.
pub fn all() -> Vec<usize> {
    [8, 1024].into_iter().chain((12..=24).map(|power| 1 << power)).collect()
}

/// `65536` → `64 KB`. (In message sizes K is 1024, as is usual; in MB/s, M is 10⁶.)
pub fn shown(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KB", bytes / 1024),
        _ => format!("{} MB", bytes / 1_048_576),
    }
}

/// The ratio of bandwidths, nagaya to plain, to be reached at this size: 1.8 where the
/// system call is the larger part of a message, 1.3 where memory is, and never below 1.
pub fn target(bytes: usize) -> f64 {
    match bytes {
        0x4000..=0x40000 => 1.8, // 16 KB to 256 KB
        0x400000 => 1.3,         // 4 MB
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_in_the_largest_unit() {
        let sizes = [8, 1024, 65536, 1 << 20, 16 << 20];
        assert_eq!(sizes.map(shown), ["8 B", "1 KB", "64 KB", "1 MB", "16 MB"]);
    }

    #[test]
    fn targets_cover_both_ends_of_their_range() {
        let sizes = [8192, 16384, 262144, 524288, 4 << 20, 16 << 20];
        assert_eq!(sizes.map(target), [1.0, 1.8, 1.8, 1.0, 1.3, 1.0]);
    }
}
