//! Tagged messages through libfabric between two tasks: by Nagaya's provider, beside libfabric's
//! provider for shared memory, the transfer of a cache line, and one copy. (`pingpong --mode
//! cma,space,provider,limit` measures MPIs over it.)

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Parser;

use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::progress::progress;
use crate::results::{Measure, Results};
use crate::spread::Spread;
use crate::table::{Table, three_digits, write_lines};
use crate::target::{self, Bound, Target};
use crate::{copy, programs, sizes};

/// The number of runs.
#[derive(Parser)]
pub struct Options {
    /// Number of rounds; in each round every transport runs once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Repetitions per run; their median is used
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Duration of a repetition for each size, in milliseconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    milliseconds: u32,
    /// Message sizes in bytes
    #[arg(skip = vec![
        0, 8, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20,
    ])]
    sizes: Vec<usize>,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["ofi"])
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        (self.rounds, self.repetitions, self.milliseconds) = (1, 1, 1);
        self.sizes = vec![8, 4 << 10, 1 << 20];
        self
    }
}

/// A transport.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Transport {
    /// A word for each direction on its own cache line, set alternately.
    Line,
    /// One copy of the sender's buffer by the best loop, without notification.
    Copy,
    /// Nagaya's provider.
    Nagaya,
    /// libfabric's provider for shared memory.
    Shm,
}

impl Transport {
    const ALL: [Self; 4] = [Self::Line, Self::Copy, Self::Nagaya, Self::Shm];

    /// Returns its name in files, tables and libfabric.
    fn name(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Copy => "copy",
            Self::Nagaya => "nagaya",
            Self::Shm => "shm",
        }
    }
}

/// The workloads: unchanged buffers, buffers written before each message, a one-way stream, and a
/// send to a receiver that has posted a receive and computes for 5 ms.
const WHAT: [&str; 4] = ["unchanged", "fresh", "rate", "away"];

/// Bytes of a small message.
const SMALL_BYTES: usize = 8;

const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Measures, prints a table and targets, writes CSV files.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let program = programs::compile_with_libfabric("ofi_messages", out)?;
    let mut results = Results::new();
    let mut failures = Vec::new();
    for round in 1..=options.rounds {
        for transport in [Transport::Nagaya, Transport::Shm] {
            progress(&format!("ofi, round {round} of {}: {}", options.rounds, transport.name()));
            if let Err(failure) = pair(options, nagaya, &program, transport, round, &mut results) {
                failures.push(Failure::new(format!("{}: {failure}", transport.name())));
            }
        }
        for what in [WHAT[0], WHAT[1]] {
            for time in copy::limit(what, &options.sizes, out)? {
                let measure = Measure { what, tasks: 2, bytes: time.bytes };
                results.add(measure, Transport::Copy, round, time.ns / 1000.0);
            }
        }
    }
    progress("");
    report(&results, out)?;
    Failure::of_all(failures)
}

/// Runs two tasks or two processes that map one file.
fn pair(
    options: &Options,
    nagaya: &Nagaya,
    program: &Path,
    transport: Transport,
    round: u32,
    results: &mut Results<Transport>,
) -> Result<(), Failure> {
    let mut command = match transport {
        Transport::Nagaya => {
            let mut command = Command::new(&nagaya.command);
            command.args(["run", "-n", "2", "--"]).env("FI_PROVIDER_PATH", nagaya.provider()?);
            command.arg(program);
            command
        }
        _ => Command::new(program),
    };
    let file = PathBuf::from(format!("/dev/shm/nagaya-bench-{}", std::process::id()));
    fs::write(&file, []).map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    command.arg(&file).arg(transport.name());
    command.args([options.repetitions, options.milliseconds].map(|n| n.to_string()));
    command.args(options.sizes.iter().map(usize::to_string));
    let output = output_of(&mut command, TIME_LIMIT);
    let _ = fs::remove_file(&file);
    let output = output?;
    let samples: Option<Vec<_>> = output.lines().map(sample).collect();
    let samples = samples.filter(|samples| !samples.is_empty());
    let samples = samples.ok_or_else(|| Failure::new(format!("unexpected output: {output}")))?;
    for repetitions in samples.chunk_by(|a, b| a.measure == b.measure) {
        let median = |of: fn(&Sample) -> f64| {
            Spread::of(&repetitions.iter().map(of).collect::<Vec<_>>()).median
        };
        let measure = repetitions[0].measure;
        results.add(measure, transport, round, median(|sample| sample.us));
        // The transfer time of a cache line at the same time, the lower bound of small messages.
        if transport == Transport::Nagaya && measure.bytes == SMALL_BYTES && measure.what == WHAT[0]
        {
            results.add(measure, Transport::Line, round, median(|sample| sample.line_us));
        }
    }
    Ok(())
}

