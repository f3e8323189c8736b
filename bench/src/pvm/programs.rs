//! The measuring programs, and the lines that they print.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::launch::output_of;
use crate::programs;

const TIME_LIMIT: Duration = Duration::from_secs(90);

/// The measuring programs.
pub struct Programs {
    pub messages: PathBuf,
    pub stream: PathBuf,
    pub many: PathBuf,
    pub spawn: PathBuf,
}

impl Programs {
    /// Compiles them once for all systems.
    pub fn compile(out: &Path) -> Result<Self, Failure> {
        Ok(Programs {
            messages: programs::compile_with_pvm("pvm_pingpong", out)?,
            stream: programs::compile_with_pvm("pvm_stream", out)?,
            many: programs::compile_with_pvm("pvm_many", out)?,
            spawn: programs::compile_with_pvm("pvm_spawn", out)?,
        })
    }
}

/// A line of a measuring program: a name from `names`, if there are any, and numbers.
pub struct Line {
    pub name: &'static str,
    pub numbers: Vec<f64>,
}

fn line(text: &str, names: &[&'static str], count: usize) -> Option<Line> {
    let mut words = text.split_whitespace();
    let name = match names {
        [] => "",
        names => {
            let word = words.next()?;
            names.iter().copied().find(|name| *name == word)?
        }
    };
    let numbers: Option<Vec<f64>> = words.map(|word| word.parse().ok()).collect();
    numbers.filter(|numbers| numbers.len() == count).map(|numbers| Line { name, numbers })
}

/// Runs a program. Fails if it prints other lines, or none.
pub fn lines_of(
    command: &mut Command,
    names: &[&'static str],
    count: usize,
) -> Result<Vec<Line>, Failure> {
    let output = output_of(command, TIME_LIMIT)?;
    let lines: Option<Vec<Line>> = output.lines().map(|text| line(text, names, count)).collect();
    lines
        .filter(|lines| !lines.is_empty())
        .ok_or_else(|| Failure::new(format!("unexpected output: {output}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_known_name_and_all_its_numbers() {
        let read = line("raw-fresh 4096 100 2500.5", &["raw-fresh"], 3).unwrap();
        assert_eq!((read.name, read.numbers), ("raw-fresh", vec![4096.0, 100.0, 2500.5]));
        assert!(line("raw-stale 4096 100 2500.5", &["raw-fresh"], 3).is_none());
        assert!(line("raw-fresh 4096 100", &["raw-fresh"], 3).is_none());
        assert!(line("raw-fresh 4096 100 fast", &["raw-fresh"], 3).is_none());
        assert_eq!(line("1 2", &[], 2).unwrap().numbers, [1.0, 2.0]);
    }
}
