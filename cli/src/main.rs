//! The command `nagaya`: one file a subcommand.
//!
//! There is no Rust runtime in front of `main`: it would ignore SIGPIPE and open missing
//! standard descriptors, and the programs that we start inherit both.
#![no_main]

mod delegatee;
mod domains;
mod dsm;
mod exec;
mod fcp;
mod gdb;
mod hosts;
mod info;
mod machines;
mod maps;
mod mpi;
mod nodes;
mod pool;
mod program;
mod ps;
mod pvmd;
mod run;
mod server;
mod sim;
mod span;
mod symbols;
mod tune;

use std::ffi::{OsString, c_char, c_int};
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use nagaya_server::Failure;

/// One virtual address space for parallel programs.
///
/// Programs run as tasks: processes that share one address space, each in a segment of
/// its own. See nagaya(1).
#[derive(Debug, Parser)]
#[command(name = "nagaya", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

// Deferred: what clap makes of all of them at once takes 80 KiB of stack.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum Command {
    /// Run N tasks of a program in one space
    Run(run::Options),
    /// Run a program as a task of this job's space; for use under mpirun and the like
    Exec(exec::Options),
    /// List jobs and tasks
    Ps(ps::Options),
    /// Show which task owns which segment, and what lies in it
    Maps(maps::Options),
    /// Attach gdb to a task, with the symbols of all its images
    Gdb(gdb::Options),
    /// Show version, build, what this system allows, and which mechanism is active
    Info(info::Options),
    /// PVM's console: look after hosts and tasks of a virtual machine
    Pvm(console::Options),
    /// Run PVM's daemon on this host
    Pvmd(pvmd::Options),
    /// Measure which loop copies messages fastest on this processor
    Tune(tune::Options),
    /// Run programs on simulated clusters, in virtual time
    Sim(sim::Options),
    /// Say what runs with shared memory between nodes have sent, and why
    Dsm(dsm::Options),
    /// Run a program whose threads use several machines
    Span(span::Options),
    /// Serve a job (started by `nagaya exec`)
    #[command(hide = true)]
    Server(server::Options),
    /// Do I/O for a job's tasks (started by the node server)
    #[command(hide = true)]
    Delegatee(delegatee::Options),
}

/// The command line; who calls us `pvmd3` or `pvmd` means `nagaya pvmd`, and who calls us `pvm`
/// means a console that talks as stock PVM's does.
fn command_line() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let name = words.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let meaning: &[&str] = match name.to_str() {
        Some("pvmd3" | "pvmd") => &["nagaya", "pvmd"],
        Some("pvm") => &["nagaya", "pvm", "--echo"],
        _ => return words,
    };
    words.splice(..1, meaning.iter().map(OsString::from));
    words
}

/// What clap says of a wrong command line, without its usage.
fn one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let lines: Vec<&str> = text.lines().map(str::trim).take_while(|l| !l.is_empty()).collect();
    format!("{} (see --help)", lines.join(" "))
}

/// # Safety
/// Called by the C runtime.
#[unsafe(no_mangle)]
unsafe extern "C" fn main(_argc: c_int, _argv: *const *const c_char) -> c_int {
    let arguments = match Arguments::try_parse_from(command_line()) {
        Ok(arguments) => arguments,
        Err(error) => {
            if !error.use_stderr() {
                let _ = error.print(); // --help, --version
                return 0;
            }
            if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
                let _ = error.print();
                return 125;
            }
            complain(&one_line(&error.render().to_string()));
            return 125;
        }
    };
    let result = match arguments.command {
        Command::Run(options) => run::run(options),
        Command::Exec(options) => exec::exec(options),
        Command::Ps(options) => ps::ps(&options),
        Command::Maps(options) => maps::maps(&options),
        Command::Gdb(options) => gdb::gdb(&options),
        Command::Info(options) => info::info(&options),
        Command::Pvm(options) => console::run(&options),
        Command::Pvmd(options) => pvmd::pvmd(&options),
        Command::Tune(options) => tune::tune(&options),
        Command::Sim(options) => sim::sim(&options),
        Command::Dsm(options) => dsm::dsm(&options),
        Command::Span(options) => span::span(&options),
        Command::Server(options) => server::server(options),
        Command::Delegatee(options) => delegatee::delegatee(&options),
    };
    result.unwrap_or_else(|Failure { message, status }| {
        // Empty: a process of ours has said it.
        if !message.is_empty() {
            complain(&message);
        }
        status
    })
}

/// Says it in one write: others may say theirs at the same time.
fn complain(message: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(format!("nagaya: {message}\n").as_bytes());
}
