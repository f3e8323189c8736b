//! `nagaya-bench`: what Nagaya gains and what it costs, measured beside its peers.
//!
//! Every figure is printed with the peer's and the ratio of the two, both taken from the
//! same run in turns, so that a busy machine harms both alike. One file a topic:
//! [`pingpong`] (with [`netpipe`]), [`collectives`], [`footprint`], [`copy`], [`spawn`],
//! [`syscall`], [`pagetables`], [`memop`], [`fcp`],
//! [`delegate`], [`domains`], [`pvm`], [`dsm`], [`span`], [`ainori`], [`apps`]; [`modes`] checks
//! that the peers do what their names say. The measuring itself is done by the C programs in
//! `programs/`; this program compiles them, runs them in turns, and reports. `README.md` says how
//! to read the result.

mod ainori;
mod apps;
mod collectives;
mod copy;
mod cores;
mod delegate;
mod domains;
mod dsm;
mod failure;
mod fcp;
mod footprint;
mod launch;
mod machine;
mod memop;
mod mode;
mod modes;
mod mpi;
mod netpipe;
mod ofi;
mod pagetables;
mod pingpong;
mod programs;
mod progress;
mod pvm;
mod results;
mod sizes;
mod span;
mod spawn;
mod spread;
mod steps;
mod syscall;
mod table;
mod target;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use ::figure;
use failure::Failure;
use launch::Nagaya;
use progress::progress;

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
    /// A smoke run: a few seconds each, its figures mean nothing
    #[arg(long, global = true)]
    quick: bool,
    #[command(subcommand)]
    topic: Topic,
}

