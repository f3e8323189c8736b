//! The name of an endpoint: a short text.

/// Number of bytes of the longest name.
pub const NAME_MAX: usize = 40;

/// A name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    length: u8,
    bytes: [u8; NAME_MAX],
}

impl Name {
    /// Makes a name of this text. Of a text longer than [`NAME_MAX`], the name has the beginning
    /// and a hash. Returns `None` if the text is empty or contains a zero.
    pub fn new(text: &str) -> Option<Self> {
        if text.is_empty() || text.contains('\0') {
            return None;
        }
        if text.len() > NAME_MAX {
            let hash = control::fnv1a(text.as_bytes());
            let end = (0..=NAME_MAX - 17).rev().find(|&end| text.is_char_boundary(end))?;
            return Self::new(&format!("{}~{hash:016x}", &text[..end]));
        }
        let mut bytes = [0; NAME_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Some(Self { length: text.len() as u8, bytes })
    }

    /// Returns its text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length.into()]).expect("made of text")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_told_apart() {
        let text = |last| format!("{}{last}", "ä".repeat(30));
        let (one, other) = (Name::new(&text("1")).unwrap(), Name::new(&text("2")).unwrap());
        assert!(one != other && one.text().len() <= NAME_MAX && one.text().starts_with("ää"));
        assert_eq!(Name::new(one.text()), Some(one));
        assert_eq!(Name::new(""), None);
        assert_eq!(Name::new("a\0b"), None);
    }
}
