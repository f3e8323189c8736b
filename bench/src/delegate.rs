//! Delegation between two tasks on two cores: the round trip of an empty request against that of a
//! cache line, and delegated and direct writes of a file (§5 of the Multiple PVAS paper). `system`
//! has its system test.

mod slow;
mod system;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Parser;

use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::progress::progress;
use crate::spread::Spread;
use crate::table::{Table, three_digits, write_lines};
use crate::target::{self, Bound, Target};
use crate::{cores, programs, sizes};

/// The number of runs.
#[derive(Parser)]
pub struct Options {
    /// Number of rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Repetitions per run; each is one sample
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Duration of a repetition, in milliseconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    milliseconds: u32,
    /// Sizes of writes, in bytes
    #[arg(skip = vec![1, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20])]
    sizes: Vec<usize>,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["delegate"])
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        (self.rounds, self.repetitions, self.milliseconds) = (1, 1, 1);
        self.sizes = vec![1, 4 << 10];
        self
    }
}

/// Target of an empty delegation: round-trip time relative to that of a cache line.
const OVER_LINE_MAX: f64 = 2.6;

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The measured operations, with the names of the program.
const WAYS: [&str; 3] = ["empty", "direct", "delegated"];

/// One repetition.
struct Sample {
    way: &'static str,
    bytes: usize,
    ns: f64,
    /// Round-trip time of a cache line, before and after it, in nanoseconds.
    line_ns: [f64; 2],
}

/// Measures, prints tables, writes `delegate.csv`, `delegate-system.csv` and
/// `delegate-targets.csv`.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let program = programs::compile_with_delegate("delegate", nagaya, out)?;
    let mut samples = Vec::new();
    for round in 1..=options.rounds {
        progress(&format!("delegate, round {round} of {}", options.rounds));
        let file = Shared::new()?;
        let mut command = Command::new(&nagaya.command);
        command.args(["run", "-n", "2"]).arg(&program).arg(&file.0);
        command.args([options.repetitions, options.milliseconds].map(|n| n.to_string()));
        command.args(options.sizes.iter().map(usize::to_string));
        let output = output_of(&mut command, TIME_LIMIT)?;
        let read: Option<Vec<Sample>> = output.lines().map(line).collect();
        let unexpected = || Failure::new(format!("delegate: unexpected output: {output}"));
        samples.extend(read.filter(|read| !read.is_empty()).ok_or_else(unexpected)?);
    }
    progress("");
    let mut targets = report(&samples, options, out)?;
    let (rounds, milliseconds) = (options.rounds, options.milliseconds);
    targets.extend(system::run(rounds, milliseconds, &options.sizes, nagaya, out)?);
    let title = "delegation: targets";
    target::report(title, &targets, &out.join("delegate-targets.csv"))?;
    println!(
        "written: delegate.csv, delegate-system.csv, delegate-targets.csv in {}",
        out.display()
    );
    Ok(())
}

/// The file that both tasks map. It is removed with this value.
struct Shared(PathBuf);

