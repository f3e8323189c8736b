//! `nagaya run --domains 0-1:4,@host:4`: a space over several machines. Each machine is a separate
//! `nagaya run` with one domain, here or on another host. This file starts them, sends each its
//! part, and waits for them.

use std::ffi::{CString, OsString};
use std::ops::Range;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use ::cluster::join::{self, Everybody, Joined, KIND, Order, Ready};
use clap::Parser;
use launch::control::Control;
use launch::hosts::Host;
use launch::meeting::{Addressee, Job};
use launch::messages::Kind;
use launch::nodes::Nodes;
use launch::placement::Machine;
use launch::signals::Signals;
use nagaya_server::Failure;
use nagaya_server::server::segment_size_for;

use super::environment;
use super::options::{Options, StdinChoice};
use super::pool::{self, Pools};
use super::tasks::{self, Given};
use crate::program::{self, unstarted};

/// Most memory that all segments take as addresses: the agents keep a table by pages.
const BYTES_MAX: u64 = 1 << 40;

/// The part of the job that runs on machines.
struct Space {
    names: Vec<String>,
    ids: Vec<Range<u32>>,
    /// Start of the space on all of them.
    window: u64,
    /// Memory that they have in common, by the path on each, and its mark.
    pools: Option<(Vec<PathBuf>, u64)>,
    /// `--domains` on each.
    domains: Vec<String>,
    /// Other arguments of all, and those of the first, of the others.
    arguments: Vec<OsString>,
    stdin: [OsString; 2],
    program: Vec<OsString>,
    environment: Vec<Vec<u8>>,
    directory: Vec<u8>,
}

impl Job for Space {
    const KIND: Kind = KIND;
    type Order = Order;
    type Ready = Ready;
    type Everybody = Everybody;

    fn order(&self, to: Addressee<'_>) -> Order {
        let at = to.node as usize;
        let own = ["--stdin".into(), self.stdin[at.min(1)].clone()];
        let domains = ["--domains".into(), self.domains[at].clone().into(), "--".into()];
        let words = self.arguments.iter().chain(&own).chain(&domains).chain(&self.program);
        Order {
            machine: to.node,
            secret: to.secret,
            timeout: to.timeout,
            names: self.names.clone(),
            ids: self.ids.clone(),
            window: self.window,
            pool: self
                .pools
                .as_ref()
                .map(|(paths, mark)| (paths[at].as_os_str().as_bytes().to_vec(), *mark)),
            arguments: words.map(|word| word.clone().into_vec()).collect(),
            environment: self.environment.clone(),
            directory: self.directory.clone(),
            variables: to.variables(),
            all_are_here: to.all_are_here,
        }
    }

    fn everybody(&self, machines: Vec<Ready>) -> Result<Everybody, String> {
        Ok(Everybody { machines })
    }
}

/// Runs the tasks; returns the first failing status, or 0.
pub fn run(options: &Options, machines: &[Machine]) -> Result<i32, Failure> {
    let signals = Signals::block().map_err(unstarted)?;
    let mut nodes = Nodes::new(space(options, machines)?);
    for machine in machines {
        let name = machine.host.clone().unwrap_or_default();
        let host = Host { name, processors: None };
        let started = match &machine.host {
            None => nodes.start_here(&signals, None, host),
            Some(_) => nodes.start_there(&signals, host, options.nagaya.as_deref()),
        };
        started.map_err(unstarted)?;
    }
    nodes.meet(&signals, options.timeout).map_err(unstarted)?;
    Ok(nodes.wait(&signals))
}

