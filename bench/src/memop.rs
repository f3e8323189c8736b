//! Memory operations on another process: Tables 2 and 3 of Kokaji, Shiba and Okada, measured on a
//! current kernel. A page is read and written, and fetched over TCP by two control processes, with
//! ptrace(2) word by word and with libmemop. The peers are the kernel's process_vm_* calls and a
//! fetch by `nagaya span`.
//!
//! The measuring programs are `programs/memop_pages.c`, `memop_fetch.c` and `span_fetch.c`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::Parser;

use crate::cores;
use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::programs;
use crate::progress::progress;
use crate::spread::Spread;
use crate::steps::times_of;
use crate::table::{Table, write_lines};
use crate::target::{self, Bound, Target};

/// The number of runs.
#[derive(Parser)]
pub struct Options {
    /// Number of rounds; in each round every program runs once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Pages per run
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pages: u32,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["memop"])
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        (self.rounds, self.pages) = (1, 50);
        self
    }
}

const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Table 2 of the paper, in µs: by ptrace, and by its calls.
const PAPER_PAGES: [(&str, [f64; 2]); 2] = [("read", [870.0, 3.0]), ("write", [461.0, 3.0])];

/// Methods of reading and writing a page of another process, with the names of `memop_pages.c`.
const WAYS: [(&str, &str); 5] = [
    ("ptrace", "ptrace, 8 bytes a call"),
    ("process_vm", "process_vm_readv, process_vm_writev"),
    ("memop", "memop_peekpage, memop_pokepage"),
    ("memop-hidden", "the same, of a page that the process may not use"),
    ("memory", "a copy within one address space"),
];

/// Table 3 of the paper, in µs: by ptrace, and by its calls; and the name of the part in
/// `memop_fetch.c`.
const PAPER_FETCH: [(&str, &str, [f64; 2]); 4] = [
    ("fetch", "from access to value", [1428.0, 258.0]),
    ("wait", "from request to answer", [664.0, 213.0]),
    ("serve", "the other side's part of that", [479.0, 19.0]),
    ("bring", "the page written and made readable", [731.0, 14.0]),
];

/// The target: a fetch by ptrace relative to one by `nagaya span`. It is the paper's gain.
const GAIN: f64 = 5.5;

/// Medians in µs, one per round, by method and part.
type Measured = BTreeMap<(&'static str, &'static str), Vec<f64>>;

/// Measures, prints both tables, writes `memop.csv` and `memop-targets.csv`.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let pages = programs::compile_with_memop("memop_pages", nagaya, out)?;
    let fetch = programs::compile_with_memop("memop_fetch", nagaya, out)?;
    let span_fetch = programs::compile("span_fetch", out)?;
    let count = options.pages.to_string();
    let pair = cores::first_pair();
    let mut measured = Measured::new();
    for round in 0..options.rounds {
        progress(&format!("memop: round {} of {}", round + 1, options.rounds));
        let mut command = cores::on(pair.map(|(first, _)| first), &pages);
        let parts = WAYS.iter().flat_map(|&(way, _)| PAPER_PAGES.map(|(part, _)| (way, part)));
        take(&mut measured, &mut command, &[&count], &parts.collect::<Vec<_>>())?;
        for way in ["ptrace", "memop"] {
            let cpus = pair.map(|(first, second)| [first.to_string(), second.to_string()]);
            let mut words = vec![way, &count];
            words.extend(cpus.iter().flatten().map(String::as_str));
            let parts = PAPER_FETCH.map(|(part, ..)| (way, part));
            take(&mut measured, &mut Command::new(&fetch), &words, &parts)?;
        }
        let mut command = Command::new(&nagaya.command);
        command.args(["span", "--nodes", "2", "--place", "spread"]).arg(&span_fetch);
        take(&mut measured, &mut command, &[&count], &[("span", "fetch")])?;
    }
    report(&measured, options, out)
}

/// Runs a program and records the medians of these parts.
fn take(
    measured: &mut Measured,
    command: &mut Command,
    words: &[&str],
    parts: &[(&'static str, &'static str)],
) -> Result<(), Failure> {
    let output = output_of(command.args(words), TIME_LIMIT)?;
    for &(way, part) in parts {
        let times = times_of(&output, &[way, part])
            .ok_or_else(|| Failure::new(format!("memop: unexpected output: {output}")))?;
        measured.entry((way, part)).or_default().push(times.median_us);
    }
    Ok(())
}

fn report(measured: &Measured, options: &Options, out: &Path) -> Result<(), Failure> {
    let of = |way: &'static str, part: &'static str| measured.get(&(way, part));
    let spread = |way, part| of(way, part).map(|times| Spread::of(times));
    let cell = |of: Option<Spread>| of.map_or(String::new(), |of| us(of.median));
    let gain = |above: Option<&Vec<f64>>, below: Option<&Vec<f64>>| {
        let quotients = Spread::of_quotients(above?, below?);
        Some(format!("{:.1}x", quotients.median))
    };

    let mut table =
        Table::new(["a page of another process", "read µs", "over", "write µs", "over"]);
    for (way, words) in WAYS {
        let over = |part: &'static str| gain(of("ptrace", part), of(way, part)).unwrap_or_default();
        let [read, write] = ["read", "write"].map(|part| cell(spread(way, part)));
        table.row([words.to_string(), read, over("read"), write, over("write")]);
    }
    let [read, write] = PAPER_PAGES.map(|(_, times)| times);
    for (at, words) in
        ["the paper's: ptrace, 4 bytes a call", "the paper's: new calls"].into_iter().enumerate()
    {
        let over = |times: [f64; 2]| format!("{:.1}x", times[0] / times[at]);
        table.row([words.to_string(), us(read[at]), over(read), us(write[at]), over(write)]);
    }
    table.print(&format!(
        "Table 2: over the time that ptrace takes; medians of {} rounds of {} pages",
        options.rounds, options.pages
    ));

    let mut table = Table::new([
        "a page fetched",
        "ptrace µs",
        "memop µs",
        "gain",
        "span µs",
        "gain",
        "the paper's ptrace µs",
        "its calls µs",
        "gain",
    ]);
    for (part, words, [by_ptrace, by_calls]) in PAPER_FETCH {
        table.row([
            words.to_string(),
            cell(spread("ptrace", part)),
            cell(spread("memop", part)),
            gain(of("ptrace", part), of("memop", part)).unwrap_or_default(),
            cell(spread("span", part)),
            gain(of("ptrace", part), of("span", part)).unwrap_or_default(),
            us(by_ptrace),
            us(by_calls),
            format!("{:.1}x", by_ptrace / by_calls),
        ]);
    }
    table.print("Table 3: between two nodes of one processor each, over TCP (span: over UCX)");

    let mut lines = vec!["way,part,us,us_min,us_max".to_string()];
    for ((way, part), times) in measured {
        let of = Spread::of(times);
        lines.push(format!("{way},{part},{:.3},{:.3},{:.3}", of.median, of.min, of.max));
    }
    write_lines(&out.join("memop.csv"), &lines)?;
    let ratio = of("ptrace", "fetch").zip(of("span", "fetch"));
    let targets = [Target {
        what: "page fetch by ptrace over one by nagaya span".into(),
        bound: Bound::AtLeast(GAIN),
        ratio: ratio.map(|(above, below)| Spread::of_quotients(above, below)),
    }];
    target::report("targets", &targets, &out.join("memop-targets.csv"))
}

/// Formats a time for the tables.
fn us(time: f64) -> String {
    if time < 10.0 { format!("{time:.2}") } else { format!("{time:.0}") }
}
