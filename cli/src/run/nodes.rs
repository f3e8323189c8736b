//! `nagaya run --nodes K`: a job over several address spaces of one machine. Each node is a
//! separate `nagaya run` with a part of the tasks. This file starts the nodes, forwards signals to
//! them and waits for them.

use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use launch::processors::bind;
use launch::signals::Signals;
use launch::status::shell_status;
use nagaya_server::Failure;
use net::rendezvous::Host;

use super::meeting::meeting;
use super::options::{Options, Part, StdinChoice};
use super::wait::KILL_AFTER;
use crate::bind::shares;
use crate::program::unstarted;

/// From the first Ctrl-C on, until nodes are killed: each has killed its tasks before.
const NODE_KILL_AFTER: Duration = KILL_AFTER.saturating_add(Duration::from_secs(1));

/// Runs the nodes; returns the first failing status, or 0.
pub fn run(options: &Options) -> Result<i32, Failure> {
    if options.nodes > options.n {
        return Err(Failure::ours(format!(
            "--nodes {}: there are only {} tasks (-n)",
            options.nodes, options.n
        )));
    }
    if options.stdin == StdinChoice::All {
        return Err(Failure::ours("--stdin all works on one node only; choose one task, or none"));
    }
    let shares = shares(options.nodes as usize, options.bind)?;
    let signals = Signals::block().map_err(unstarted)?;
    let host = meeting(options.n)?;
    let mut children = Vec::new();
    for node in 0..options.nodes {
        let tasks = tasks_of(options, node);
        let part = Part { first: tasks.start, size: options.n, socket: host.name().to_owned() };
        let mut command = Command::new("/proc/self/exe");
        command.args(arguments(options, node, &part, tasks.len() as u32));
        signals.leave_to(&mut command);
        if let Some(shares) = &shares {
            bind(&mut command, shares[node as usize]);
        }
        match command.spawn() {
            Ok(child) => children.push(Some(child)),
            Err(error) => {
                signal_all(&mut children, libc::SIGKILL);
                return Err(Failure::ours(format!("cannot start a node: {error}")));
            }
        }
    }
    let ended = |node| Host::tell_ended(host.name(), tasks_of(options, node));
    Ok(wait(&signals, &mut children, options.kill_on_bad_exit, ended))
}

/// Tasks of a node: whole ones in order, as even as can be.
fn tasks_of(options: &Options, node: u32) -> Range<u32> {
    let border =
        |node: u32| (u64::from(node) * u64::from(options.n) / u64::from(options.nodes)) as u32;
    border(node)..border(node + 1)
}

/// Returns the arguments of a node's `nagaya run`.
fn arguments(options: &Options, node: u32, part: &Part, tasks: u32) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["run".into(), "-n".into(), tasks.to_string().into()];
    let mut option = |name: &str, value: OsString| arguments.extend([name.into(), value]);
    option("--part", part.text().into());
    if let Some(size) = options.segment_size {
        option("--segment-size", size.to_string().into());
    }
    if let Some(place) = &options.delegatee {
        option("--delegatee", place.text().into());
    }
    if let Some(policy) = options.rides {
        option("--rides", policy.name().into());
    }
    for variable in &options.variables {
        option("-x", variable.clone());
    }
    if let Some(directory) = &options.chdir {
        option("--chdir", directory.into());
    }
    if let Some(job) = &options.job {
        option("--job", format!("{job}.{node}").into());
    }
    let reads = match options.stdin {
        StdinChoice::Task(task) if (part.first..part.first + tasks).contains(&task) => {
            (task - part.first).to_string()
        }
        _ => "none".into(),
    };
    option("--stdin", reads.into());
    let flags = [
        ("--label", options.label),
        ("-K", options.kill_on_bad_exit),
        ("--fixed-addresses", options.fixed_addresses),
    ];
    for (flag, given) in flags {
        if given {
            arguments.push(flag.into());
        }
    }
    arguments.push("--".into());
    arguments.extend(options.program.iter().cloned());
    arguments
}

/// Passes signals on until all nodes have ended. Calls `ended` with each.
fn wait(
    signals: &Signals,
    children: &mut [Option<Child>],
    kill_on_bad_exit: bool,
    ended: impl Fn(u32),
) -> i32 {
    let mut first_failure = 0;
    let mut interrupted: Option<Instant> = None;
    while children.iter().any(Option::is_some) {
        let next = match interrupted {
            None => Some(signals.next()),
            Some(since) => signals.next_within(NODE_KILL_AFTER.saturating_sub(since.elapsed())),
        };
        let Some((signal, from_terminal)) = next else {
            // A node that still runs has been stopped: running nodes would have ended by now.
            signal_all(children, libc::SIGKILL);
            interrupted = None;
            continue;
        };
        if signal == libc::SIGINT {
            interrupted.get_or_insert_with(Instant::now);
        }
        // The terminal has sent the signal to the nodes, which are in this process group.
        if signal != libc::SIGCHLD && !from_terminal {
            signal_all(children, signal);
        }
        let mut failed = false;
        for (node, place) in children.iter_mut().enumerate() {
            let Some(child) = place else { continue };
            let status = match child.try_wait() {
                Ok(Some(status)) => {
                    // The node's tasks ended with it, so they could not report the reason.
                    if let Some(signal) = status.signal() {
                        let pid = child.id();
                        proc::error_line!(
                            "nagaya: node {node} (PID {pid}) was killed by signal {signal}"
                        );
                    }
                    shell_status(status.into_raw())
                }
                Ok(None) => continue,
                Err(_) => 1,
            };
            *place = None;
            ended(node as u32);
            failed |= status != 0;
            if first_failure == 0 {
                first_failure = status;
            }
        }
        if failed && kill_on_bad_exit {
            // Each takes its tasks along.
            signal_all(children, libc::SIGTERM);
        }
    }
    first_failure
}

fn signal_all(children: &mut [Option<Child>], signal: i32) {
    for child in children.iter().flatten() {
        // SAFETY: `child` has not been waited for, so its PID is valid.
        unsafe { libc::kill(child.id().cast_signed(), signal) };
    }
}
