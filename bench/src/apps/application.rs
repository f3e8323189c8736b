//! An application: its source, its command line, and its output.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::launch::{on_path, output_of};

/// A program with an input.
pub struct Application {
    /// Its name in tables.
    pub name: &'static str,
    /// Its Debian package.
    pub package: &'static str,
    /// Finds or makes the executable.
    pub program: fn(&Path) -> Result<PathBuf, Failure>,
    /// Its arguments. It runs in a separate directory.
    pub arguments: Vec<String>,
    /// Writes the input to that directory; the flag selects the small one.
    pub prepare: fn(&Path, bool) -> Result<(), Failure>,
    /// Parses its files and its output; `None` if they are not as expected.
    pub read: fn(&Path, &str) -> Option<Outcome>,
}

/// The output of an application.
pub struct Outcome {
    /// Its results, which must not depend on time.
    pub results: Vec<String>,
    /// Its own figures.
    pub figures: Vec<Figure>,
    /// The fraction of its time in communication, including waits, if it reports it.
    pub in_messages: Option<f64>,
}

/// A figure that an application prints.
pub struct Figure {
    /// Its name and unit.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// True if more is better.
    pub is_rate: bool,
}

impl Application {
    /// Returns the version of its package, without Debian's additions.
    pub fn version(&self) -> String {
        let mut query = Command::new("dpkg-query");
        query.args(["-W", "-f", "${Version}", self.package]);
        let version = output_of(&mut query, Duration::from_secs(10)).unwrap_or_default();
        let upstream = version.split(['-', '+']).next().unwrap_or_default();
        let upstream = upstream.split(".git").next().unwrap_or_default();
        if upstream.is_empty() { "unknown".to_string() } else { upstream.to_string() }
    }
}

/// Returns the path of an installed program.
pub fn installed(name: &str, packages: &str) -> Result<PathBuf, Failure> {
    on_path(name).ok_or_else(|| {
        Failure::new(format!(
            "{name}: not installed; apt-get install {packages}, or scripts/deps bench"
        ))
    })
}

/// Reads a shipped file.
pub fn shipped(file: &str, packages: &str) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| {
        Failure::new(format!("{file}: {error}; apt-get install {packages}, or scripts/deps bench"))
    })
}

/// Writes an input.
pub fn write(dir: &Path, name: &str, text: &str) -> Result<(), Failure> {
    fs::write(dir.join(name), text)
        .map_err(|error| Failure::new(format!("{}: {error}", dir.join(name).display())))
}

/// Replaces `from` by `to`. Fails if `from` is missing, since the input has changed then.
pub fn replaced(text: &str, from: &str, to: &str) -> Result<String, Failure> {
    if !text.contains(from) {
        return Err(Failure::new(format!("its input is not the one we know: no `{from}` in it")));
    }
    Ok(text.replace(from, to))
}

/// Returns the lines that `wanted` accepts.
pub fn lines(text: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    text.lines().filter(|line| wanted(line)).map(str::to_string).collect()
}

/// Returns the number `words` words after the first occurrence of `label`.
pub fn number_behind(text: &str, label: &str, words: usize) -> Option<f64> {
    let rest = &text[text.find(label)? + label.len()..];
    rest.split_whitespace().nth(words)?.trim_end_matches('s').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_behind_its_label() {
        let text = " Comm    | 0.0072434  | 0.0091729 |\n fft_scatt_yz : 0.06s CPU 0.07s WALL";
        assert_eq!(number_behind(text, "Comm    |", 2), Some(0.009_172_9));
        assert_eq!(number_behind(text, "fft_scatt_yz :", 2), Some(0.07));
        assert_eq!(number_behind(text, "Pair", 0), None);
    }

    #[test]
    fn an_unknown_input_is_refused() {
        assert_eq!(replaced("a b", "b", "c").unwrap(), "a c");
        assert!(replaced("a b", "d", "c").is_err());
    }
}
