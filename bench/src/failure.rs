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

    /// One of all of them, if there are any.
    pub fn of_all(failures: Vec<Failure>) -> Result<(), Failure> {
        match failures.as_slice() {
            [] => Ok(()),
            all => {
                let lines: Vec<&str> = all.iter().map(|failure| failure.0.as_str()).collect();
                Err(Failure::new(lines.join("\n")))
            }
        }
    }
}

impl From<figure::Undrawn> for Failure {
    fn from(figure::Undrawn(why): figure::Undrawn) -> Self {
        Failure::new(why)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
