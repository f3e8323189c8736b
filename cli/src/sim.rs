//! `nagaya sim`: programs on simulated clusters, replay, random programs and calibration.

mod calibrate;
mod plot;

use std::cell::Cell;
use std::fs;
use std::io::BufWriter;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use coherence::record::{self, Differs};
use coherence::ride::Policy;
use nagaya_server::Failure;
use sim::cluster::{Cluster, Compute};
use sim::machine::Machine;
use sim::program::Program;
use sim::program::known::{self, Known};
use sim::protocol::Consistency;
use sim::report::{self, Outcome, RunError};
use sim::setup::Setup;
use sim::soak::racing;
use sim::trace::{Trace, Written};

use crate::progress::Progress;
use crate::ps::human;

const EXAMPLES: &str = "\
Examples:
  nagaya sim                             list the programs and their parameters
  nagaya sim lu size=512 -n 1,2,4,8      speed-up of LU on up to 8 nodes
  nagaya sim all --plot all.svg          draw the speed-ups of all programs
  nagaya sim --soak 1000 --seed 7        check random programs with faults";

/// Run programs on simulated clusters, in virtual time
///
/// See nagaya-sim(1).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Program to run, or all; without one, list the programs with their parameters
    #[arg(conflicts_with_all = ["replay", "soak", "calibrate"])]
    program: Option<String>,
    /// Parameters of the program, as in size=512
    #[arg(value_name = "NAME=NUMBER", requires = "program")]
    parameters: Vec<String>,
    /// Numbers of nodes; each is a run
    #[arg(short, long, value_name = "N,...", value_delimiter = ',', default_value = "1,2,4,8,16,32",
          value_parser = clap::value_parser!(u32).range(1..=NODES_MAX))]
    nodes: Vec<u32>,
    /// Tasks of each node
    #[arg(short, long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=TASKS_MAX))]
    tasks: u32,
    /// A cluster's times: paper, current, or a file
    #[arg(short, long, value_name = "CLUSTER", default_value = "current")]
    cluster: String,
    /// Processors of a node, instead of the cluster's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cores: Option<u32>,
    /// Nodes of a machine: they share its processors and its link
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=NODES_MAX))]
    per_machine: Option<u32>,
    /// Time of the program on one node; the time of its inner loop is derived from it
    #[arg(long, value_name = "SECONDS")]
    one_node: Option<f64>,
    /// Bytes of a page: a multiple of 4096
    #[arg(long, value_name = "BYTES", default_value = "8192")]
    page: usize,
    /// Consistency model: scope (writes under a lock or before a barrier become visible there) or
    /// sequential (every read returns the last write)
    #[arg(long, value_name = "WHICH", default_value = "scope", value_parser = consistency)]
    consistency: Consistency,
    /// A page that one node alone wrote moves there at a barrier
    #[arg(long)]
    migrate: bool,
    /// Notify the home of writes to pages that no other node has
    #[arg(long)]
    no_alone: bool,
    /// Pages that messages carry: normal (none), ainori1 (replies with pages), ainori2 (also
    /// barriers), ainori3 (also locks), auto (all of these and extra messages, as the best of
    /// several predictors selects), runs (replies with pages carry the pages that follow)
    #[arg(long, value_name = "POLICY", default_value = "auto", value_parser = policy)]
    rides: Policy,
    /// Links carry any number of messages at once
    #[arg(long)]
    no_contention: bool,
    /// Append the results to a file of comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw speed-ups and messages
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Write what happened in the last run as a trace for Perfetto
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Most bytes of a trace: later events are left out (0: no limit)
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = trace_limit,
          requires = "trace")]
    trace_limit: u64,
    /// Record every node of the last run, a file each (scope consistency only)
    #[arg(long, value_name = "DIR", conflicts_with = "consistency")]
    record: Option<PathBuf>,
    /// Feed recordings to the protocol's core and compare what comes of them
    #[arg(long, value_name = "DIR")]
    replay: Option<PathBuf>,
    /// Run N random programs on random clusters with faults
    #[arg(long, value_name = "N")]
    soak: Option<u64>,
    /// Measure this machine, and write its times as a cluster's
    #[arg(long, value_name = "FILE")]
    calibrate: Option<PathBuf>,
    /// Send back what comes (the other side of --calibrate)
    #[arg(long, hide = true)]
    echo: bool,
    /// The first of the random programs
    #[arg(long, value_name = "SEED", default_value = "0", requires = "soak")]
    seed: u64,
}

