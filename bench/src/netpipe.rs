//! NetPIPE, a ping-pong program of another project: how it is run, and its output file.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::cores;
use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::mode::Mode;
use crate::mpi::Mpi;

/// Ranges of sizes with the number of messages per trial. NetPIPE reports the fastest of seven
/// trials. Its clock needs some hundred small messages, but as many large ones would take minutes.
const RANGES: [(usize, usize, u32); 2] = [(8, 65536, 1000), (131_072, 4_194_304, 40)];

const TIME_LIMIT: Duration = Duration::from_secs(120);

/// NetPIPE's megabit: 2²⁰ bits.
const MEGABIT_BITS: f64 = 1_048_576.0;

/// NetPIPE's result for one size.
#[derive(Debug)]
pub struct Time {
    /// The message's size.
    pub bytes: usize,
    /// One-way time.
    pub us: f64,
    /// Shortest and longest distance of the two cores, measured before and after NetPIPE.
    pub distance_ns: [f64; 2],
}

/// Runs NetPIPE between two ranks. Returns no times if there is no NetPIPE for this MPI, or no such
/// mode.
pub fn run(mpi: Mpi, mode: Mode, nagaya: &Nagaya, out: &Path) -> Result<Vec<Time>, Failure> {
    let Some(program) = mpi.netpipe() else { return Ok(Vec::new()) };
    let program = program?;
    let file = out.join(format!("netpipe-{}-{}.txt", mpi.key(), mode.key()));
    let mut measured = Vec::new();
    for (from, to, repeats) in RANGES {
        let _ = fs::remove_file(&file); // so that an old file is never read as a new one
        let Some(mut command) = mpi.ranks(2, mode, nagaya, &program)? else {
            return Ok(Vec::new());
        };
        command.args(["-p", "0", "-n", &repeats.to_string()]);
        command.args(["-l", &from.to_string(), "-u", &to.to_string()]);
        let before = cores::distance_ns().unwrap_or(f64::INFINITY);
        output_of(command.arg("-o").arg(&file), TIME_LIMIT)?;
        let after = cores::distance_ns().unwrap_or(f64::INFINITY);
        let distance_ns = [before.min(after), before.max(after)];
        let text = fs::read_to_string(&file)
            .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
        let times = parse(&text).ok_or_else(|| {
            Failure::new(format!("{}: not an output file of NetPIPE", file.display()))
        })?;
        measured.extend(times.into_iter().map(|(bytes, us)| Time { bytes, us, distance_ns }));
    }
    let _ = fs::remove_file(&file);
    Ok(measured)
}

/// Parses lines of size (bytes), bandwidth (megabits per second) and time (s). The time is computed
/// from the bandwidth, since NetPIPE rounds it to 10 ns.
pub fn parse(text: &str) -> Option<Vec<(usize, f64)>> {
    let lines: Option<Vec<_>> =
        text.lines().filter(|line| !line.trim().is_empty()).map(line).collect();
    lines.filter(|lines| !lines.is_empty())
}

fn line(line: &str) -> Option<(usize, f64)> {
    let mut words = line.split_whitespace();
    let bytes: usize = words.next()?.parse().ok()?;
    let megabits_per_s: f64 = words.next()?.parse().ok()?;
    let us = bytes as f64 * 8.0 / (megabits_per_s * MEGABIT_BITS) * 1e6;
    us.is_finite().then_some((bytes, us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_file_is_read() {
        let text = "       8 480.300188   0.00000013\n   65536 51358.824490   0.00000974\n";
        let measured = parse(text).unwrap();
        assert_eq!(measured.iter().map(|&(bytes, _)| bytes).collect::<Vec<_>>(), [8, 65536]);
        assert!((measured[0].1 - 0.127).abs() < 0.001);
        assert!((measured[1].1 - 9.735).abs() < 0.001);
    }

    #[test]
    fn anything_else_is_refused() {
        assert!(parse("").is_none());
        assert!(parse("0: host\n").is_none());
        assert!(parse("8 0.0 0.0\n").is_none());
    }
}
