//! The options of `nagaya run`.

use std::ffi::OsString;
use std::path::PathBuf;

use coherence::ride::Policy;
use launch::placement::Domains;

use super::pool::Pools;
use crate::bind::Bind;
use crate::delegatee::Place;
use crate::program;

/// Run N tasks of a program in one address space
///
/// The tasks are processes of this machine, each in a segment of its own. No launcher is needed.
/// The status is that of the first task that fails, or 0. See nagaya-run(1).
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Number of tasks
    #[arg(short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub n: u32,
    /// Domains: so many tasks with page tables of their own on each of these processors, such as
    /// 0-1:4,2-3:4. Also all, node0 (NUMA), big, little, cgroup=PATH; and of other machines @HOST
    /// or @HOST/PLACE, reached by ssh (or NAGAYA_RSH)
    #[arg(long, value_name = "PLACE:TASKS,...", conflicts_with_all = ["n", "nodes"])]
    pub domains: Option<Domains>,
    /// With other machines that have memory in common with this one, such as virtual machines of
    /// one host: that memory, a file or a DAX device; HOST's own path where it differs
    #[arg(long, value_name = "PATH[,HOST=PATH]...", requires = "domains")]
    pub pool: Option<Pools>,
    /// A delegatee of the node server's: so many threads on these processors that do I/O for tasks
    /// (see pvas_delegate(3)), such as 3:1
    #[arg(long, value_name = "PLACE:THREADS")]
    pub delegatee: Option<Place>,
    /// With other machines: the program nagaya there (else where it is here, or where PATH says)
    #[arg(long, value_name = "PATH", requires = "domains")]
    pub nagaya: Option<String>,
    /// With other machines: seconds in which they must begin, and after which one that does not
    /// answer is given up; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub timeout: u32,
    /// One of several machines, which is told the rest over this descriptor
    #[arg(long, hide = true, value_name = "DESCRIPTOR")]
    pub control: Option<i32>,
    /// One of several machines, which is told the rest by standard input
    #[arg(long, hide = true)]
    pub join: bool,
    /// Number of nodes, each with a space of its own, over which the tasks are divided
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes: u32,
    /// Processors of nodes: each a share of its own (node; the default where there are as many as
    /// nodes), or all of them (none)
    #[arg(long, value_name = "node|none", hide_possible_values = true)]
    pub bind: Option<Bind>,
    /// Which part of a job this is: one of its nodes
    #[arg(long, hide = true, value_name = "FIRST:SIZE:SOCKET", value_parser = Part::parse)]
    pub part: Option<Part>,
    /// Size of a segment, such as 32G (default: by memory and number of tasks)
    #[arg(long, value_name = "SIZE", value_parser = program::segment_size)]
    pub segment_size: Option<u64>,
    /// Set a variable in the tasks, or pass one on
    #[arg(short = 'x', value_name = "VAR[=VALUE]")]
    pub variables: Vec<OsString>,
    /// Shared memory between nodes: pages that ride along on messages: normal (none), ainori1
    /// (with pages), ainori2 (and with barriers), ainori3 (and with locks), auto (with all of
    /// these, as the best of several predictors say; the default), runs (with pages: what is
    /// behind them)
    #[arg(long, value_name = "POLICY", value_parser = crate::sim::policy)]
    pub rides: Option<Policy>,
    /// Whether output is labelled.
    #[arg(short, long, help = "Begin each line of output with [ID]")]
    pub label: bool,
    /// Working directory of the tasks
    #[arg(short = 'C', long, value_name = "DIR")]
    pub chdir: Option<PathBuf>,
    /// Kill the rest when a task fails
    #[arg(short = 'K', long)]
    pub kill_on_bad_exit: bool,
    /// Which tasks read standard input
    #[arg(long, value_name = "all|none|ID", default_value = "0", value_parser = stdin_choice)]
    pub stdin: StdinChoice,
    /// Name of the job (default: run:PID)
    #[arg(long, value_name = "NAME")]
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
    /// The first of them.
    pub first: u32,
    /// How many the job has.
    pub size: u32,
    /// Where the job's tasks meet: a socket's name.
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

    /// As an argument.
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