const NODES_MAX: i64 = 4096;
const TASKS_MAX: i64 = 1024;

/// A policy of rides, by its name.
pub fn policy(name: &str) -> Result<Policy, String> {
    let names = || Policy::ALL.map(Policy::name).join(", ");
    Policy::named(name).ok_or_else(|| format!("write one of {}", names()))
}

fn consistency(name: &str) -> Result<Consistency, String> {
    let names = || Consistency::ALL.map(Consistency::name).join(" or ");
    let known = Consistency::ALL.into_iter().find(|known| known.name() == name);
    known.ok_or_else(|| format!("write {}", names()))
}

/// Does what is asked.
pub fn sim(options: &Options) -> Result<i32, Failure> {
    if let Some(directory) = &options.replay {
        return replay(directory);
    }
    if let Some(programs) = options.soak {
        return soak(options.seed, programs);
    }
    if options.echo {
        return calibrate::echo();
    }
    if let Some(file) = &options.calibrate {
        let cluster = calibrate::measure()?;
        write(file, cluster.text().as_bytes())?;
        return Ok(0);
    }
    let mut cluster = cluster(&options.cluster)?;
    cluster.cores = options.cores.unwrap_or(cluster.cores);
    if let Some(nodes) = options.per_machine {
        cluster.network.machine_nodes = nodes;
        cluster.cores = (cluster.cores / nodes).max(1);
    }
    let Some(name) = &options.program else {
        list();
        return Ok(0);
    };
    let known: Vec<&Known> =
        known::ALL.iter().filter(|known| name == "all" || known.name == name).collect();
    if known.is_empty() {
        let names = known::ALL.map(|known| known.name).join(", ");
        return Err(Failure::ours(format!("{name}: no such program; there are {names}, and all")));
    }
    if !options.page.is_multiple_of(4096) || !(4096..=1 << 20).contains(&options.page) {
        let page = options.page;
        return Err(Failure::ours(format!(
            "--page {page}: a page is a multiple of 4096 bytes, and at most 1048576"
        )));
    }
    let mut all = Vec::new();
    for known in known {
        let mut cluster = cluster.clone();
        if let Some(seconds) = options.one_node {
            cluster.compute = paced(options, known, &cluster, seconds)?;
        }
        let program = parameters(known, &options.parameters, &cluster)?;
        all.push((known.name, run(options, known.name, program.as_ref(), &cluster)?));
    }
    if let Some(file) = &options.plot {
        plot::plot(file, &cluster, &all)?;
    }
    Ok(0)
}

fn run(
    options: &Options,
    name: &str,
    program: &dyn Program,
    cluster: &Cluster,
) -> Result<Vec<Outcome>, Failure> {
    println!("{name} on: {}", cluster.name);
    let mut runs: Vec<Outcome> = Vec::new();
    let last = options.nodes.len() - 1;
    for (at, &nodes) in options.nodes.iter().enumerate() {
        let setup = setup(options, cluster, nodes);
        let mut machine = Machine::new(&setup, program);
        let traced = options.trace.as_ref().filter(|_| at == last);
        if let Some(file) = traced {
            let out = fs::File::create(file).map_err(|error| at_file(file, &error))?;
            machine.write_trace(Trace::new(BufWriter::new(out), options.trace_limit));
        }
        if at == last && options.record.is_some() {
            machine.record();
        }
        let progress = Progress::start("sim", format!("{name} on {nodes} nodes"));
        let began = Instant::now();
        let outcome = machine.run().map_err(|error| failure(name, nodes, error))?;
        drop(progress);
        let took = began.elapsed().as_secs_f64();
        proc::error_line!("{nodes} nodes: {} events in {took:.1} s", outcome.events);
        runs.push(outcome);
        if let (Some(file), Some(trace)) = (traced, machine.take_trace()) {
            let written = trace.finish().map_err(|error| at_file(file, &error))?;
            proc::error_line!("{}", described(file, &written));
        }
        if let Some(directory) = options.record.as_ref().filter(|_| at == last) {
            fs::create_dir_all(directory).map_err(|error| at_file(directory, &error))?;
            for (node, recording) in machine.recordings().iter().enumerate() {
                write(&directory.join(record::file_name(node as u32)), recording)?;
            }
        }
    }
    let one = runs.iter().find(|run| run.nodes == 1).cloned();
    print!("{}", report::table(&runs, one.as_ref()));
    print!("{}", report::rides(&runs));
    if let Some(file) = &options.csv {
        let lines = report::csv(name, &cluster.name, &runs, one.as_ref());
        let before = fs::read_to_string(file).unwrap_or_else(|_| report::csv_head());
        write(file, (before + &lines).as_bytes())?;
    }
    Ok(runs)
}

