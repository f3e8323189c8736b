//! The options of `nagaya run`.

use std::ffi::OsString;
use std::path::PathBuf;

use coherence::ride::Policy;
use launch::placement::Domains;
use pvas::Protection;

use super::pool::Pools;
use crate::bind::Bind;
use crate::delegatee::Place;
use crate::program;

const EXAMPLES: &str = "\
Examples:
  nagaya run -n 4 ./app                      four tasks in one address space
  nagaya run --domains 0-3:4,4-7:4 ./app     four tasks on each half of the CPUs
  nagaya run --domains all:4,@hostb:4 ./app  four tasks here and four on hostb
  nagaya run --nodes 2 -n 8 ./app            two DSM nodes with four tasks each
  nagaya run -n 2 -l -x OMP_NUM_THREADS=4 ./app";

const TASKS: &str = "Tasks";
const MACHINES: &str = "Other machines";
const NODES: &str = "Shared memory between nodes";
const INPUT_OUTPUT: &str = "Environment, input and output";

/// Run N tasks of a program in one address space
///
/// Each task is a process on this machine and has a segment of the address space. No launcher is
/// needed. The exit status is that of the first task that fails, or 0. See nagaya-run(1).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Number of tasks
    #[arg(short, value_name = "N", default_value_t = 1, help_heading = TASKS,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub n: u32,
    /// For each PLACE:TASKS pair, start TASKS tasks there, in a domain with its own page tables
    ///
    /// PLACE is a CPU list (0-1), all, node0 (a NUMA node), big, little, or cgroup=PATH. @HOST or
    /// @HOST/PLACE starts them on another machine by ssh (or NAGAYA_RSH).
    #[arg(long, value_name = "PLACE:TASKS,...", conflicts_with_all = ["n", "nodes"],
          help_heading = TASKS)]
    pub domains: Option<Domains>,
    /// Memory that the machines share, such as the virtual machines of one host
    ///
    /// PATH is a file or a DAX device. HOST=PATH is its path on HOST if that differs.
    #[arg(long, value_name = "PATH[,HOST=PATH]...", requires = "domains", help_heading = MACHINES)]
    pub pool: Option<Pools>,
    /// Start THREADS threads of the node server on the CPUs of PLACE, for the tasks' I/O
    ///
    /// For example 3:1. See pvas_delegate(3).
    #[arg(long, value_name = "PLACE:THREADS", help_heading = TASKS)]
    pub delegatee: Option<Place>,
    /// Path of nagaya on the other machines (default: its path here, or found in their PATH)
    #[arg(long, value_name = "PATH", requires = "domains", help_heading = MACHINES)]
    pub nagaya: Option<String>,
    /// Time limit for another machine to start, and later to answer; 0: none
    #[arg(long, value_name = "SECONDS", default_value_t = 20, help_heading = MACHINES)]
    pub timeout: u32,
    /// Descriptor of the control channel, on one of several machines
    #[arg(long, hide = true, value_name = "DESCRIPTOR")]
    pub control: Option<i32>,
    /// Read the control channel from standard input, on one of several machines
    #[arg(long, hide = true)]
    pub join: bool,
    /// Number of nodes, each with its own address space; the tasks are divided among them
    #[arg(long, value_name = "K", default_value_t = 1, help_heading = NODES,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes: u32,
    /// CPUs of a node: an equal share (node) or all (none)
    ///
    /// The default is node if there are at least as many CPUs as nodes.
    #[arg(long, value_name = "node|none", hide_possible_values = true, help_heading = NODES)]
    pub bind: Option<Bind>,
    /// The tasks of this node among those of the job
    #[arg(long, hide = true, value_name = "FIRST:SIZE:SOCKET", value_parser = Part::parse)]
    pub part: Option<Part>,
    /// Size of a segment, such as 32G (default: by memory and number of tasks)
    #[arg(long, value_name = "SIZE", value_parser = program::segment_size, help_heading = TASKS)]
    pub segment_size: Option<u64>,
    /// Give the tasks the same addresses in every run
    ///
    /// For debugging. NAGAYA_FIXED_ADDRESSES=1 has the same effect. See nagaya-run(1).
    #[arg(long, help_heading = TASKS)]
    pub fixed_addresses: bool,
    /// Protect the memory of each task from the others: writes (the default), or all accesses
    ///
    /// Each task then has its own page tables. NAGAYA_PROTECT has the same effect. See
    /// nagaya-run(1).
    #[arg(long, value_name = "writes|all", num_args = 0..=1, require_equals = true,
          default_missing_value = "writes", value_parser = program::protection,
          hide_possible_values = true, help_heading = TASKS)]
    pub protect: Option<Protection>,
    /// Set a variable in the tasks, or pass on its value
    #[arg(short = 'x', value_name = "VAR[=VALUE]", help_heading = INPUT_OUTPUT)]
    pub variables: Vec<OsString>,
    /// Pages that ride along on messages
    ///
    /// normal: none. ainori1: on replies with pages. ainori2: also on barriers. ainori3: also on
    /// locks. auto (default): on all of these, as the best of several predictors says. runs: on
    /// replies with pages, the pages that follow.
    #[arg(long, value_name = "POLICY", value_parser = crate::sim::policy, help_heading = NODES)]
    pub rides: Option<Policy>,
    /// Labels output with task IDs.
    #[arg(short, long, help = "Begin each line of output with [ID]", help_heading = INPUT_OUTPUT)]
    pub label: bool,
    /// Working directory of the tasks
    #[arg(short = 'C', long, value_name = "DIR", help_heading = INPUT_OUTPUT)]
    pub chdir: Option<PathBuf>,
    /// Kill the other tasks when a task fails
    #[arg(short = 'K', long, help_heading = TASKS)]
    pub kill_on_bad_exit: bool,
    /// Tasks that read standard input
    #[arg(long, value_name = "all|none|ID", default_value = "0", value_parser = stdin_choice,
          help_heading = INPUT_OUTPUT)]
    pub stdin: StdinChoice,
    /// Name of the job (default: run:PID)
    #[arg(long, value_name = "NAME", help_heading = TASKS)]
    pub job: Option<String>,
    /// Program and its arguments
    #[arg(
        required_unless_present_any = ["control", "join"],
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub program: Vec<OsString>,
}

/// A node's tasks among those of its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// ID of the first of them.
    pub first: u32,
    /// Number of tasks of the job.
    pub size: u32,
    /// Name of the socket at which the job's tasks meet.
    pub socket: String,
}

impl Part {
    fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, ':');
        let mut next = || parts.next().ok_or("must be FIRST:SIZE:SOCKET".to_owned());
        let number = |text: &str| text.parse().map_err(|_| format!("{text}: no number"));
        let (first, size, socket) = (number(next()?)?, number(next()?)?, next()?.into());
        Ok(Self { first, size, socket })
    }

    /// Formats the part as the argument that `parse` reads.
    pub fn text(&self) -> String {
        format!("{}:{}:{}", self.first, self.size, self.socket)
    }
}

/// The tasks that read standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdinChoice {
    All,
    None,
    Task(u32),
}

fn stdin_choice(text: &str) -> Result<StdinChoice, String> {
    match text {
        "all" => Ok(StdinChoice::All),
        "none" => Ok(StdinChoice::None),
        id => id.parse().map(StdinChoice::Task).map_err(|_| "must be all, none or an ID".into()),
    }
}
