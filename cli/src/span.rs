//! `nagaya span`: a program whose threads run on several machines. Each node is a process here or
//! on another host. `launch` starts it and sends it the addresses of the other nodes.

mod report;

use std::ffi::OsString;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use launch::control::Control;
use launch::hosts::{self, Host};
use launch::messages::Refusal;
use launch::nodes::Nodes;
use launch::processors;
use launch::signals::Signals;
use nagaya_server::Failure;
use span::place::Policy;
use span::talk::Program;

use crate::bind::{Bind, shares};
use crate::program::{self, unstarted};

/// The most nodes.
const NODES_MAX: usize = 64;

const EXAMPLES: &str = "\
Examples:
  nagaya span -H a,b xz -T8 -k file          threads of xz on the hosts a and b
  nagaya span --hostfile hosts ./app         one node on each host of the file
  nagaya span --nodes 2 --report ./app       try it here, with a report
  nagaya span --place pack -H a:4,b:4 ./app  fill the CPUs of a, then of b
  nagaya span --move 4711:4720=1             move a thread of a running program";

const NODES: &str = "Nodes";
const THREADS: &str = "Threads";
const MEMORY: &str = "Memory and report";

/// Run one program with threads on several machines, in one memory
///
/// The program is unmodified. With --nodes, the nodes are processes on this machine. See
/// nagaya-span(1).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Number of nodes on this machine; each is a process
    #[arg(long, value_name = "K", default_value_t = 1, help_heading = NODES,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    nodes: u32,
    /// Start a node on each of these hosts by ssh (or NAGAYA_RSH); HOST:N uses only N processors
    #[arg(short = 'H', long = "host", visible_alias = "hosts", value_name = "HOST[:N],...",
          conflicts_with_all = ["nodes", "bind"], help_heading = NODES)]
    hosts: Vec<String>,
    /// Read the hosts from a file, one on each line
    #[arg(long, visible_alias = "machinefile", value_name = "FILE",
          conflicts_with_all = ["nodes", "bind", "hosts"], help_heading = NODES)]
    hostfile: Option<PathBuf>,
    /// Path of nagaya on the other hosts (default: its path here, or found in their PATH)
    #[arg(long, value_name = "PATH", help_heading = NODES)]
    nagaya: Option<String>,
    /// Placement of threads: auto, spread, pack or load
    ///
    /// auto: threads start on the first node, go to the others if they wait for processors, and
    /// return if that does not pay. spread: a new thread starts on the node with the fewest threads
    /// for each processor. pack: a node is filled before the next one is used. load: by the number
    /// of runnable threads; running threads move, too.
    #[arg(long, value_name = "auto|spread|pack|load", default_value = "auto",
          help_heading = THREADS)]
    place: Policy,
    /// CPUs of a node: an equal share (node) or all (none)
    ///
    /// The default is node if there are at least as many CPUs as nodes.
    #[arg(long, value_name = "node|none", hide_possible_values = true, help_heading = NODES)]
    bind: Option<Bind>,
    /// Time limit for a host to start, and later for a node to answer; 0: none
    #[arg(long, value_name = "SECONDS", default_value_t = 20, help_heading = NODES)]
    timeout: u32,
    /// Move thread TID of the running program PID to NODE
    #[arg(long = "move", value_name = "PID:TID=NODE", conflicts_with = "program",
          help_heading = THREADS)]
    moves: Option<Move>,
    /// Limit of the memory that pages take on a node
    #[arg(long, value_name = "SIZE", value_parser = program::memory_size, help_heading = MEMORY)]
    memory: Option<u64>,
    /// Give the program the same addresses in every run
    ///
    /// For debugging. NAGAYA_FIXED_ADDRESSES=1 has the same effect.
    #[arg(long, help_heading = MEMORY)]
    fixed_addresses: bool,
    /// Report at the end the work of each node and thread, and the pages that nodes contend for
    ///
    /// The report also estimates the gain of more machines. If FILE ends in .json, it is JSON.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true,
          default_missing_value = "-", help_heading = MEMORY)]
    report: Option<PathBuf>,
    /// Run as one node, which receives its order over this descriptor
    #[arg(long, hide = true, value_name = "DESCRIPTOR")]
    control: Option<i32>,
    /// Run as one node, which receives its order from standard input
    #[arg(long, hide = true)]
    join: bool,
    /// Program and its arguments
    #[arg(
        required_unless_present_any = ["control", "join", "moves"],
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    program: Vec<OsString>,
}

/// `--move PID:TID=NODE`.
#[derive(Debug, Clone, Copy)]
struct Move {
    process: u32,
    thread: i32,
    node: u32,
}

