//! FCP's three protocols between two processes, beside plain shared memory, sockets, and the
//! machine's limits: Tables 2 to 5 of the FOLON paper, with its own numbers in a column.

mod paper;
mod report;

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

/// How a message is brought; the first three are limits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Way {
    /// One word that two processes raise in turns.
    Word,
    /// Two cache lines: a word for each direction, set in turns.
    Line,
    /// One copy of the sender's buffer by the best loop; nobody is told of it.
    Copy,
    Vcl,
    Fcp,
    FcpPlus,
    Fcp2,
    /// FCP II, of messages that lie in huge pages.
    Huge,
    /// FCP II between two tasks of a space.
    Space,
    Unix,
    Tcp,
    Udp,
}

const WAYS: [Way; 12] = [
    Way::Word,
    Way::Line,
    Way::Copy,
    Way::Vcl,
    Way::Fcp,
    Way::FcpPlus,
    Way::Fcp2,
    Way::Huge,
    Way::Space,
    Way::Unix,
    Way::Tcp,
    Way::Udp,
];

impl Way {
    /// As it is called in tables and figures.
    fn name(self) -> &'static str {
        match self {
            Way::Word => "one word",
            Way::Line => "cache line",
            Way::Copy => "one copy",
            Way::Vcl => "VCL",
            Way::Fcp => "FCP",
            Way::FcpPlus => "FCP plus",
            Way::Fcp2 => "FCP II",
            Way::Huge => "FCP II, huge",
            Way::Space => "FCP II, space",
            Way::Unix => "Unix socket",
            Way::Tcp => "TCP",
            Way::Udp => "UDP",
        }
    }

    /// As it is called in files, and by the measuring programs.
    fn key(self) -> &'static str {
        match self {
            Way::Word => "word",
            Way::Line => "line",
            Way::Copy => "copy",
            Way::Vcl => "vcl",
            Way::Fcp => "fcp",
            Way::FcpPlus => "fcp-plus",
            Way::Fcp2 => "fcp2",
            Way::Huge => "fcp2-huge",
            Way::Space => "fcp2-space",
            Way::Unix => "unix",
            Way::Tcp => "tcp",
            Way::Udp => "udp",
        }
    }
}

/// Whether a buffer is written anew before each message.
const BUFFERS: [&str; 2] = ["unchanged", "fresh"];

/// How many send to one, and what.
const SENDERS: [usize; 5] = [1, 2, 4, 8, 16];
const SENDERS_BYTES: usize = 64;

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
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let mut run = Run {
        options,
        nagaya,
        out,
        samples: Vec::new(),
        senders: Results::new(),
        failures: Vec::new(),
    };
    let mut parts: Vec<(&str, Part<'_>)> = vec![
        ("shared memory and sockets", Run::peers),
        ("one copy", Run::copies),
        ("FCP", Run::processes),
        ("FCP II in a space", Run::tasks),
        ("many senders", Run::senders),
    ];
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
        report::write(&run.samples, &run.senders, options, nagaya, out)?;
    }
    Failure::of_all(run.failures)
}

type Part<'a> = fn(&mut Run<'a>, u32) -> Result<(), Failure>;

/// All rounds.
struct Run<'a> {
    options: &'a Options,
    nagaya: &'a Nagaya,
    out: &'a Path,
    samples: Vec<Sample>,
    /// Of one of many messages to one receiver.
    senders: Results<Way>,
    failures: Vec<Failure>,
}

impl Run<'_> {
    fn peers(&mut self, round: u32) -> Result<(), Failure> {
        let program = programs::compile("fcp_peers", self.out)?;
        self.pair(Command::new(program), "word,vcl,unix,tcp,udp", round)
    }

    fn processes(&mut self, round: u32) -> Result<(), Failure> {
        let program = programs::compile_with_fcp("fcp_messages", self.nagaya, self.out)?;
        self.pair(Command::new(program), "fcp,fcp-plus,fcp2,fcp2-huge", round)
    }

    fn tasks(&mut self, round: u32) -> Result<(), Failure> {
        let program = programs::compile_with_fcp("fcp_messages", self.nagaya, self.out)?;
        let mut command = Command::new(&self.nagaya.command);
        command.args(["run", "-n", "2"]).arg(program);
        self.pair(command, "fcp2-space", round)
    }

    /// One to 16 processes that send to one, as fast as they can.
    fn senders(&mut self, round: u32) -> Result<(), Failure> {
        let program = programs::compile_with_fcp("fcp_senders", self.nagaya, self.out)?;
        let place = Place::new();
        let messages = 10_000 * self.options.milliseconds;
        let mut command = Command::new(program);
        command.arg(&place.0).arg("fcp,fcp-plus,fcp2");
        command.args([self.options.repetitions, messages].map(|n| n.to_string()));
        command.arg(SENDERS_BYTES.to_string()).args(SENDERS.map(|n| n.to_string()));
        let output = output_of(&mut command, PATIENCE)?;
        let read = |text: &str| {
            let [way, senders, _, messages, ns] = text.split_whitespace().collect::<Vec<_>>()[..]
            else {
                return None;
            };
            let way = WAYS.into_iter().find(|of| of.key() == way)?;
            let each = ns.parse::<f64>().ok()? / messages.parse::<f64>().ok()?;
            Some(((way, senders.parse::<usize>().ok()?), each / 1000.0))
        };
        let all: Option<Vec<_>> = output.lines().map(read).collect();
        let all = all.ok_or_else(|| Failure::new(format!("unexpected output: {output}")))?;
        for repetitions in all.chunk_by(|a, b| a.0 == b.0) {
            let (way, senders) = repetitions[0].0;
            let times: Vec<f64> = repetitions.iter().map(|(_, us)| *us).collect();
            let measure = Measure { what: "senders", tasks: senders + 1, bytes: SENDERS_BYTES };
            self.senders.add(measure, way, round, Spread::of(&times).median);
        }
        Ok(())
    }

    /// Two processes with a file that both map.
    fn pair(&mut self, mut command: Command, ways: &str, round: u32) -> Result<(), Failure> {
        let place = Place::new();
        let file = &place.0;
        fs::write(file, [])
            .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
        command.arg(file).arg(ways);
        let times = [self.options.repetitions, self.options.milliseconds];
        command.args(times.map(|n| n.to_string()));
        command.args(self.options.sizes.iter().map(usize::to_string));
        let output = output_of(&mut command, PATIENCE)?;
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

/// A name in memory, for files that programs make there. They go with this value, also those
/// that a program which failed has left.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        Place(PathBuf::from(format!("/dev/shm/nagaya-bench-{}", std::process::id())))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
        for way in WAYS {
            let _ = fs::remove_file(self.0.with_extension(way.key()));
        }
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
