//! A command line's words: blanks part them, `"` and `'` hold blanks, `\` takes one character
//! as it is, and a word that begins with `#` begins a comment.

/// Longest line, in bytes.
pub const LINE_MAX: usize = 1 << 20;

/// The words of `line`; or the quote that is never closed, or the `\` at the end.
pub fn split(line: &str) -> Result<Vec<String>, char> {
    let mut words = Vec::new();
    let mut letters = line.chars().peekable();
    loop {
        while letters.next_if(|&letter| is_blank(letter)).is_some() {}
        match letters.peek() {
            None | Some('#') => return Ok(words),
            Some(_) => {}
        }
        let mut word = String::new();
        while let Some(letter) = letters.next_if(|&letter| !is_blank(letter)) {
            match letter {
                '"' | '\'' => loop {
                    match letters.next() {
                        None => return Err(letter),
                        Some(next) if next == letter => break,
                        Some(next) => word.push(next),
                    }
                },
                '\\' => word.push(letters.next().ok_or('\\')?),
                _ => word.push(letter),
            }
        }
        words.push(word);
    }
}

fn is_blank(letter: char) -> bool {
    letter.is_ascii_whitespace() || letter == '\x0b'
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn blanks_part_words_and_quotes_hold_them() {
        assert_eq!(split("").unwrap(), [""; 0]);
        assert_eq!(split(" \t\x0b\r\n").unwrap(), [""; 0]);
        assert_eq!(split(" a  b\tc ").unwrap(), ["a", "b", "c"]);
        assert_eq!(split(r#"a "b  c" 'd e' f\ g"#).unwrap(), ["a", "b  c", "d e", "f g"]);
        assert_eq!(split(r#"x"y"z'"' "" ''"#).unwrap(), ["xyz\"", "", ""]);
        assert_eq!(split(r#""a\b" 'c\'"#).unwrap(), ["a\\b", "c\\"]);
        assert_eq!(split(r"\\ \# \'").unwrap(), ["\\", "#", "'"]);
        assert_eq!(split("größe 'ß ü'").unwrap(), ["größe", "ß ü"]);
    }

    #[test]
    fn a_comment_begins_at_a_words_begin_only() {
        assert_eq!(split("# all").unwrap(), [""; 0]);
        assert_eq!(split("a b#c #d e").unwrap(), ["a", "b#c"]);
        assert_eq!(split("a '#' \"#\"b").unwrap(), ["a", "#", "#b"]);
        assert_eq!(split("a # it's").unwrap(), ["a"]);
    }

    #[test]
    fn an_open_quote_is_named() {
        assert_eq!(split("a \"b").unwrap_err(), '"');
        assert_eq!(split("'a\"").unwrap_err(), '\'');
        assert_eq!(split("a\\").unwrap_err(), '\\');
    }
}