fn space(options: &Options, machines: &[Machine]) -> Result<Space, Failure> {
    program::check_name("run", &options.program[0])?;
    let tasks = machines.iter().fold(0, |sum: u32, it| sum.saturating_add(it.tasks));
    let border = |at: usize| machines[..at].iter().map(|it| it.tasks).sum();
    let ids: Vec<Range<u32>> =
        (0..machines.len()).map(|at| border(at)..border(at) + machines[at].tasks).collect();
    match options.stdin {
        StdinChoice::All => {
            return Err(Failure::ours(
                "--stdin all works on one machine only; choose one task, or none",
            ));
        }
        StdinChoice::Task(task) if task != 0 && task >= machines[0].tasks => {
            return Err(Failure::ours(format!(
                "--stdin {task}: only tasks of this machine, 0 to {}, read standard input",
                machines[0].tasks - 1
            )));
        }
        _ => {}
    }
    let most = BYTES_MAX / u64::from(tasks);
    let size = program::wanted_segment_size(options.segment_size)?
        .unwrap_or_else(|| segment_size_for(Some(tasks)).min(1 << most.max(1).ilog2()));
    if size > most {
        return Err(Failure::ours(format!(
            "{tasks} tasks do not fit: segments of {} take more than {} in all (choose a smaller \
             --segment-size)",
            crate::ps::human(size),
            crate::ps::human(BYTES_MAX)
        )));
    }
    let pools = options.pool.as_ref().map(|pools| found_pools(pools, machines)).transpose()?;
    let wants_fixed = pvas::window::wants_fixed_addresses().map_err(|e| Failure::from(&e))?;
    let is_fixed = options.fixed_addresses || wants_fixed;
    let window = pvas::window::common_window(is_fixed).map_err(|e| Failure::from(&e))?;
    let arguments = arguments(options, size, is_fixed);
    let path = environment::find(options)?;
    if pvas::is_fixed(&path).map_err(|e| Failure::from(&e))? {
        return Err((&pvas::Error::OverMachines).into());
    }
    let mut program = options.program.clone();
    program[0] = path.into_os_string();
    let first = match options.stdin {
        StdinChoice::Task(task) => task.to_string(),
        _ => "none".to_owned(),
    };
    let directory = std::env::current_dir().map(OsString::from).unwrap_or_else(|_| "/".into());
    Ok(Space {
        names: machines.iter().enumerate().map(name).collect(),
        ids,
        window,
        pools,
        domains: machines.iter().map(|it| it.domains.clone()).collect(),
        arguments,
        stdin: [first.into(), "none".into()],
        program,
        environment: environment::environment(options)?
            .into_iter()
            .map(CString::into_bytes)
            .collect(),
        directory: directory.into_vec(),
    })
}

/// Returns the arguments that the `nagaya run` of each machine gets.
fn arguments(options: &Options, segment_size: u64, is_fixed: bool) -> Vec<OsString> {
    let mut arguments: Vec<OsString> =
        vec!["run".into(), "--segment-size".into(), segment_size.to_string().into()];
    let mut option = |name: &str, value: OsString| arguments.extend([name.into(), value]);
    if let Some(directory) = &options.chdir {
        option("--chdir", directory.into());
    }
    if let Some(job) = &options.job {
        option("--job", job.into());
    }
    let flags = [
        ("--label", options.label),
        ("-K", options.kill_on_bad_exit),
        ("--fixed-addresses", is_fixed),
    ];
    for (flag, given) in flags {
        if given {
            arguments.push(flag.into());
        }
    }
    arguments
}

/// Each machine's path.
fn found_pools(pools: &Pools, machines: &[Machine]) -> Result<(Vec<PathBuf>, u64), Failure> {
    let hosts: Vec<&str> = machines.iter().filter_map(|it| it.host.as_deref()).collect();
    if let Some(stranger) = pools.stranger(&hosts) {
        return Err(Failure::ours(format!("--pool: {stranger} is not a machine of this job")));
    }
    let paths = machines.iter().map(|it| pools.of(it.host.as_deref()).to_owned()).collect();
    Ok((paths, pool::mark().map_err(Failure::ours)?))
}

fn name((at, machine): (usize, &Machine)) -> String {
    match &machine.host {
        Some(host) => format!("node {at} ({host})"),
        None => {
            let uname = rustix::system::uname();
            format!("node {at} ({})", uname.nodename().to_string_lossy())
        }
    }
}

/// `nagaya run`, as it stands in an order.
#[derive(Debug, Parser)]
struct Words {
    #[command(flatten)]
    options: Options,
}

/// Runs one of the machines. Its orders arrive over `control`.
pub fn machine(control: std::io::Result<Control>) -> Result<i32, Failure> {
    let control = control.map_err(|why| Failure::ours(format!("run: no way back: {why}")));
    // Threads of Nagaya and UCX block the signals that are for tasks.
    let given = Given::now();
    let _blocked = Signals::block().map_err(unstarted)?;
    let said = |_| Failure { message: String::new(), status: 125 };
    let (mut joined, options) = begin(control?).map_err(said)?;
    tasks::run(options, given, Some(&mut joined)).map_err(|failure| {
        // The process that started this one prints the message.
        joined.refuse(failure.message);
        Failure { message: String::new(), status: failure.status }
    })
}

fn begin(mut control: Control) -> Result<(Joined, Options), String> {
    let order = join::order(&mut control)?;
    let words = order.arguments.iter().map(|word| OsString::from_vec(word.clone()));
    let options = match Words::try_parse_from(words) {
        Ok(Words { options }) => options,
        Err(why) => return Err(join::refuse(&mut control, why.to_string())),
    };
    let directory = std::ffi::OsStr::from_bytes(&order.directory);
    if let Err(why) = std::env::set_current_dir(directory) {
        let line = format!("{}: {why}", directory.display());
        return Err(join::refuse(&mut control, line));
    }
    Ok((join::meet(control, order)?, options))
}

/// Returns the control channel to the process that started this one. Tasks do not inherit the
/// descriptor.
pub fn control(descriptor: i32) -> std::io::Result<Control> {
    // SAFETY: the parent process opened this descriptor for this node, and nothing else here owns
    // it.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    Control::socket(socket)
}
