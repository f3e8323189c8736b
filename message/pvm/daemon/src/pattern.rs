//! Patterns of mailbox names. The manual calls them regular expressions. In stock PVM `*`
//! matches any text, every other character matches itself, and a pattern may match a part of the
//! name.

/// Returns true if `name` matches the pattern.
pub fn fits(pattern: &str, name: &str) -> bool {
    let mut left = name;
    pattern.split('*').all(|piece| match left.find(piece) {
        Some(at) => {
            left = &left[at + piece.len()..];
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_as_in_stock_pvm() {
        let names = ["abc", "aabc", "xabc", "a+bc", "ab", "(a)", "a|b"];
        // The names that libpvm 3.4.6 lists.
        let cases: &[(&str, &str)] = &[
            ("*", "abc aabc xabc a+bc ab (a) a|b"),
            ("", "abc aabc xabc a+bc ab (a) a|b"),
            ("a", "abc aabc xabc a+bc ab (a) a|b"),
            ("a**", "abc aabc xabc a+bc ab (a) a|b"),
            ("abc", "abc aabc xabc"),
            ("a*bc", "abc aabc xabc a+bc"),
            ("a+bc", "a+bc"),
            ("b*", "abc aabc xabc a+bc ab a|b"),
            ("(a)", "(a)"),
            ("^abc$", ""),
            ("[ax]abc", ""),
            (".*", ""),
        ];
        for (pattern, fitting) in cases {
            let found: Vec<&str> = names.into_iter().filter(|name| fits(pattern, name)).collect();
            assert_eq!(found.join(" "), *fitting, "{pattern}");
        }
    }
}