impl Shared {
    fn new() -> Result<Self, Failure> {
        let path = format!("/dev/shm/nagaya-bench-delegate-{}", std::process::id());
        let made = File::options().write(true).create_new(true).mode(0o600).open(&path);
        made.map_err(|error| Failure::new(format!("{path}: {error}")))?;
        Ok(Self(path.into()))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Parses a line of the program: operation, bytes, time, and the round-trip time of a cache line
/// before and after, in nanoseconds.
fn line(text: &str) -> Option<Sample> {
    let [way, bytes, ns, before, after] = text.split_whitespace().collect::<Vec<_>>()[..] else {
        return None;
    };
    Some(Sample {
        way: WAYS.into_iter().find(|of| *of == way)?,
        bytes: bytes.parse().ok()?,
        ns: ns.parse().ok()?,
        line_ns: [before.parse().ok()?, after.parse().ok()?],
    })
}

/// Times in nanoseconds, by operation and size.
type Times = BTreeMap<(&'static str, usize), Vec<f64>>;

fn report(samples: &[Sample], options: &Options, out: &Path) -> Result<Vec<Target>, Failure> {
    let lines: Vec<f64> = samples.iter().flat_map(|sample| sample.line_ns).collect();
    let usual = Spread::of(&lines).median;
    // Samples at an unusual distance of the cores are discarded, unless there are no others of the
    // same operation and size.
    let near = |sample: &&Sample| cores::is_one_distance(usual, sample.line_ns);
    let key = |sample: &Sample| (sample.way, sample.bytes);
    let nears: BTreeSet<_> = samples.iter().filter(near).map(key).collect();
    let is_kept = |sample: &&Sample| near(sample) || !nears.contains(&key(sample));
    let (mut times, mut over_line, mut kept) = (Times::new(), Times::new(), 0);
    for sample in samples.iter().filter(is_kept) {
        let line = sample.line_ns.iter().sum::<f64>() / 2.0;
        times.entry(key(sample)).or_default().push(sample.ns);
        over_line.entry(key(sample)).or_default().push(sample.ns / line);
        kept += 1;
    }
    println!(
        "\na cache line there and back: {usual:.0} ns; {} of {} samples at another distance discarded",
        samples.len() - kept,
        samples.len()
    );
    let mut csv = vec!["way,bytes,ns,ns_min,ns_max".to_string()];
    csv.push(row("line", 0, Spread::of(&lines)));
    csv.extend(times.iter().map(|((way, bytes), ns)| row(way, *bytes, Spread::of(ns))));
    requests(&times, &over_line);
    writes(&times, options);
    write_lines(&out.join("delegate.csv"), &csv)?;
    Ok(vec![Target {
        what: "an empty delegation over a cache line; there and back".to_string(),
        bound: Bound::AtMost(OVER_LINE_MAX),
        ratio: over_line.get(&("empty", 0)).map(|of| Spread::of(of)),
    }])
}

fn row(way: &str, bytes: usize, ns: Spread) -> String {
    format!("{way},{bytes},{:.1},{:.1},{:.1}", ns.median, ns.min, ns.max)
}

fn requests(times: &Times, over_line: &Times) {
    let mut table = Table::new(["payload", "ns", "(min..max)", "over a cache line"]);
    for ((_, bytes), ns) in times.iter().filter(|((way, _), _)| *way == "empty") {
        let ns = Spread::of(ns);
        let over = Spread::of(&over_line[&("empty", *bytes)]);
        table.row([
            sizes::shown(*bytes),
            format!("{:.0}", ns.median),
            format!("({:.0}..{:.0})", ns.min, ns.max),
            format!("{:.2}", over.median),
        ]);
    }
    table.print("requests that ask for nothing, there and back, two cores");
}

fn writes(times: &Times, options: &Options) {
    let mut table = Table::new(["bytes", "direct µs", "delegated µs", "added µs", "ratio"]);
    for &bytes in &options.sizes {
        let of = |way| times.get(&(way, bytes)).map(|ns| Spread::of(ns));
        let (Some(direct), Some(delegated)) = (of("direct"), of("delegated")) else { continue };
        let [direct_us, delegated_us] = [direct, delegated].map(|of| of.median / 1000.0);
        let (added, ratio) = (delegated_us - direct_us, delegated_us / direct_us);
        table.row([
            sizes::shown(bytes),
            three_digits(direct_us),
            three_digits(delegated_us),
            format!("{added:+.2}"),
            format!("{ratio:.2}"),
        ]);
    }
    table.print("pwritev of a file in memory, on the requester's buffer; medians");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_and_others_are_refused() {
        let read = line("delegated 4096 1090.5 128.0 130.0").unwrap();
        assert_eq!((read.way, read.bytes, read.ns), ("delegated", 4096, 1090.5));
        assert_eq!(read.line_ns, [128.0, 130.0]);
        assert!(line("asked 4096 1090.5 128.0 130.0").is_none());
        assert!(line("direct 4096 1090.5 128.0").is_none());
    }
}