impl std::str::FromStr for Move {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = || {
            let (process, rest) = text.split_once(':')?;
            let (thread, node) = rest.split_once('=')?;
            let (process, thread) = (process.parse().ok()?, thread.parse().ok()?);
            Some(Self { process, thread, node: node.parse().ok()? })
        };
        parts().ok_or_else(|| "must be PID:TID=NODE".to_owned())
    }
}

/// Runs the program; its status.
pub fn span(options: &Options) -> Result<i32, Failure> {
    if let Some(descriptor) = options.control {
        // SAFETY: the parent process opened this descriptor for this node, and nothing else here
        // owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        return node(Control::socket(socket));
    }
    if options.join {
        // SAFETY: this process does nothing else.
        return node(Ok(unsafe { Control::standard() }));
    }
    if let Some(Move { process, thread, node }) = options.moves {
        let failed = |why| Failure::ours(format!("--move {process}:{thread}={node}: {why}"));
        return span::order(process, thread, node).map(|()| 0).map_err(failed);
    }
    let wanted = options.report.as_deref().map(report::Wanted::new).transpose()?;
    let program = program(options, wanted.as_ref())?;
    let hosts = hosts(options)?;
    let count = hosts.as_ref().map_or(options.nodes as usize, Vec::len);
    if count > NODES_MAX {
        return Err(Failure::ours(format!("span: {count} hosts; there can be {NODES_MAX}")));
    }
    let signals = Signals::block().map_err(unstarted)?;
    let mut nodes = Nodes::new(program);
    match &hosts {
        Some(hosts) => {
            nodes.start_here(&signals, None, hosts[0].clone()).map_err(unstarted)?;
            for host in &hosts[1..] {
                let nagaya = options.nagaya.as_deref();
                nodes.start_there(&signals, host.clone(), nagaya).map_err(unstarted)?;
            }
        }
        None => {
            let shares = shares(count, options.bind)?;
            // A node without a dedicated share counts with the processors that it would get.
            let all = processors::ours().map_or(1, |ours| ours.len());
            let processors = shares.is_none().then(|| (all / count).max(1) as u32);
            for node in 0..count {
                let share = shares.as_ref().map(|shares| shares[node]);
                let host = Host { name: String::new(), processors };
                nodes.start_here(&signals, share, host).map_err(unstarted)?;
            }
        }
    }
    nodes.meet(&signals, options.timeout).map_err(unstarted)?;
    let status = nodes.wait(&signals);
    if let Some(wanted) = wanted {
        wanted.tell()?;
    }
    Ok(status)
}

/// Is a node; returns only errors of the beginning.
fn node(control: std::io::Result<Control>) -> Result<i32, Failure> {
    let control = control.map_err(|why| Failure::ours(format!("span: no way back: {why}")))?;
    Err(match span::node::run(control) {
        Some(refusal) => failure(refusal),
        None => Failure { message: String::new(), status: 125 },
    })
}

fn failure(Refusal { line, is_of_program }: Refusal) -> Failure {
    let status = if is_of_program { 126 } else { 125 };
    Failure { message: format!("span: {line}"), status }
}

fn program(options: &Options, report: Option<&report::Wanted>) -> Result<Program, Failure> {
    program::check_name("span", &options.program[0])?;
    let path = program::find(&options.program[0])?;
    let path = std::path::absolute(&path).unwrap_or(path);
    if let Err(why) = std::fs::metadata(&path) {
        let status = if why.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
        return Err(Failure { message: format!("{}: {why}", path.display()), status });
    }
    let arguments = options.program.iter().map(|it| it.clone().into_vec()).collect();
    let path = path.as_os_str().as_bytes().to_vec();
    let report = report.map(report::Wanted::path);
    let (place, memory) = (options.place, options.memory);
    let wants_fixed = pvas::window::wants_fixed_addresses().map_err(|e| Failure::from(&e))?;
    let fixed_addresses = options.fixed_addresses || wants_fixed;
    Ok(Program { path, arguments, place, memory, fixed_addresses, report })
}

/// The hosts, if any are named, this one first.
fn hosts(options: &Options) -> Result<Option<Vec<Host>>, Failure> {
    let named = match &options.hostfile {
        Some(path) => read(path)?,
        None if options.hosts.is_empty() => return Ok(None),
        None => hosts::list(&options.hosts.join(","))
            .map_err(|why| Failure::ours(format!("span: -H: {why}")))?,
    };
    let nodes = hosts::nodes(named, hosts::is_here);
    nodes.map(Some).map_err(|why| Failure::ours(format!("span: {why}")))
}

fn read(path: &Path) -> Result<Vec<Host>, Failure> {
    let failure = |why: String| Failure::ours(format!("span: {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|why| failure(why.to_string()))?;
    match hosts::file(&text) {
        Ok(hosts) if hosts.is_empty() => Err(failure("no host is named".to_owned())),
        Ok(hosts) => Ok(hosts),
        Err(why) => Err(Failure::ours(format!("span: {}:{why}", path.display()))),
    }
}
