//! Runs of `programs/copy.c`, which has the loops, and their samples.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::launch::output_of;

const TIME_LIMIT: Duration = Duration::from_secs(600);

/// One repetition of one loop.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    pub source: String,
    pub destination: String,
    pub bytes: usize,
    pub copier: String,
    pub copy_ns: f64,
    pub copy_and_read_ns: f64,
    pub distance_ns: [f64; 2],
}

/// Runs the program.
pub fn copies(
    program: &Path,
    cpus: (usize, usize),
    loops: &str,
    [repetitions, microseconds]: [u32; 2],
    [sources, destinations]: [&str; 2],
    offset: u32,
    sizes: &[usize],
) -> Result<Vec<Sample>, Failure> {
    let mut command = Command::new(program);
    command.args([cpus.0, cpus.1].map(|cpu| cpu.to_string())).arg(loops);
    command.args([repetitions, microseconds].map(|n| n.to_string()));
    command.args([sources, destinations]).arg(offset.to_string());
    command.args(sizes.iter().map(usize::to_string));
    let output = output_of(&mut command, TIME_LIMIT)?;
    let samples: Option<Vec<Sample>> = output.lines().map(sample).collect();
    samples
        .filter(|samples| !samples.is_empty())
        .ok_or_else(|| Failure::new(format!("copy: no loop of that name, or not here: {loops}")))
}

/// Parses a line of the program.
pub fn sample(line: &str) -> Option<Sample> {
    let [source, destination, bytes, copier, copy, copy_and_read, before, after] =
        line.split_whitespace().collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let number = |word: &str| word.parse::<f64>().ok();
    let (before, after) = (number(before)?, number(after)?);
    Some(Sample {
        source: source.to_string(),
        destination: destination.to_string(),
        bytes: bytes.parse().ok()?,
        copier: copier.to_string(),
        copy_ns: number(copy)?,
        copy_and_read_ns: number(copy_and_read)?,
        distance_ns: [before.min(after), before.max(after)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_and_others_are_refused() {
        let read = sample("fresh warm 4096 movsb 59.0 80.5 26.0 25.0").unwrap();
        assert_eq!((read.bytes, read.copy_ns, read.copy_and_read_ns), (4096, 59.0, 80.5));
        assert_eq!(read.distance_ns, [25.0, 26.0]);
        assert!(sample("fresh warm 4096 movsb 59.0 80.5 26.0").is_none());
    }
}
