//! Bytes as hexadecimal digits, for command lines, lines of text, and key-value spaces.

/// Returns two lowercase digits for each byte.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the bytes of a text of digits. Returns `None` if it has another character or an odd
/// number of digits.
pub fn decode(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |pair: &[u8]| match *pair {
        [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
        _ => None,
    };
    digits.as_bytes().chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&bytes)), Some(bytes));
        assert_eq!(encode(&[0x0f, 0xa0]), "0fa0");
        assert_eq!(decode("0FA0"), Some(vec![0x0f, 0xa0]));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["0", "0g", "+1", "0x01", "é", " 01"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
