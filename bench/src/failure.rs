//! The cause of a failed measurement, in one line: what failed, on which object, what to do.

use std::fmt;

/// A message for the user, in one line.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    /// Makes a failure of a text. The non-empty lines of a longer text are joined.
    pub fn new(text: impl AsRef<str>) -> Self {
        let lines = text.as_ref().lines().map(str::trim).filter(|line| !line.is_empty());
        Failure(lines.collect::<Vec<_>>().join(" | "))
    }

    /// Joins failures into one, each text once. Returns `Ok` if there are none.
    pub fn of_all(failures: Vec<Failure>) -> Result<(), Failure> {
        match failures.as_slice() {
            [] => Ok(()),
            all => {
                let mut lines: Vec<&str> = Vec::new();
                for failure in all {
                    if !lines.contains(&failure.0.as_str()) {
                        lines.push(&failure.0);
                    }
                }
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
