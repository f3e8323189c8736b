//! `nagaya-bench`: what Nagaya gains and what it costs, measured beside its peers.
//!
//! Every figure is printed with the peer's and the ratio of the two, both taken from the
//! same run in turns, so that a busy machine harms both alike. One file a topic:
//! [`pingpong`] (with [`netpipe`]), [`spawn`], [`syscall`], [`pagetables`], [`apps`]. The measuring
//! itself is done by the C programs in `programs/`; this program compiles them, runs them
//! in turns, and reports. `README.md` says how to read the result.

mod apps;
mod cores;
mod failure;
mod launch;
mod machine;
mod mpi;
mod netpipe;
mod pagetables;
mod pingpong;
mod plot;
mod programs;
mod sizes;
mod spawn;
mod spread;
mod syscall;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Failure;
use launch::Nagaya;

/// Measures Nagaya beside its peers.
#[derive(Parser)]
#[command(name = "nagaya-bench", version)]
struct Arguments {
    /// The nagaya command [default: $NAGAYA, else the one beside this program, else PATH]
    #[arg(long, global = true, value_name = "PATH")]
    nagaya: Option<PathBuf>,
    /// Directory of libpvas.so [default: $NAGAYA_LIB, else found from the nagaya command]
    #[arg(long, global = true, value_name = "DIR")]
    lib: Option<PathBuf>,
    /// Where CSV files, plots and compiled programs go
    #[arg(long, global = true, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    #[command(subcommand)]
    topic: Topic,
}

/// What to measure.
#[derive(Subcommand)]
enum Topic {
    /// MPI messages between two ranks: plain, and under `nagaya exec`
    Pingpong(pingpong::Options),
    /// posix_spawn against pvas_spawn
    Spawn(spawn::Options),
    /// A system call through the gate against a plain one
    Syscall(syscall::Options),
    /// Page tables of tasks that read each other, against processes that map each other
    Pagetables(pagetables::Options),
    /// Applications of others, without us and with us
    Apps(apps::Options),
    /// All of these
    All,
    /// Only the main job, under a minute: our ping-pong, Open MPI and MPICH, both ways
    Demo,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("nagaya-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let out = &arguments.out;
    std::fs::create_dir_all(out)
        .map_err(|error| Failure::new(format!("{}: cannot be made: {error}", out.display())))?;
    let out =
        &out.canonicalize().map_err(|error| Failure::new(format!("{}: {error}", out.display())))?;
    let nagaya = &Nagaya::find(arguments.nagaya.as_deref(), arguments.lib.as_deref())?;
    machine::print_facts(nagaya, out)?;
    match &arguments.topic {
        Topic::Pingpong(options) => pingpong::run(options, nagaya, out),
        Topic::Spawn(options) => spawn::run(options, nagaya, out),
        Topic::Syscall(options) => syscall::run(options, nagaya, out),
        Topic::Pagetables(options) => pagetables::run(options, nagaya, out),
        Topic::Apps(options) => apps::run(options, nagaya, out),
        Topic::Demo => pingpong::run(&pingpong::Options::demo(), nagaya, out),
        Topic::All => all(nagaya, out),
    }
}

/// Every topic with its defaults. One that fails does not keep the others from running.
fn all(nagaya: &Nagaya, out: &std::path::Path) -> Result<(), Failure> {
    let results = [
        ("syscall", syscall::run(&syscall::Options::default(), nagaya, out)),
        ("spawn", spawn::run(&spawn::Options::default(), nagaya, out)),
        ("pagetables", pagetables::run(&pagetables::Options::default(), nagaya, out)),
        ("apps", apps::run(&apps::Options::default(), nagaya, out)),
        ("pingpong", pingpong::run(&pingpong::Options::default(), nagaya, out)),
    ];
    let mut failed = Vec::new();
    for (topic, result) in results {
        if let Err(failure) = result {
            eprintln!("nagaya-bench: {topic}: {failure}");
            failed.push(topic);
        }
    }
    match failed.as_slice() {
        [] => Ok(()),
        topics => Err(Failure::new(format!("not measured: {}", topics.join(", ")))),
    }
}