/// What to measure.
#[derive(Subcommand)]
enum Topic {
    /// MPI messages between two ranks, by every way that each MPI has, and under Nagaya
    Pingpong(pingpong::Options),
    /// MPI's collective operations, plain and under Nagaya
    Collectives(collectives::Options),
    /// Memory a rank: private, shared buffers, page tables
    Footprint(footprint::Options),
    /// Copy loops: one core copies what another one holds
    Copy(copy::Options),
    /// Whether each way of a message does what its name says: calls into the kernel counted
    Modes(modes::Options),
    /// posix_spawn against pvas_spawn
    Spawn(spawn::Options),
    /// A system call through the gate against a plain one
    Syscall(syscall::Options),
    /// Page tables of tasks that read each other, against processes that map each other
    Pagetables(pagetables::Options),
    /// Pages of another process: by ptrace, by the kernel's calls, by libmemop; and fetched
    Memop(memop::Options),
    /// FCP's protocols, plain shared memory, sockets; and the machine's limits
    Fcp(fcp::Options),
    /// Messages through libfabric: our provider beside its own for shared memory
    Ofi(ofi::Options),
    /// Delegation between two tasks: requests beside a cache line, writes beside direct ones
    Delegate(delegate::Options),
    /// Another domain's memory read, and page faults of many tasks, in one domain and in several
    Domains(domains::Options),
    /// PVM's messages, groups and spawning beside stock PVM
    Pvm(pvm::Options),
    /// Shared memory between nodes: single steps, and what programs send
    Dsm(dsm::Options),
    /// One process over two nodes: single steps, and programs beside one processor
    Span(span::Options),
    /// The Ainori paper's figures in the simulator, and page messages of real runs
    Ainori(ainori::Options),
    /// Applications of others, without us and with us
    Apps(apps::Options),
    /// All of these
    All,
    /// Only the main job, under a minute: our ping-pong, Debian's MPIs, CMA and space
    Demo,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("nagaya-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    let out = &arguments.out;
    std::fs::create_dir_all(out)
        .map_err(|error| Failure::new(format!("{}: cannot be made: {error}", out.display())))?;
    let out =
        &out.canonicalize().map_err(|error| Failure::new(format!("{}: {error}", out.display())))?;
    let nagaya = &Nagaya::find(arguments.nagaya.as_deref(), arguments.lib.as_deref())?;
    machine::print_facts(nagaya, out)?;
    match arguments.topic {
        Topic::All => all(arguments.quick, nagaya, out),
        topic => one(topic, arguments.quick, nagaya, out),
    }
}

/// One topic, with what options it was given.
fn one(topic: Topic, quick: bool, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    macro_rules! adjusted {
        ($options:expr) => {
            &(if quick { $options.quick() } else { $options })
        };
    }
    match topic {
        Topic::Pingpong(options) => pingpong::run(adjusted!(options), nagaya, out),
        Topic::Collectives(options) => collectives::run(adjusted!(options), nagaya, out),
        Topic::Footprint(options) => footprint::run(adjusted!(options), nagaya, out),
        Topic::Copy(options) => copy::run(adjusted!(options), out),
        Topic::Modes(options) => modes::run(&options, nagaya, out),
        Topic::Spawn(options) => spawn::run(adjusted!(options), nagaya, out),
        Topic::Syscall(options) => syscall::run(adjusted!(options), nagaya, out),
        Topic::Pagetables(options) => pagetables::run(adjusted!(options), nagaya, out),
        Topic::Memop(options) => memop::run(adjusted!(options), nagaya, out),
        Topic::Fcp(options) => fcp::run(adjusted!(options), nagaya, out),
        Topic::Ofi(options) => ofi::run(adjusted!(options), nagaya, out),
        Topic::Delegate(options) => delegate::run(adjusted!(options), nagaya, out),
        Topic::Domains(options) => domains::run(adjusted!(options), nagaya, out),
        Topic::Pvm(options) => pvm::run(adjusted!(options), nagaya, out),
        Topic::Dsm(options) => dsm::run(adjusted!(options), nagaya, out),
        Topic::Span(options) => span::run(adjusted!(options), nagaya, out),
        Topic::Ainori(options) => ainori::run(adjusted!(options), nagaya, out),
        Topic::Apps(options) => apps::run(adjusted!(options), nagaya, out),
        Topic::Demo => pingpong::run(adjusted!(pingpong::Options::demo()), nagaya, out),
        Topic::All => all(quick, nagaya, out),
    }
}

/// Every topic with its defaults. One that fails does not keep the others from running.
fn all(quick: bool, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let topics = [
        ("modes", Topic::Modes(modes::Options::full())),
        ("copy", Topic::Copy(copy::Options::full())),
        ("syscall", Topic::Syscall(syscall::Options::full())),
        ("spawn", Topic::Spawn(spawn::Options::full())),
        ("pagetables", Topic::Pagetables(pagetables::Options::full())),
        ("footprint", Topic::Footprint(footprint::Options::full())),
        ("collectives", Topic::Collectives(collectives::Options::full())),
        ("memop", Topic::Memop(memop::Options::full())),
        ("fcp", Topic::Fcp(fcp::Options::full())),
        ("ofi", Topic::Ofi(ofi::Options::full())),
        ("delegate", Topic::Delegate(delegate::Options::full())),
        ("domains", Topic::Domains(domains::Options::full())),
        ("pvm", Topic::Pvm(pvm::Options::full())),
        ("dsm", Topic::Dsm(dsm::Options::full())),
        ("span", Topic::Span(span::Options::full())),
        ("ainori", Topic::Ainori(ainori::Options::full())),
        ("apps", Topic::Apps(apps::Options::full())),
        ("pingpong", Topic::Pingpong(pingpong::Options::full())),
        ("pingpong over libfabric", Topic::Pingpong(pingpong::Options::over_the_provider())),
    ];
    let mut failed = Vec::new();
    for (name, topic) in topics {
        progress(&format!("{name} …"));
        if let Err(failure) = one(topic, quick, nagaya, out) {
            eprintln!("nagaya-bench: {name}: {failure}");
            failed.push(name);
        }
    }
    match failed.as_slice() {
        [] => Ok(()),
        names => Err(Failure::new(format!("not measured in full: {}", names.join(", ")))),
    }
}
