//! The command `nagaya`: one file for each subcommand.
//!
//! There is no Rust runtime in front of `main`. It would ignore SIGPIPE and open missing standard
//! descriptors, and started programs would inherit both.
#![no_main]

mod bind;
mod completions;
mod delegatee;
mod dsm;
mod exec;
mod fcp;
mod gdb;
mod info;
mod itself;
mod jobs;
mod kernel_copy;
mod limits;
mod maps;
mod messages;
mod mpi;
mod oshcc;
mod oshrun;
mod program;
mod progress;
mod ps;
mod pvmd;
mod run;
mod server;
mod sim;
mod span;
mod symbols;
mod r#try;
mod tune;

use std::ffi::{OsString, c_char, c_int};
use std::path::Path;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};
use nagaya_server::Failure;

/// One virtual address space for parallel programs.
///
/// Programs run as tasks: processes that share one address space, each in its own
/// segment. See nagaya(1).
#[derive(Debug, Parser)]
#[command(name = "nagaya", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

// Deferred: clap's description of all subcommands at once takes 80 KiB of stack.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum Command {
    /// Run N tasks of a program in one address space
    Run(run::Options),
    /// Run a program as a task of this job, under mpirun, srun or another launcher
    Exec(exec::Options),
    /// List jobs and tasks
    Ps(ps::Options),
    /// Show the segments of a job, with the owner and the mappings of each
    Maps(maps::Options),
    /// Attach gdb to a task, with the symbols of all its images
    Gdb(gdb::Options),
    /// Show version, build, the features that this system allows, and the active mechanism
    Info(info::Options),
    /// Start a parallel virtual machine (PVM), or attach to one, and manage it
    Pvm(console::Options),
    /// Run PVM's daemon on this host
    Pvmd(pvmd::Options),
    /// Run a job without and with Nagaya, and say whether it is faster
    Try(r#try::Options),
    /// Measure which loop copies messages fastest on this processor
    Tune(tune::Options),
    /// Run programs on simulated clusters, in virtual time
    Sim(sim::Options),
    /// Report what a run with shared memory between nodes has sent, and why
    Dsm(dsm::Options),
    /// Run one program with threads on several machines, in one memory
    Span(span::Options),
    /// Compile and link an OpenSHMEM program
    Oshcc(oshcc::Options),
    /// Start the PEs of an OpenSHMEM program
    Oshrun(oshrun::Options),
    /// Print a completion script for a shell
    Completions(completions::Options),
    /// Print the help of nagaya or of a command
    Help(Help),
    /// Serve a job (started by `nagaya exec`)
    #[command(hide = true)]
    Server(server::Options),
    /// Do I/O for a job's tasks (started by the node server)
    #[command(hide = true)]
    Delegatee(delegatee::Options),
}

/// Print the help of nagaya or of a command
#[derive(Debug, clap::Args)]
struct Help {
    /// The command
    command: Option<OsString>,
}

impl Help {
    /// The command line that prints this help.
    fn command_line(self) -> Vec<OsString> {
        let words = [Some("nagaya".into()), self.command, Some("--help".into())];
        words.into_iter().flatten().collect()
    }
}

/// Returns the command line. The name `pvmd3` or `pvmd` stands for `nagaya pvmd`, and the name
/// `pvm` for a console that prints as stock PVM's does. The names `oshcc`, `oshc++` and `oshrun`
/// stand for commands of OpenSHMEM; a compiler has options of the same names as ours.
fn command_line() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let name = words.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let meaning: &[&str] = match name.to_str() {
        Some("pvmd3" | "pvmd") => &["nagaya", "pvmd"],
        Some("pvm") => &["nagaya", "pvm", "--echo"],
        Some("oshcc") => &["nagaya", "oshcc", "--"],
        Some("oshc++" | "oshcxx" | "oshCC") => &["nagaya", "oshcc", "--c++", "--"],
        Some("oshrun") => &["nagaya", "oshrun"],
        _ => return words,
    };
    words.splice(..1, meaning.iter().map(OsString::from));
    words
}

/// Clap's error message as one line: the error, all tips, and which help to read.
fn one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let (message, usage) = text.split_once("Usage:").unwrap_or((text, ""));
    let message = message.split("For more information").next().unwrap_or_default();
    let paragraphs = message.split("\n\n").map(|paragraph| {
        let words: Vec<&str> = paragraph.split_whitespace().collect();
        words.join(" ")
    });
    let paragraphs: Vec<String> = paragraphs.filter(|paragraph| !paragraph.is_empty()).collect();
    // "nagaya span [OPTIONS] …" names the command.
    let is_name = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase());
    let command: Vec<&str> = usage.split_whitespace().take_while(is_name).collect();
    let command = if command.is_empty() { "nagaya".into() } else { command.join(" ") };
    format!("{} (see {command} --help)", paragraphs.join("; "))
}

/// Parses the command line. `Err` is the status to exit with: help or an error was printed.
fn parse(words: Vec<OsString>) -> Result<Command, c_int> {
    let error = match Arguments::try_parse_from(words) {
        Ok(Arguments { command: Command::Help(help) }) => return parse(help.command_line()),
        Ok(Arguments { command }) => return Ok(command),
        Err(error) => error,
    };
    if !error.use_stderr() {
        let _ = error.print(); // --help, --version
        return Err(0);
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
    } else {
        proc::error_line!("nagaya: {}", one_line(&error.render().to_string()));
    }
    Err(125)
}

/// # Safety
/// Called by the C runtime.
#[unsafe(no_mangle)]
unsafe extern "C" fn main(_argc: c_int, argv: *const *const c_char) -> c_int {
    // SAFETY: the arguments as they came.
    unsafe { itself::execute(argv) };
    let command = match parse(command_line()) {
        Ok(command) => command,
        Err(status) => return status,
    };
    let result = match command {
        Command::Run(options) => run::run(options),
        Command::Exec(options) => exec::exec(options),
        Command::Ps(options) => ps::ps(&options),
        Command::Maps(options) => maps::maps(&options),
        Command::Gdb(options) => gdb::gdb(&options),
        Command::Info(options) => info::info(&options),
        Command::Pvm(options) => console::run(&options),
        Command::Pvmd(options) => pvmd::pvmd(&options),
        Command::Try(options) => r#try::run(&options),
        Command::Tune(options) => tune::tune(&options),
        Command::Sim(options) => sim::sim(&options),
        Command::Dsm(options) => dsm::dsm(&options),
        Command::Span(options) => span::span(&options),
        Command::Oshcc(options) => oshcc::oshcc(&options),
        Command::Oshrun(options) => oshrun::oshrun(&options),
        Command::Completions(options) => completions::completions(&options, Arguments::command()),
        Command::Help(_) => unreachable!("parse() prints help"),
        Command::Server(options) => server::server(options),
        Command::Delegatee(options) => delegatee::delegatee(&options),
    };
    result.unwrap_or_else(|Failure { message, status }| {
        // An empty message: a child process of Nagaya has printed the error already.
        if !message.is_empty() {
            proc::error_line!("nagaya: {message}");
        }
        status
    })
}
