//! The processes of the nodes: starts them here or by ssh, connects them, and waits for them. They
//! end with this process.

use std::io::{ErrorKind, Read as _, Result as IoResult};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use net::secret::Secret;
use rustix::thread::CpuSet;
use sync::clock;

use crate::error::Error;
use crate::hosts::Host;
use crate::meeting::{Addressee, Job, Meeting, end_of_channel};
use crate::messages::{self, Ended};
use crate::processors::bind;
use crate::signals::Signals;
use crate::ssh::{self, Remote};
use crate::system::{Events, Process, Started, System};

/// Interval at which a start checks for signals.
const SIGNALS_INTERVAL: Duration = Duration::from_millis(50);
/// Interval at which it checks if the program has ended, once a node has refused.
const END_INTERVAL: Duration = Duration::from_millis(1);
/// Intervals of the checks whether the other nodes have ended after the program.
const LAST_INTERVAL_MIN: Duration = Duration::from_micros(250);
const LAST_INTERVAL_MAX: Duration = Duration::from_millis(5);
/// Time that nodes may take to end after the program.
const END_MAX: Duration = Duration::from_secs(3);
/// Bytes that one call reads at most.
const READ_SIZE: usize = 64 << 10;

/// The nodes of a job, the origin first.
pub struct Nodes<J: Job, P: Process = Started> {
    job: J,
    nodes: Vec<Node<P>>,
}

struct Node<P> {
    process: P,
    host: Host,
    is_here: bool,
    has_begun: bool,
    /// The origin has been notified of its end.
    is_reported: bool,
}

impl<J: Job> Nodes<J> {
    /// Begins without nodes.
    pub fn new(job: J) -> Self {
        Self { job, nodes: Vec::new() }
    }

    /// Starts a node on this host, on a share of its processors.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start_here(
        &mut self,
        signals: &Signals,
        share: Option<CpuSet>,
        host: Host,
    ) -> Result<(), Error> {
        let failed = |why| J::KIND.failed(&format!("cannot start a node: {why}"));
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new("/proc/self/exe");
        let number = theirs.as_raw_fd();
        command.args([J::KIND.name, "--control", &number.to_string()]);
        signals.leave_to(&mut command);
        keep(&mut command, number);
        if let Some(share) = share {
            bind(&mut command, share);
        }
        let child = command.spawn().map_err(failed)?;
        let process = Started::new(child, ours.into(), None, None).map_err(failed)?;
        self.add(process, host, true);
        Ok(())
    }

    /// Starts a node on another host, by ssh or the program that NAGAYA_RSH names. `nagaya` is the
    /// path of the command there.
    ///
    /// # Errors
    /// ssh cannot be started. If it does not reach the host, [`Nodes::meet`] reports that.
    pub fn start_there(
        &mut self,
        signals: &Signals,
        host: Host,
        nagaya: Option<&str>,
    ) -> Result<(), Error> {
        let join = format!("{} --join", J::KIND.name);
        let script = match (nagaya, std::env::current_exe()) {
            (Some(path), _) => ssh::named(path, &join, "--nagaya"),
            (None, Ok(own)) => ssh::nagaya(&own, &join, "--nagaya"),
            (None, Err(_)) => ssh::named("nagaya", &join, "--nagaya"),
        };
        let there = ssh::start("NAGAYA_RSH", None, &host.name, &script, |command| {
            signals.leave_to(command);
            alone(command);
        });
        let there = there.map_err(|line| J::KIND.failed(&line));
        let Remote { child, to, from, errors } = there?;
        let process = Started::new(child, to.into(), Some(from.into()), Some(errors.into()));
        let process = process.map_err(|why| J::KIND.failed(&format!("cannot start a node: {why}")));
        self.add(process?, host, false);
        Ok(())
    }
}

impl<J: Job, P: Process> Nodes<J, P> {
    fn add(&mut self, process: P, host: Host, is_here: bool) {
        let (has_begun, is_reported) = (false, false);
        self.nodes.push(Node { process, host, is_here, has_begun, is_reported });
    }

    /// Returns the node's name in messages.
    fn name(&self, node: usize) -> String {
        match &self.nodes[node].host.name {
            name if name.is_empty() => format!("node {node}"),
            name => format!("node {node} ({name})"),
        }
    }

    /// Connects the nodes to each other and lets the program begin, within `timeout` seconds (0: no
    /// limit).
    ///
    /// # Errors
    /// One line about the first node that refuses or is late. All nodes are ended then.
    pub fn meet(&mut self, system: &impl System<P>, timeout: u32) -> Result<(), Error> {
        let mut meeting = self.invite(timeout);
        let met = loop {
            (0..self.nodes.len()).for_each(|node| self.exchange(&mut meeting, node));
            if meeting.is_refused() && self.program_has_ended() {
                break Ok(());
            }
            if let Some(result) = meeting.turn(&self.job, clock::now()) {
                break result;
            }
            match system.pending() {
                None | Some(libc::SIGCHLD | libc::SIGWINCH) => {}
                Some(signal) => {
                    self.end();
                    let status = system.end_as(signal);
                    return Err(Error { line: String::new(), status });
                }
            }
            let mut events = Vec::new();
            for (node, it) in self.nodes.iter().enumerate() {
                let output = !meeting.output(node).is_empty();
                let (input, errors) = (meeting.reads(node), meeting.reads_errors(node));
                if input || output || errors {
                    events.push((&it.process, Events { input, output, errors }));
                }
            }
            let limit = if meeting.is_refused() { END_INTERVAL } else { SIGNALS_INTERVAL };
            system.wait(&events, limit);
        };
        met.inspect_err(|_| self.end())
    }

