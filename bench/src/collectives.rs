//! MPI's collective operations: by the library itself, by the library under `nagaya exec`, and in
//! place by Nagaya's library, which reads the buffers of the peers.
//!
//! With more ranks than cores, a time is mostly that of the scheduler. The tables mark these cases.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use clap::Parser;
use figure::{Axis, COLOURS, Figure, GREY, Kind, Line, Panel, Row, Style, log2};

use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::mode::Mode;
use crate::mpi::Mpi;
use crate::progress::progress;
use crate::ranks::oversubscribed;
use crate::spread::Spread;
use crate::table::{Table, three_digits, write_lines};
use crate::target::{self, Bound, Target};
use crate::{machine, programs, sizes};

/// The selection and the number of runs.
#[derive(Parser)]
pub struct Options {
    /// MPI implementations to use
    #[arg(long, value_delimiter = ',', default_value = Mpi::ALL)]
    mpi: Vec<Mpi>,
    /// Numbers of ranks
    #[arg(long, value_delimiter = ',', default_value = "2,4,8",
          value_parser = clap::value_parser!(u32).range(2..=1024))]
    ranks: Vec<u32>,
    /// Operations to measure
    #[arg(long, value_delimiter = ',', value_parser = OPERATIONS,
          default_value = "barrier,bcast,reduce,allreduce,allgather,alltoall,gather,scatter")]
    operation: Vec<String>,
    /// Message sizes per pair of ranks: bytes, or with K or M
    #[arg(long, value_delimiter = ',', value_parser = sizes::parse,
          default_value = "8,1K,4K,16K,128K,1M,4M,16M")]
    sizes: Vec<usize>,
    /// Number of rounds; one if ranks share cores
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Duration of each operation at each size, in milliseconds
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    milliseconds: u32,
}

/// The operations, with the names of `programs/collectives.c`.
const OPERATIONS: [&str; 8] =
    ["barrier", "bcast", "reduce", "allreduce", "allgather", "alltoall", "gather", "scatter"];

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["collectives"])
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        (self.rounds, self.milliseconds) = (1, 1);
        self.sizes = vec![8, 64 << 10];
        self.ranks.truncate(1);
        self
    }
}

/// The implementation of the operations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The MPI library; Intel MPI with single copy on.
    Cma,
    /// The MPI library in one space.
    Space,
    /// Nagaya's library in one space.
    InPlace,
    /// Intel MPI with its defaults, which copies twice. For the others it equals `Plain`.
    TwoCopies,
}

const SIDES: [Side; 4] = [Side::Cma, Side::Space, Side::InPlace, Side::TwoCopies];

impl Side {
    fn words(self) -> &'static str {
        match self {
            Self::InPlace => "in place",
            side => side.mode().words(),
        }
    }

    fn mode(self) -> Mode {
        match self {
            Self::Cma => Mode::Cma,
            Self::Space | Self::InPlace => Mode::Space,
            Self::TwoCopies => Mode::Rendezvous,
        }
    }

    fn is_of(self, mpi: Mpi) -> bool {
        self != Self::TwoCopies || mpi == Mpi::Intel
    }
}

const TIME_LIMIT: Duration = Duration::from_secs(180);

/// Times in µs, one per round.
#[derive(Default)]
struct Times([Vec<f64>; SIDES.len()]);

impl Times {
    fn of(&self, side: Side) -> &[f64] {
        &self.0[side as usize]
    }

    /// The faster implementation of the MPI library itself.
    fn own(&self) -> Vec<f64> {
        let others = self.of(Side::TwoCopies);
        let faster = |(round, us): (usize, &f64)| others.get(round).map_or(*us, |of| us.min(*of));
        self.of(Side::Cma).iter().enumerate().map(faster).collect()
    }

    /// Returns the speed-up of an implementation over the MPI library.
    fn gain(&self, side: Side) -> Spread {
        match side {
            Side::InPlace => Spread::of_quotients(&self.own(), self.of(side)),
            _ => Spread::of_quotients(self.of(Side::Cma), self.of(side)),
        }
    }
}

/// Times by MPI, ranks, operation and size.
type Measured = BTreeMap<(Mpi, u32, usize, usize), Times>;

/// Measures, prints tables and targets, writes `collectives.csv`, figures and targets.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let mut failures = Vec::new();
    let mut measured = Measured::new();
    for &mpi in &options.mpi {
        match programs::compile_with_mpi("collectives", mpi, out) {
            Ok(program) => {
                for &ranks in &options.ranks {
                    let all = rounds(mpi, ranks, &program, options, nagaya, &mut measured);
                    failures.extend(all.err());
                }
            }
            Err(failure) => failures.push(failure),
        }
    }
    progress("");
    // Results that one side lacks, because of a failure, are not compared.
    measured.retain(|(mpi, ..), times| {
        SIDES.iter().filter(|side| side.is_of(*mpi)).all(|side| !times.of(*side).is_empty())
    });
    if !measured.is_empty() {
        report(&measured, options, out)?;
    }
    Failure::of_all(failures)
}