/// One sample.
struct Sample {
    measure: Measure,
    us: f64,
    line_us: f64,
}

/// Parses a line of the program: provider, workload, size, time, and the transfer time of a cache
/// line before and after, in nanoseconds.
fn sample(text: &str) -> Option<Sample> {
    let [_, what, bytes, ns, before, after] = text.split_whitespace().collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let us = |word: &str| Some(word.parse::<f64>().ok()? / 1000.0);
    let what = WHAT.into_iter().find(|known| *known == what)?;
    let measure = Measure { what, tasks: 2, bytes: bytes.parse().ok()? };
    Some(Sample { measure, us: us(ns)?, line_us: f64::midpoint(us(before)?, us(after)?) })
}

fn report(results: &Results<Transport>, out: &Path) -> Result<(), Failure> {
    let mut table = Table::new(["", "", "line", "copy", "nagaya", "shm", "shm/nagaya"]);
    let mut lines = vec!["what,bytes,way,us,us_min,us_max".to_string()];
    let mut measures: Vec<Measure> = Vec::new();
    for (measure, transport, us) in results.all() {
        if measures.last() != Some(&measure) {
            measures.push(measure);
        }
        let Measure { what, bytes, .. } = measure;
        let Spread { median, min, max } = us;
        lines.push(format!("{what},{bytes},{},{median:.4},{min:.4},{max:.4}", transport.name()));
    }
    for measure in &measures {
        let mut cells = vec![measure.what.to_string(), sizes::shown(measure.bytes)];
        cells.extend(Transport::ALL.map(|transport| {
            results.of(*measure, transport).map(|us| three_digits(us.median)).unwrap_or_default()
        }));
        let ratio = results.quotient((*measure, Transport::Shm), (*measure, Transport::Nagaya));
        cells.push(ratio.map(|ratio| format!("{:.2}", ratio.median)).unwrap_or_default());
        table.row(cells);
    }
    table.print("one way through libfabric, µs (rate: for each message of a stream; away: until it is sent)");
    write_lines(&out.join("ofi.csv"), &lines)?;
    let mut targets = Vec::new();
    for measure in measures {
        let against =
            |transport| results.quotient((measure, Transport::Nagaya), (measure, transport));
        let Measure { what, bytes, .. } = measure;
        let mut target = |against_what: &str, most, ratio| {
            let what = format!("{what}, {}: nagaya / {against_what}", sizes::shown(bytes));
            targets.push(Target { what, bound: Bound::AtMost(most), ratio });
        };
        match what {
            "rate" | "away" => target("shm", 1.0, against(Transport::Shm)),
            // Two cores copy at once: half of the time of one core.
            _ if bytes >= 64 << 10 => target("half of one copy", 2.0 * 1.15, {
                results.quotient((measure, Transport::Nagaya), (measure, Transport::Copy)).map(
                    |ratio| {
                        let Spread { median, min, max } = ratio;
                        Spread { median: 2.0 * median, min: 2.0 * min, max: 2.0 * max }
                    },
                )
            }),
            "unchanged" if bytes == SMALL_BYTES => {
                target("a cache line", 1.4, against(Transport::Line))
            }
            _ => {}
        }
    }
    target::report("targets", &targets, &out.join("ofi-targets.csv"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_and_others_are_refused() {
        let read = sample("nagaya fresh 4096 310.5 40.0 42.0").unwrap();
        assert_eq!((read.measure.what, read.measure.bytes), ("fresh", 4096));
        assert!((read.us - 0.3105).abs() < 1e-9 && (read.line_us - 0.041).abs() < 1e-9);
        assert!(sample("nagaya stale 4096 310.5 40.0 42.0").is_none());
        assert!(sample("nagaya fresh 4096 310.5 40.0").is_none());
    }
}
