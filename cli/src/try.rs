//! `nagaya try`: runs a job without and with Nagaya, in turns, and says whether it pays.

mod output;
mod report;
mod runs;
mod verdict;

use std::ffi::OsString;
use std::path::PathBuf;

use launch::processors;
use nagaya_server::Failure;
use paths::choice;
use paths::command_line::CommandLine;

use crate::messages::{self, PRELOAD, preload};
use crate::mpi::scratch::Scratch;
use crate::program;
use crate::progress::Progress;
use output::Comparison;
use report::{Outcome, Side};
use runs::Runs;

const EXAMPLES: &str = "\
Examples:
  nagaya try -- mpirun -n 8 ./app        is this MPI job faster with Nagaya?
  nagaya try --rounds 5 --report r.json -- srun -n 8 ./app
  nagaya try --span 2 -- ./app           are two nodes faster for its threads?";

/// Run a job without and with Nagaya, and say whether it is faster
///
/// The job runs twice to count its messages, and then --rounds times without and with Nagaya, in
/// turns. See nagaya-try(1).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Number of timed runs without, and of timed runs with Nagaya
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Write all measurements and counts into this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// End with status 1 if the runs print different lines
    #[arg(long)]
    compare: bool,
    /// Compare one node with nagaya span on N nodes, for a program with threads
    ///
    /// Each node is a process of this machine with a share of its processors. The run without
    /// Nagaya gets one share.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=64))]
    span: Option<u32>,
    /// The launcher with its options, the program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Runs the job, and prints the result.
pub fn run(options: &Options) -> Result<i32, Failure> {
    program::check_name("try", &options.command[0])?;
    program::find(&options.command[0])?;
    let scratch = Scratch::new()?;
    let progress = Progress::start("try", "");
    let runs = Runs::new(scratch.path(), &progress)?;
    let outcome = match options.span {
        Some(nodes) => span(options, nodes, &runs),
        None => launched(options, &runs),
    }?;
    drop(progress);
    print!("{}", verdict::text(&outcome));
    if let Some(file) = &options.report {
        messages::write(file, &outcome, "")
            .map_err(|why| Failure::ours(format!("--report {}: {why}", file.display())))?;
    }
    Ok(i32::from(options.compare && !outcome.output.is_same()))
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn setting(name: &str, value: impl AsRef<std::ffi::OsStr>) -> OsString {
    let mut text = OsString::from(name);
    text.push("=");
    text.push(value);
    text
}

fn this_program() -> Result<OsString, Failure> {
    let path = std::env::current_exe();
    path.map(Into::into).map_err(|why| Failure::ours(format!("/proc/self/exe: {why}")))
}

/// Tries an MPI's job.
fn launched(options: &Options, runs: &Runs<'_>) -> Result<Outcome, Failure> {
    let is_program = |word: &std::ffi::OsStr| program::find(word).is_ok_and(|path| path.is_file());
    let line = CommandLine::new(&options.command, &is_program)
        .map_err(|why| Failure::ours(format!("try: {why}")))?;
    let Some(library) = choice::counting_library() else {
        return Err(Failure::ours("try: libnagaya-traffic.so is not installed with this nagaya"));
    };
    let nagaya = this_program()?;
    let shared = Scratch::of_all_nodes()?;
    let directory = shared.path().join("counts");
    let made = std::fs::create_dir(&directory);
    made.map_err(|why| Failure::ours(format!("{}: {why}", directory.display())))?;
    let counting = [
        OsString::from("env"),
        setting(PRELOAD, preload(&library, std::env::var_os(PRELOAD).as_deref())),
        setting(traffic::DIRECTORY, &directory),
    ];
    // These two runs also load the program and its data into memory.
    let plain = runs.run("without Nagaya, counting", &line.with(&counting), None)?;
    let records = messages::read(&directory);
    let report = shared.path().join("with.json");
    let mut counted = vec![nagaya.clone(), "exec".into(), "--report".into()];
    counted.push(report.clone().into());
    let ours = runs.run("with Nagaya, counting", &line.with(&counted), None);
    let ours = ours.map_err(|why| with_remedy(why, shared.path()))?;
    let comparison = Comparison::of(&plain.output, &ours.output);
    let sides = [options.command.clone(), line.with(&[nagaya, "exec".into()])];
    let [without, with] = time(options, runs, &sides, [None, None])?;
    let counted_with = std::fs::read_to_string(report).ok();
    Ok(Outcome {
        command: shown(&options.command),
        without: Side { counts: messages::Job::of(&records), ..Side::new(without) },
        with: Side::new(with),
        counted_with: counted_with.and_then(|text| serde_json::from_str(&text).ok()),
        uncounted_in: plain.has_lost_records().then(|| shared.path().to_owned()),
        ..Outcome::new(comparison)
    })
}

/// Adds the remedy to a failure of a job whose nodes lack the directory of the counts.
fn with_remedy(failure: Failure, shared: &std::path::Path) -> Failure {
    match failure.message.contains(&*shared.to_string_lossy()) {
        true => Failure { message: failure.message + &verdict::elsewhere(shared), ..failure },
        false => failure,
    }
}

/// Tries a program with threads on several nodes of this machine.
fn span(options: &Options, nodes: u32, runs: &Runs<'_>) -> Result<Outcome, Failure> {
    let nagaya = this_program()?;
    let ours = processors::ours().map_err(|why| Failure::ours(format!("processors: {why}")))?;
    let count = nodes as usize;
    let share = (ours.len() >= count).then(|| processors::shares(&ours, count)[0]);
    let number = nodes.to_string();
    let under_span = |report: Option<&PathBuf>| {
        let mut line = vec![nagaya.clone()];
        line.extend(words(&["span", "--nodes", &number]));
        line.extend(report.map(|file| setting("--report", file)));
        line.extend(options.command.iter().cloned());
        line
    };
    let plain = runs.run("on one node", &options.command, share)?;
    let text = runs.file("span.txt");
    let spanned = runs.run("on several nodes, counting", &under_span(Some(&text)), None)?;
    let comparison = Comparison::of(&plain.output, &spanned.output);
    let sides = [options.command.clone(), under_span(None)];
    let [without, with] = time(options, runs, &sides, [share, None])?;
    let mut span_report = None;
    if options.report.is_some() {
        let json = runs.file("span.json");
        runs.run("on several nodes, for the report", &under_span(Some(&json)), None)?;
        let text = std::fs::read_to_string(&json).ok();
        span_report = text.and_then(|text| serde_json::from_str(&text).ok());
    }
    Ok(Outcome {
        command: shown(&options.command),
        nodes: Some(nodes),
        share: share.map(|share| share.count()),
        without: Side::new(without),
        with: Side::new(with),
        reasons: std::fs::read_to_string(text).ok(),
        span_report,
        ..Outcome::new(comparison)
    })
}

/// Times the runs of both sides in turns: which side is first changes from round to round.
fn time(
    options: &Options,
    runs: &Runs<'_>,
    sides: &[Vec<OsString>; 2],
    shares: [Option<rustix::thread::CpuSet>; 2],
) -> Result<[Vec<f64>; 2], Failure> {
    let mut seconds = [Vec::new(), Vec::new()];
    for round in 1..=options.rounds {
        let first = (round % 2 == 0) as usize;
        for side in [first, 1 - first] {
            let name = ["without Nagaya", "with Nagaya"][side];
            let name = format!("round {round} of {}, {name}", options.rounds);
            seconds[side].push(runs.run(&name, &sides[side], shares[side])?.seconds);
        }
    }
    Ok(seconds)
}

fn shown(command: &[OsString]) -> Vec<String> {
    command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}