/// Runs all sides once.
fn rounds(
    mpi: Mpi,
    ranks: u32,
    program: &Path,
    options: &Options,
    nagaya: &Nagaya,
    measured: &mut Measured,
) -> Result<(), Failure> {
    let rounds = rounds_of(ranks, options);
    for round in 1..=rounds {
        for side in SIDES.into_iter().filter(|side| side.is_of(mpi)) {
            let (name, words) = (mpi.name(), side.words());
            progress(&format!(
                "collectives: {name}, {ranks} ranks, round {round} of {rounds}, {words}"
            ));
            let command = mpi.ranks(ranks as usize, side.mode(), nagaya, program)?;
            let Some(mut command) = command else { return Ok(()) };
            if side == Side::InPlace {
                command.env("LD_PRELOAD", nagaya.collectives()?);
            }
            command.arg(options.milliseconds.to_string()).arg(options.operation.join(","));
            command.args(options.sizes.iter().map(usize::to_string));
            let output = output_of(&mut command, TIME_LIMIT)?;
            let times: Option<Vec<_>> = output.lines().map(line).collect();
            let times = times
                .filter(|times| !times.is_empty())
                .ok_or_else(|| Failure::new(format!("collectives: unexpected output: {output}")))?;
            for (operation, bytes, us) in times {
                measured.entry((mpi, ranks, operation, bytes)).or_default().0[side as usize]
                    .push(us);
            }
        }
    }
    Ok(())
}

/// Parses a line of the program: operation, size, iterations, time (µs).
fn line(line: &str) -> Option<(usize, usize, f64)> {
    let [operation, bytes, _iterations, us] = line.split_whitespace().collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let operation = OPERATIONS.iter().position(|name| *name == operation)?;
    Some((operation, bytes.parse().ok()?, us.parse().ok()?))
}

/// Returns the number of rounds: one if ranks share cores, since a round then takes minutes and its
/// ratios are rough.
fn rounds_of(ranks: u32, options: &Options) -> u32 {
    if oversubscribed(ranks as usize).is_empty() { options.rounds } else { 1 }
}

fn report(measured: &Measured, options: &Options, out: &Path) -> Result<(), Failure> {
    let headings = "mpi,ranks,oversubscribed,operation,bytes,cma_us,cma_us_min,cma_us_max,\
                    space_us,space_us_min,space_us_max,ratio,ratio_min,ratio_max,\
                    own_us,own_us_min,own_us_max,in_place_us,in_place_us_min,in_place_us_max,\
                    in_place_ratio,in_place_ratio_min,in_place_ratio_max";
    let mut lines = vec![headings.to_string()];
    for &mpi in &options.mpi {
        for &ranks in &options.ranks {
            for side in [Side::Space, Side::InPlace] {
                print_table(mpi, ranks, side, measured, options);
            }
        }
    }
    for ((mpi, ranks, operation, bytes), times) in measured {
        let (mpi, operation) = (mpi.key(), OPERATIONS[*operation]);
        let crowded = !oversubscribed(*ranks as usize).is_empty();
        let (cma, space) = (Spread::of(times.of(Side::Cma)), Spread::of(times.of(Side::Space)));
        let (own, in_place) = (Spread::of(&times.own()), Spread::of(times.of(Side::InPlace)));
        let gains = [Side::Space, Side::InPlace].map(|side| times.gain(side));
        let spreads = [cma, space, gains[0], own, in_place, gains[1]];
        let numbers = spreads.map(|s| format!("{:.3},{:.3},{:.3}", s.median, s.min, s.max));
        let numbers = numbers.join(",");
        lines.push(format!("{mpi},{ranks},{crowded},{operation},{bytes},{numbers}"));
    }
    figure(measured, options, Side::Space).write(&out.join("collectives.svg"))?;
    figure(measured, options, Side::InPlace).write(&out.join("collectives-in-place.svg"))?;
    write_lines(&out.join("collectives.csv"), &lines)?;
    println!("\nwritten: collectives.csv and two figures in {}", out.display());
    let targets = targets(measured, options);
    target::report("targets", &targets, &out.join("collectives-targets.csv"))
}

/// In place, none of these operations may be slower than the MPI library at any size.
const ASKED: [&str; 3] = ["barrier", "bcast", "allreduce"];

fn targets(measured: &Measured, options: &Options) -> Vec<Target> {
    let mut targets = Vec::new();
    for &mpi in &options.mpi {
        for &ranks in &options.ranks {
            let bound = (0..OPERATIONS.len()).filter(|&at| ASKED.contains(&OPERATIONS[at]));
            for operation in bound {
                let all = measured
                    .range((mpi, ranks, operation, 0)..=(mpi, ranks, operation, usize::MAX));
                let slowness = all
                    .map(|(_, times)| Spread::of_quotients(times.of(Side::InPlace), &times.own()));
                let worst = slowness.max_by(|a, b| a.median.total_cmp(&b.median));
                let (name, operation) = (mpi.name(), OPERATIONS[operation]);
                let crowded = oversubscribed(ranks as usize);
                targets.push(Target {
                    what: format!(
                        "{name}, {ranks} ranks{crowded}, {operation}: in place / own, worst size"
                    ),
                    bound: Bound::AtMost(1.0),
                    ratio: worst,
                });
            }
        }
    }
    targets
}