/// Reads the limit of a trace.
fn trace_limit(text: &str) -> Result<u64, String> {
    match text {
        "0" => Ok(u64::MAX),
        _ => pvas::parse_size(text).ok_or_else(|| "not a size (such as 32M)".to_owned()),
    }
}

/// Describes a trace that was written.
fn described(file: &Path, written: &Written) -> String {
    let Written { bytes, events, left_out, cut_at_us } = *written;
    let mut line = format!("{}: {}, {events} events", file.display(), human(bytes));
    if let Some(from) = cut_at_us {
        let from = from / 1000.0;
        line += &format!(
            "; {left_out} events from {from:.3} ms on are left out (--trace-limit has the limit)"
        );
    }
    line
}

fn setup(options: &Options, cluster: &Cluster, nodes: u32) -> Setup {
    Setup {
        cluster: cluster.clone(),
        nodes,
        tasks: options.tasks,
        page_bytes: options.page,
        consistency: options.consistency,
        copies_max: u64::MAX,
        migrate: options.migrate,
        alone: !options.no_alone,
        rides: options.rides,
        contention: !options.no_contention,
    }
}

/// Returns the inner-loop times with which a program takes `seconds` on one node. All other times
/// come from the cluster's file.
fn paced(
    options: &Options,
    known: &Known,
    cluster: &Cluster,
    seconds: f64,
) -> Result<Compute, Failure> {
    let at = |factor| {
        let compute = cluster.compute.times(factor);
        let cluster = Cluster { compute: compute.clone(), ..cluster.clone() };
        let program = parameters(known, &options.parameters, &cluster)?;
        let outcome = Machine::new(&setup(options, &cluster, 1), program.as_ref()).run();
        let outcome = outcome.map_err(|error| failure(known.name, 1, error))?;
        Ok::<_, Failure>((outcome.time_ns as f64 / 1e9, compute))
    };
    let ((rest, _), (whole, _)) = (at(0.0)?, at(1.0)?);
    match (seconds - rest) / (whole - rest) {
        factor if factor.is_finite() && factor >= 0.0 => Ok(at(factor)?.1),
        _ => Err(Failure::ours(format!(
            "--one-node {seconds}: without its inner loop {} takes {rest} s on one node",
            known.name
        ))),
    }
}

/// Returns the program with the parameters of the command line.
fn parameters(
    known: &Known,
    words: &[String],
    cluster: &Cluster,
) -> Result<Box<dyn Program>, Failure> {
    let mut table = toml::Table::new();
    let names = || known.defaults().keys().cloned().collect::<Vec<_>>().join(", ");
    for word in words {
        let number = word.split_once('=').and_then(|(name, number)| {
            Some((name.to_string(), toml::Value::Integer(number.parse().ok()?)))
        });
        let Some((name, number)) = number else {
            return Err(Failure::ours(format!("{word}: write NAME=NUMBER; names are {}", names())));
        };
        table.insert(name, number);
    }
    known.make(&table, cluster).map_err(|why| {
        Failure::ours(format!("{}: {why}; its parameters are {}", known.name, names()))
    })
}

