//! `nagaya-bench` measures the gains and costs of Nagaya beside its peers.
//!
//! Every figure is printed with that of the peer, and their ratio. Both come from alternating runs,
//! so that a busy machine disturbs both alike. Each topic is a file: [`pingpong`] (with
//! [`netpipe`]), [`collectives`], [`footprint`], [`copy`], [`spawn`], [`syscall`], [`pagetables`],
//! [`memop`], [`net`], [`fcp`], [`ofi`], [`delegate`], [`domains`], [`pvm`], [`dsm`], [`span`],
//! [`ainori`], [`late`], [`shmem`], [`kernels`], [`apps`], [`job`]. [`modes`] verifies that the
//! peers transfer messages as their settings say. [`compare`] prints two sets of results beside
//! each other. The C programs in `programs/` measure. This program compiles them, runs them
//! alternately, and reports. `README.md` explains the results.

mod ainori;
mod apps;
mod collectives;
mod compare;
mod copy;
mod cores;
mod delegate;
mod domains;
mod dsm;
mod failure;
mod fcp;
mod footprint;
mod forks;
mod gains;
mod job;
mod kernels;
mod late;
mod launch;
mod machine;
mod memop;
mod mode;
mod modes;
mod mpi;
mod namespaces;
mod net;
mod netpipe;
mod ofi;
mod pagetables;
mod pingpong;
mod programs;
mod progress;
mod pvm;
mod ranks;
mod results;
mod settings;
mod shmem;
mod sizes;
mod span;
mod spawn;
mod spread;
mod starts;
mod steps;
mod syscall;
mod table;
mod target;
mod turns;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    /// Directory for CSV files, figures and compiled programs
    #[arg(long, global = true, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// Smoke test: a few seconds per topic; its figures are meaningless
    #[arg(long, global = true)]
    quick: bool,
    #[command(subcommand)]
    topic: Topic,
}

/// The topics.
#[derive(Subcommand)]
enum Topic {
    /// MPI messages between two ranks, by every mode of each MPI, and under Nagaya
    Pingpong(pingpong::Options),
    /// MPI's collective operations, plain and under Nagaya
    Collectives(collectives::Options),
    /// Messages between nodes: each carrier beside its limit
    Net(net::Options),
    /// Memory per rank: private memory, shared buffers, page tables
    Footprint(footprint::Options),
    /// Copy loops: one core copies data that another core has in its cache
    Copy(copy::Options),
    /// Verify the modes of message transfer by counting copies of the kernel and of Nagaya
    Modes(modes::Options),
    /// posix_spawn and pvas_spawn
    Spawn(spawn::Options),
    /// System calls through the gate and plain ones
    Syscall(syscall::Options),
    /// Page tables of tasks that read each other's memory, and of processes that map it
    Pagetables(pagetables::Options),
    /// Pages of another process: by ptrace, process_vm_* and libmemop; and fetched over TCP
    Memop(memop::Options),
    /// FCP's protocols beside plain shared memory, sockets and the limits of the machine
    Fcp(fcp::Options),
    /// Messages through libfabric: Nagaya's provider beside libfabric's for shared memory
    Ofi(ofi::Options),
    /// Delegation between two tasks: round trips, and delegated and direct writes
    Delegate(delegate::Options),
    /// Reads of another domain's memory, and page faults of many tasks in one and several domains
    Domains(domains::Options),
    /// Messages, groups and spawning of PVM beside stock PVM
    Pvm(pvm::Options),
    /// Shared memory between nodes: single operations, and messages of programs
    Dsm(dsm::Options),
    /// One process over two nodes: single operations, and speed-ups of programs
    Span(span::Options),
    /// Figures of the Ainori paper in the simulator, and page messages of real runs
    Ainori(ainori::Options),
    /// Sends to a rank that has posted the receive, but computes
    Late(late::Options),
    /// Single operations of OpenSHMEM, beside other libraries and the limits of the machine
    Shmem(shmem::Options),
    /// Programs that spend much of their time in messages, with each MPI's defaults
    Kernels(kernels::Options),
    /// Applications with and without Nagaya
    Apps(apps::Options),
    /// Any MPI program with and without Nagaya, such as IMB, OSU or NAS
    Job(job::Options),
    /// Two sets of results beside each other
    Compare(compare::Options),
    /// All topics
    All,
    /// The ping-pong with Debian's MPIs, with CMA and in a space; takes less than a minute
    Demo,
}

fn main() -> ExitCode {
    // Nodes of one host stand in for hosts with a network between them.
    if std::env::var_os("NAGAYA_NET").is_none() {
        // SAFETY: no other thread has been started, so none reads the environment.
        unsafe { std::env::set_var("NAGAYA_NET", "tcp") };
    }
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
    // The other process of `net`, whose output is its address.
    if let Topic::Net(options) = &arguments.topic
        && let Some(carriers) = options.serves()
    {
        return net::serve(carriers);
    }
    if let Topic::Compare(options) = &arguments.topic {
        return compare::run(options);
    }
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

/// Runs one topic with its options.
fn one(topic: Topic, quick: bool, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    macro_rules! adjusted {
        ($options:expr) => {
            &(if quick { $options.quick() } else { $options })
        };
    }
    match topic {
        Topic::Pingpong(options) => pingpong::run(adjusted!(options), nagaya, out),
        Topic::Collectives(options) => collectives::run(adjusted!(options), nagaya, out),
        Topic::Net(options) => net::run(adjusted!(options), out),
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
        Topic::Late(options) => late::run(adjusted!(options), nagaya, out),
        Topic::Shmem(options) => shmem::run(adjusted!(options), nagaya, out),
        Topic::Kernels(options) => kernels::run(adjusted!(options), nagaya, out),
        Topic::Job(options) => job::run(adjusted!(options), nagaya, out),
        Topic::Apps(options) => apps::run(adjusted!(options), nagaya, out),
        Topic::Compare(options) => compare::run(&options),
        Topic::Demo => pingpong::run(adjusted!(pingpong::Options::demo()), nagaya, out),
        Topic::All => all(quick, nagaya, out),
    }
}

/// Runs every topic with its defaults. A failing topic does not keep the others from running.
fn all(quick: bool, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let topics = [
        ("modes", Topic::Modes(modes::Options::full())),
        ("copy", Topic::Copy(copy::Options::full())),
        ("syscall", Topic::Syscall(syscall::Options::full())),
        ("spawn", Topic::Spawn(spawn::Options::full())),
        ("pagetables", Topic::Pagetables(pagetables::Options::full())),
        ("footprint", Topic::Footprint(footprint::Options::full())),
        ("collectives", Topic::Collectives(collectives::Options::full())),
        ("net", Topic::Net(net::Options::full())),
        ("memop", Topic::Memop(memop::Options::full())),
        ("fcp", Topic::Fcp(fcp::Options::full())),
        ("ofi", Topic::Ofi(ofi::Options::full())),
        ("delegate", Topic::Delegate(delegate::Options::full())),
        ("domains", Topic::Domains(domains::Options::full())),
        ("pvm", Topic::Pvm(pvm::Options::full())),
        ("dsm", Topic::Dsm(dsm::Options::full())),
        ("span", Topic::Span(span::Options::full())),
        ("ainori", Topic::Ainori(ainori::Options::full())),
        ("late", Topic::Late(late::Options::full())),
        ("shmem", Topic::Shmem(shmem::Options::full())),
        ("kernels", Topic::Kernels(kernels::Options::full())),
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