/// Prints operations by size: both times, and their ratio.
fn print_table(mpi: Mpi, ranks: u32, side: Side, measured: &Measured, options: &Options) {
    let range = (mpi, ranks, 0, 0)..=(mpi, ranks, usize::MAX, usize::MAX);
    if measured.range(range).next().is_none() {
        return; // it failed
    }
    let headings: Vec<String> = options.sizes.iter().map(|&bytes| sizes::shown(bytes)).collect();
    let headings = ["", "no data"].into_iter().chain(headings.iter().map(String::as_str));
    let mut table = Table::new(headings.chain([""]));
    for (operation, name) in OPERATIONS.iter().enumerate() {
        let cell = |bytes: usize| match measured.get(&(mpi, ranks, operation, bytes)) {
            Some(times) => {
                let own = match side {
                    Side::InPlace => times.own(),
                    _ => times.of(Side::Cma).to_vec(),
                };
                let us = [&own, times.of(side)].map(|of| three_digits(Spread::of(of).median));
                let ratio = times.gain(side);
                let same = if ratio.min <= 1.0 && ratio.max >= 1.0 { "≈" } else { "" };
                format!("{}→{} {same}{:.2}", us[0], us[1], ratio.median)
            }
            None => String::new(),
        };
        let cells: Vec<String> =
            std::iter::once(0).chain(options.sizes.iter().copied()).map(cell).collect();
        if cells.iter().any(|cell| !cell.is_empty()) {
            table.row([name.to_string()].into_iter().chain(cells).chain([String::new()]));
        }
    }
    let (crowded, rounds) = (oversubscribed(ranks as usize), rounds_of(ranks, options));
    let way = if side == Side::InPlace { "own→in place" } else { "plain→space" };
    table.print(&format!(
        "{}, {ranks} ranks{crowded}; µs {way}, and ratio (≈: not to be told from 1); \
         rounds: {rounds}",
        mpi.name()
    ));
}

/// Returns the figure: a row for each MPI, a panel for each number of ranks, with the ratio of each
/// operation.
fn figure(measured: &Measured, options: &Options, side: Side) -> Figure {
    let style = |operation: usize| Style { colour: COLOURS[operation], kind: Kind::Solid };
    let panel = |mpi: Mpi, ranks: u32| {
        let ratios = |operation: usize| {
            let range = (mpi, ranks, operation, 1)..=(mpi, ranks, operation, usize::MAX);
            let points = measured
                .range(range)
                .map(|((_, _, _, bytes), times)| (log2(*bytes), times.gain(side).median));
            Line { points: points.collect(), style: style(operation) }
        };
        let ends = [options.sizes.iter().min(), options.sizes.iter().max()];
        let even = ends.into_iter().flatten().map(|bytes| (log2(*bytes), 1.0)).collect();
        let mut lines = vec![Line { points: even, style: GREY }];
        lines.extend((1..OPERATIONS.len()).map(ratios));
        Panel {
            caption: format!("{ranks} ranks{}: times faster", oversubscribed(ranks as usize)),
            x_caption: "bytes per pair of ranks",
            x: Axis::sizes(options.sizes.iter().copied()),
            y: Axis::from_zero(&lines),
            lines,
        }
    };
    let way = if side == Side::InPlace { "own / in place" } else { "plain / space" };
    let row = |mpi: &Mpi| Row {
        title: format!("{}: collective operations, {way}", mpi.name()),
        panels: options.ranks.iter().map(|&ranks| panel(*mpi, ranks)).collect(),
    };
    let seen = |mpi: &&Mpi| measured.keys().any(|key| key.0 == **mpi);
    let names = OPERATIONS.iter().enumerate().skip(1);
    Figure {
        caption: machine::caption(),
        legend: names.map(|(at, name)| (name.to_string(), style(at))).collect(),
        rows: options.mpi.iter().filter(seen).map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mpis_own_is_the_faster_of_its_ways() {
        let mut times = Times([vec![4.0, 6.0], vec![2.0, 2.0], vec![1.0, 2.0], vec![]]);
        assert_eq!(times.own(), [4.0, 6.0]);
        times.0[Side::TwoCopies as usize] = vec![3.0, 8.0];
        assert_eq!(times.own(), [3.0, 6.0]);
        assert_eq!(times.gain(Side::InPlace).median, 3.0);
        assert_eq!(times.gain(Side::Space).median, 2.5);
    }

    #[test]
    fn a_line_is_read_and_others_are_refused() {
        assert_eq!(line("bcast 1024 30 2.125"), Some((1, 1024, 2.125)));
        assert_eq!(line("bcast 1024 30"), None);
        assert_eq!(line("scan 1024 30 2.125"), None);
    }
}