fn list() {
    for known in known::ALL {
        let defaults = known.defaults();
        let defaults = defaults.iter().map(|(name, value)| format!("{name}={value}"));
        println!("{:<6} {}", known.name, known.about);
        println!("       {}", defaults.collect::<Vec<_>>().join(" "));
    }
    println!("clusters: {}", Cluster::names().collect::<Vec<_>>().join(", "));
}

fn cluster(name: &str) -> Result<Cluster, Failure> {
    if let Some(cluster) = Cluster::known(name) {
        return Ok(cluster);
    }
    let text = fs::read_to_string(name).map_err(|error| {
        let names = Cluster::names().collect::<Vec<_>>().join(", ");
        Failure::ours(format!("{name}: neither a cluster ({names}) nor a file: {error}"))
    })?;
    Cluster::parse(&text).map_err(|why| Failure::ours(format!("{name}: {why}")))
}

fn soak(seed: u64, programs: u64) -> Result<i32, Failure> {
    let began = Instant::now();
    let next = AtomicU64::new(seed);
    // The first that goes wrong: those before it are still brought to their end.
    let end = AtomicU64::new(seed.saturating_add(programs));
    let wrong = Mutex::new(None);
    thread_local!(static SEED: Cell<u64> = const { Cell::new(0) });
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let seed = SEED.get();
        proc::error_line!("nagaya: random program {seed} (--soak 1 --seed {seed}) panics:");
        hook(panic);
    }));
    let run = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end.load(Ordering::Relaxed) {
                return;
            }
            SEED.set(seed);
            let raced = || if seed.is_multiple_of(4) { racing::run(seed) } else { Ok(()) };
            if let Err(what) = sim::soak::run(seed).and_then(|()| raced()) {
                let mut wrong = wrong.lock().expect("nobody panics with it");
                if end.fetch_min(seed, Ordering::Relaxed) > seed {
                    *wrong = Some((seed, what));
                }
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    thread::scope(|scope| {
        (0..cores).for_each(|_| {
            scope.spawn(run);
        });
    });
    if let Some((seed, what)) = wrong.into_inner().expect("nobody panics with it") {
        let what = format!("random program {seed} (--soak 1 --seed {seed}): {what}");
        return Err(Failure::ours(what));
    }
    let seconds = began.elapsed().as_secs_f64();
    proc::error_line!(
        "{cores} at once, in {seconds:.0} s: {:.0} a second",
        programs as f64 / seconds
    );
    println!("{programs} random programs from {seed} on: all as promised");
    Ok(0)
}

fn replay(directory: &Path) -> Result<i32, Failure> {
    let (mut steps, mut nodes) = (0, 0);
    for node in 0.. {
        let file = directory.join(record::file_name(node));
        let bytes = match fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && nodes > 0 => break,
            Err(error) => return Err(at_file(&file, &error)),
        };
        steps += record::replay(&bytes).map_err(|differs| {
            let why = match differs {
                Differs::Head => "is not a recording of this version".to_string(),
                Differs::Broken(step) => format!("cannot be read after {step} steps"),
                Differs::Impossible(step, what) => {
                    format!("has an impossible event in step {step}: {:?}", what.event)
                }
                Differs::Step(step, both) => format!(
                    "differs in step {step}: {:?} gave {:?}, and now gives {:?}",
                    both.0.event, both.0.outcome, both.1
                ),
            };
            Failure::ours(format!("{} {why}", file.display()))
        })?;
        nodes += 1;
    }
    println!("{nodes} nodes, {steps} steps: the same");
    Ok(0)
}

fn failure(name: &str, nodes: u32, error: RunError) -> Failure {
    let why = match error {
        RunError::Violation(why) => why,
        RunError::Deadlock(tasks) => {
            let (node, task, what) = &tasks[0];
            format!(
                "{} tasks wait forever, such as task {task} of node {node}: {what}",
                tasks.len()
            )
        }
    };
    Failure::ours(format!("{name} on {nodes} nodes: {why}"))
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    fs::write(file, bytes).map_err(|error| at_file(file, &error))
}

fn at_file(file: &Path, error: &std::io::Error) -> Failure {
    Failure::ours(format!("{}: {error}", file.display()))
}
