//! Classes of sizes: powers of two.

/// Number of classes.
pub const CLASSES: usize = 65;

/// Returns the class of a size in bytes.
pub fn class(bytes: u64) -> u8 {
    (u64::BITS - bytes.leading_zeros()) as u8
}

/// Returns the smallest and the largest size of a class, in bytes.
pub fn range(class: u8) -> (u64, u64) {
    match class {
        0 => (0, 0),
        1..64 => (1 << (class - 1), (1 << class) - 1),
        _ => (1 << 63, u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_in_the_range_of_its_class() {
        for bytes in [0, 1, 2, 3, 4, 1023, 1024, 1025, (1 << 40) - 1, 1 << 63, u64::MAX] {
            let (from, to) = range(class(bytes));
            assert!((from..=to).contains(&bytes), "{bytes}: {from} to {to}");
            assert!(usize::from(class(bytes)) < CLASSES);
        }
    }
}