    /// Returns a meeting that expects all nodes.
    fn invite(&mut self, timeout: u32) -> Meeting<J> {
        let secret = *Secret::random().bytes();
        let nodes = self.nodes.len() as u32;
        let all_are_here = self.nodes.iter().all(|node| node.is_here);
        let mut meeting = Meeting::new(timeout, clock::now());
        for node in 0..self.nodes.len() {
            let Node { host, is_here, .. } = &self.nodes[node];
            let (number, is_here) = (node as u32, *is_here);
            let to =
                Addressee { node: number, nodes, host, is_here, all_are_here, secret, timeout };
            let order = self.job.order(to);
            let has_errors = self.nodes[node].process.errors().is_some();
            meeting.expect(self.name(node), order, has_errors);
        }
        meeting
    }

    /// Sends and receives what a node's channel takes and has, without waiting.
    fn exchange(&mut self, meeting: &mut Meeting<J>, node: usize) {
        let Node { process, host, has_begun, .. } = &mut self.nodes[node];
        let now = clock::now();
        let mut broken = None;
        while broken.is_none() && !meeting.output(node).is_empty() {
            match process.write(meeting.output(node)) {
                Ok(bytes) => meeting.sent(node, bytes),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock => break,
                Err(why) => broken = Some(why),
            }
        }
        let mut buffer = [0; READ_SIZE];
        while meeting.reads(node) {
            match available(process.read(&mut buffer)) {
                Ok(Some(0)) => meeting.lost(node, end_of_channel(), now),
                Ok(Some(bytes)) => meeting.received(node, &buffer[..bytes], now),
                Ok(None) => break,
                Err(why) => meeting.lost(node, why, now),
            }
        }
        // A node may have answered before it ended.
        if let Some(why) = broken {
            meeting.lost(node, why, now);
        }
        while meeting.reads_errors(node)
            && let Some(errors) = process.errors()
            && let Some(bytes) = available(errors.read(&mut buffer)).unwrap_or(Some(0))
        {
            meeting.printed(node, &buffer[..bytes], now);
        }
        if meeting.has_begun(node) && !*has_begun {
            *has_begun = true;
            process.begin(&host.name);
        }
    }

    /// Returns true if the program has begun and has ended.
    fn program_has_ended(&mut self) -> bool {
        self.nodes[0].has_begun && self.nodes[0].process.status().is_some()
    }

    /// Forwards signals to the program until it has ended. Returns its exit status.
    pub fn wait(&mut self, system: &impl System<P>) -> i32 {
        let status = loop {
            if let Some(status) = self.nodes[0].process.status() {
                break status;
            }
            self.report_ended();
            let (signal, from_terminal) = system.next();
            if signal != libc::SIGCHLD && !from_terminal {
                self.nodes[0].process.signal(signal);
            }
        };
        let until = clock::now() + END_MAX;
        let runs = |node: &mut Node<P>| node.process.status().is_none();
        let mut interval = LAST_INTERVAL_MIN;
        while clock::now() < until && self.nodes.iter_mut().any(runs) {
            system.sleep(interval);
            interval = (2 * interval).min(LAST_INTERVAL_MAX);
        }
        self.end();
        system.end_as(status)
    }

    /// Sends the origin the wait status of each node of this host that has ended.
    fn report_ended(&mut self) {
        let (origin, others) = self.nodes.split_first_mut().expect("the origin is a node");
        for (node, it) in (1..).zip(others) {
            if it.is_here
                && !it.is_reported
                && let Some(status) = it.process.status()
            {
                it.is_reported = true;
                // If the channel is closed, the origin has ended, too.
                let _ = messages::send(&mut origin.process, &Ended { node, status });
            }
        }
    }

    /// Ends all nodes that still run.
    fn end(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.process.end());
        // The nodes on other hosts end with their channels.
        self.nodes.clear();
    }
}

impl<J: Job, P: Process> Drop for Nodes<J, P> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the bytes that a call has read, or `None` if there are none yet.
fn available(read: IoResult<usize>) -> IoResult<Option<usize>> {
    match read {
        Ok(bytes) => Ok(Some(bytes)),
        Err(why) if matches!(why.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {
            Ok(None)
        }
        Err(why) => Err(why),
    }
}

/// Lets the child inherit this descriptor.
fn keep(command: &mut Command, descriptor: i32) {
    // SAFETY: fcntl is async-signal-safe, as a call between fork and exec must be.
    unsafe {
        command.pre_exec(move || match libc::fcntl(descriptor, libc::F_SETFD, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

/// Protects ssh from the terminal's signals, which are for the program. Ends ssh with its starter,
/// even if its network hangs.
fn alone(command: &mut Command) {
    command.process_group(0);
    let starter = std::process::id();
    // SAFETY: prctl and getppid are plain system calls, which are safe between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            // It may have ended before.
            match libc::getppid().cast_unsigned() == starter {
                true => Ok(()),
                false => Err(std::io::Error::from_raw_os_error(libc::ESRCH)),
            }
        });
    }
}

#[cfg(test)]
mod tests;
