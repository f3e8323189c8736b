//! Why a measurement could not be made: one line that says what, where, and what to do.

use std::fmt;

/// One line for the user.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    /// A failure with this line; of a longer text only the lines that say something, joined.
    pub fn new(text: impl AsRef<str>) -> Self {
        let lines = text.as_ref().lines().map(str::trim).filter(|line| !line.is_empty());
        Failure(lines.collect::<Vec<_>>().join(" | "))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
