//! Message sizes: defaults, parsing and formatting.

pub use figure::shown;

/// The sizes of a full run, in bytes: 8 B, then powers of two from 64 B to 4 MB.
pub fn all() -> Vec<usize> {
    [8, 64, 256].into_iter().chain((10..=22).map(|power| 1 << power)).collect()
}

/// Parses a size option: bytes, or a number with K or M (`64K`, `4M`).
pub fn parse(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 1 << 10),
        Some((at, 'M' | 'm')) => (&text[..at], 1 << 20),
        _ => (text, 1),
    };
    let number: usize =
        digits.parse().map_err(|_| "a size is a number, with K or M".to_string())?;
    let bytes = number.checked_mul(unit).filter(|bytes| *bytes > 0 && bytes % 8 == 0);
    bytes.ok_or_else(|| "a size is a multiple of 8 bytes".to_string())
}

/// Parses a size option or 0.
pub fn parse_or_none(text: &str) -> Result<usize, String> {
    if text == "0" { Ok(0) } else { parse(text) }
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
    fn sizes_are_read_with_their_unit() {
        assert_eq!(["8", "64K", "4M"].map(parse), [Ok(8), Ok(65536), Ok(4 << 20)]);
        for wrong in ["", "K", "7", "0", "64G", "-8", "99999999999999999999M"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
