//! FCP's three protocols between two processes, beside plain shared memory, sockets, and the
//! machine's limits: Tables 2 to 5 of the FOLON paper, with its own numbers in a column.

mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Parser;

use crate::failure::Failure;
use crate::launch::output_of;
use crate::progress::progress;
use crate::{copy, programs};

/// How often it is measured.
#[derive(Parser)]
pub struct Options {
    /// How often each way is run, in turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Repetitions a run, whose median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// How long a repetition lasts for each size
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    milliseconds: u32,
    /// Message sizes in bytes
    #[arg(skip = vec![4, 8, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20])]
    sizes: Vec<usize>,
}

impl Options {
    /// The defaults.
    pub fn full() -> Self {
        Self::parse_from(["fcp"])
    }

    /// As little as shows that everything runs.
    pub fn quick(mut self) -> Self {
        (self.rounds, self.repetitions, self.milliseconds) = (1, 1, 1);
        self.sizes = vec![4, 8, 4 << 10, 1 << 20];
        self
    }
}

/// How a message is brought; the first two are limits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Way {
    /// A cache line: a word that two processes set in turns.
    Line,
    /// One copy of the sender's buffer by the best loop; nobody is told of it.
    Copy,
    Vcl,
    Fcp,
    FcpPlus,
    Fcp2,
    /// FCP II between two tasks of a space.
    Space,
    Unix,
    Tcp,
    Udp,
}

const WAYS: [Way; 10] = [
    Way::Line,
    Way::Copy,
    Way::Vcl,
    Way::Fcp,
    Way::FcpPlus,
    Way::Fcp2,
    Way::Space,
    Way::Unix,
    Way::Tcp,
    Way::Udp,
];

impl Way {
    /// As it is called in tables and figures.
    fn name(self) -> &'static str {
        match self {
            Way::Line => "cache line",
            Way::Copy => "one copy",
            Way::Vcl => "VCL",
            Way::Fcp => "FCP",
            Way::FcpPlus => "FCP plus",
            Way::Fcp2 => "FCP II",
            Way::Space => "FCP II, space",
            Way::Unix => "Unix socket",
            Way::Tcp => "TCP",
            Way::Udp => "UDP",
        }
    }

    /// As it is called in files, and by the measuring programs.
    fn key(self) -> &'static str {
        match self {
            Way::Line => "line",
            Way::Copy => "copy",
            Way::Vcl => "vcl",
            Way::Fcp => "fcp",
            Way::FcpPlus => "fcp-plus",
            Way::Fcp2 => "fcp2",
            Way::Space => "fcp2-space",
            Way::Unix => "unix",
            Way::Tcp => "tcp",
            Way::Udp => "udp",
        }
    }
}

/// Whether a buffer is written anew before each message.
const BUFFERS: [&str; 2] = ["unchanged", "fresh"];

const PATIENCE: Duration = Duration::from_secs(60);

/// One measurement.
struct Sample {
    round: u32,
    what: &'static str,
    way: Way,
    bytes: usize,
    ns: f64,
    /// A cache line's way just before and after it, in ns.
    line_ns: [f64; 2],
}

/// Measures, prints tables, writes CSV files and a figure. What fails is reported at the end;
/// the rest is measured all the same.
pub fn run(options: &Options, out: &Path) -> Result<(), Failure> {
    let mut run = Run { options, out, samples: Vec::new(), failures: Vec::new() };
    let mut parts: Vec<(&str, Part<'_>)> =
        vec![("shared memory and sockets", Run::peers), ("one copy", Run::copies)];
    for round in 1..=options.rounds {
        parts.retain(|(name, part)| {
            progress(&format!("fcp, round {round} of {}: {name}", options.rounds));
            match part(&mut run, round) {
                Ok(()) => true,
                Err(failure) => {
                    eprintln!("nagaya-bench: fcp: {name}: {failure}");
                    run.failures.push(Failure::new(format!("{name}: {failure}")));
                    false
                }
            }
        });
    }
    progress("");
    if !run.samples.is_empty() {
        report::write(&run.samples, options, out)?;
    }
    Failure::of_all(run.failures)
}

type Part<'a> = fn(&mut Run<'a>, u32) -> Result<(), Failure>;

/// All rounds.
struct Run<'a> {
    options: &'a Options,
    out: &'a Path,
    samples: Vec<Sample>,
    failures: Vec<Failure>,
}

impl Run<'_> {
    fn peers(&mut self, round: u32) -> Result<(), Failure> {
        let program = programs::compile("fcp_peers", self.out)?;
        self.pair(Command::new(program), "vcl,unix,tcp,udp", round)
    }

    /// Two processes with a file that both map.
    fn pair(&mut self, mut command: Command, ways: &str, round: u32) -> Result<(), Failure> {
        let file = PathBuf::from(format!("/dev/shm/nagaya-bench-{}", std::process::id()));
        fs::write(&file, [])
            .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
        command.arg(&file).arg(ways);
        let times = [self.options.repetitions, self.options.milliseconds];
        command.args(times.map(|n| n.to_string()));
        command.args(self.options.sizes.iter().map(usize::to_string));
        let output = output_of(&mut command, PATIENCE);
        let _ = fs::remove_file(&file);
        let output = output?;
        let samples: Option<Vec<Sample>> = output.lines().map(|text| line(text, round)).collect();
        let samples = samples.filter(|samples| !samples.is_empty());
        let unexpected = || Failure::new(format!("unexpected output: {output}"));
        self.samples.extend(samples.ok_or_else(unexpected)?);
        Ok(())
    }

    /// What a message takes at least.
    fn copies(&mut self, round: u32) -> Result<(), Failure> {
        for what in BUFFERS {
            let times = copy::limit(what, &self.options.sizes, self.out)?;
            self.samples.extend(times.into_iter().map(|time| Sample {
                round,
                what,
                way: Way::Copy,
                bytes: time.bytes,
                ns: time.ns,
                line_ns: time.distance_ns,
            }));
        }
        Ok(())
    }
}

/// Reads a line of a measuring program: way, buffers, size, time, and a cache line's way
/// before and after (ns).
fn line(text: &str, round: u32) -> Option<Sample> {
    let [way, what, bytes, ns, before, after] = text.split_whitespace().collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let number = |word: &str| word.parse::<f64>().ok();
    Some(Sample {
        round,
        what: BUFFERS.into_iter().find(|name| *name == what)?,
        way: WAYS.into_iter().find(|of| of.key() == way)?,
        bytes: bytes.parse().ok()?,
        ns: number(ns)?,
        line_ns: [number(before)?, number(after)?],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_and_others_are_refused() {
        let read = line("fcp2 fresh 4096 310.5 40.0 42.0", 3).unwrap();
        assert_eq!((read.round, read.what, read.way, read.bytes), (3, "fresh", Way::Fcp2, 4096));
        assert_eq!((read.ns, read.line_ns), (310.5, [40.0, 42.0]));
        assert!(line("fcp3 fresh 4096 310.5 40.0 42.0", 1).is_none());
        assert!(line("fcp2 fresh 4096 310.5 40.0", 1).is_none());
    }
}
