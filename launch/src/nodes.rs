//! The processes of the nodes: starts them here or by ssh, connects them, and waits for them. They
//! end with this process.

use std::io::{BufRead as _, BufReader, Read};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use net::secret::Secret;
use rustix::thread::CpuSet;

use crate::conversation::{Addressee, Channel, Job, Said, converse};
use crate::error::Error;
use crate::hosts::Host;
use crate::messages::{self, Ended, Kind, Refusal};
use crate::processors::bind;
use crate::signals::Signals;
use crate::ssh::{self, Remote};
use crate::status;

/// Interval at which a start checks for signals.
const LOOK: Duration = Duration::from_millis(50);
/// Time that the kernel may take to report the end of a process, after its connections have closed.
const NOTICE_MAX: Duration = Duration::from_millis(100);
/// Time that nodes may take to end after the program.
const END_MAX: Duration = Duration::from_secs(3);

/// The nodes of a job, the origin first.
pub struct Nodes<J: Job> {
    job: J,
    nodes: Vec<Node>,
}

struct Node {
    child: Option<Child>,
    /// The control channel. The conversation's thread has it until the node has begun.
    channel: Option<Channel>,
    host: Host,
    is_here: bool,
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
        let failed = |why| failed(J::KIND, &format!("cannot start a node: {why}"));
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let from = ours.try_clone().map_err(failed)?;
        let mut command = Command::new("/proc/self/exe");
        let number = theirs.as_raw_fd();
        command.args([J::KIND.name, "--control", &number.to_string()]);
        signals.leave_to(&mut command);
        keep(&mut command, number);
        if let Some(share) = share {
            bind(&mut command, share);
        }
        let child = command.spawn().map_err(failed)?;
        let channel = Channel { from: Box::new(from), to: Box::new(ours), errors: None };
        self.nodes.push(Node {
            child: Some(child),
            channel: Some(channel),
            host,
            is_here: true,
            is_reported: false,
        });
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
        let Remote { child, to, from, errors } = there.map_err(|line| failed(J::KIND, &line))?;
        let channel =
            Channel { from: Box::new(from), to: Box::new(to), errors: Some(Box::new(errors)) };
        self.nodes.push(Node {
            child: Some(child),
            channel: Some(channel),
            host,
            is_here: false,
            is_reported: false,
        });
        Ok(())
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
    pub fn meet(&mut self, signals: &Signals, timeout: u32) -> Result<(), Error> {
        let secret = *Secret::random().bytes();
        let nodes = self.nodes.len() as u32;
        let (say, hear) = channel();
        let mut tell = Vec::new();
        let all_are_here = self.nodes.iter().all(|node| node.is_here);
        for (node, it) in self.nodes.iter_mut().enumerate() {
            let (node, host, is_here) = (node as u32, &it.host, it.is_here);
            let to = Addressee { node, nodes, host, is_here, all_are_here, secret, timeout };
            let order = self.job.order(to);
            let (to, everybody): (Sender<J::Everybody>, Receiver<_>) = channel();
            tell.push(to);
            let (control, say) = (it.channel.take().expect("no thread has it yet"), say.clone());
            let thread = std::thread::Builder::new();
            thread
                .spawn(move || converse::<J>(control, node as usize, &order, &everybody, &say))
                .map_err(|why| failed(J::KIND, &format!("cannot start a thread: {why}")))?;
        }
        drop(say);
        let mut ready: Vec<Option<J::Ready>> = vec![None; self.nodes.len()];
        self.gather(signals, timeout, &hear, |_, node, said| match said {
            Said::Ready(it) => ready[node] = Some(it),
            _ => unreachable!("a node is ready before it begins"),
        })?;
        let everybody = self.job.everybody(ready.into_iter().flatten().collect());
        let everybody = everybody.map_err(|line| {
            self.end();
            failed(J::KIND, &line)
        })?;
        tell.iter().for_each(|to| drop(to.send(everybody.clone())));
        self.gather(signals, timeout, &hear, |this, node, said| match said {
            Said::Begun(mut channel) => {
                if let Some(errors) = channel.errors.take() {
                    pass_on(errors, this.nodes[node].host.name.clone());
                }
                this.nodes[node].channel = Some(channel);
            }
            _ => unreachable!("a node that is ready begins"),
        })
    }

    /// Takes the next message of each node. If one does not begin, the others are ended.
    fn gather(
        &mut self,
        signals: &Signals,
        timeout: u32,
        hear: &Receiver<(usize, Said<J::Ready>)>,
        take: impl FnMut(&mut Self, usize, Said<J::Ready>),
    ) -> Result<(), Error> {
        let said = self.listen(signals, timeout, hear, take);
        said.inspect_err(|_| self.end())
    }

    fn listen(
        &mut self,
        signals: &Signals,
        timeout: u32,
        hear: &Receiver<(usize, Said<J::Ready>)>,
        mut take: impl FnMut(&mut Self, usize, Said<J::Ready>),
    ) -> Result<(), Error> {
        let begin = Instant::now();
        let mut silent: Vec<usize> = (0..self.nodes.len()).collect();
        while !silent.is_empty() {
            match signals.pending() {
                None | Some(libc::SIGCHLD | libc::SIGWINCH) => {}
                Some(signal) => {
                    self.end();
                    let status = status::end_as(signal);
                    return Err(Error { line: String::new(), status });
                }
            }
            match hear.recv_timeout(LOOK) {
                Ok((_, Said::Refused(_))) if self.program_has_ended() => return Ok(()),
                Ok((node, Said::Refused(refusal))) => {
                    let Refusal { mut line, is_of_program } = refusal;
                    if !is_of_program && self.nodes.len() > 1 {
                        line = format!("{}: {line}", self.name(node));
                    }
                    let status = if is_of_program { 126 } else { 125 };
                    return Err(Error { status, ..failed(J::KIND, &line) });
                }
                Ok((node, said)) => {
                    silent.retain(|&it| it != node);
                    take(self, node, said);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if timeout > 0 && begin.elapsed() > Duration::from_secs(timeout.into()) {
                let name = self.name(silent[0]);
                return Err(failed(J::KIND, &format!("{name} does not begin within {timeout} s")));
            }
        }
        Ok(())
    }

    /// Returns true if the program has begun and has ended. Other nodes may notice that before they
    /// have begun: it is no error of theirs.
    fn program_has_ended(&mut self) -> bool {
        let origin = &mut self.nodes[0];
        let Some(child) = origin.child.as_mut().filter(|_| origin.channel.is_some()) else {
            return false;
        };
        let until = Instant::now() + NOTICE_MAX;
        loop {
            match child.try_wait() {
                Ok(Some(_)) => return true,
                _ if Instant::now() > until => return false,
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Forwards signals to the program until it has ended. Returns its exit status.
    pub fn wait(&mut self, signals: &Signals) -> i32 {
        let status = loop {
            let origin = self.nodes[0].child.as_mut().expect("it runs");
            if let Ok(Some(status)) = origin.try_wait() {
                break status.into_raw();
            }
            self.report_ended();
            let (signal, from_terminal) = signals.next();
            let origin = self.nodes[0].child.as_ref().expect("it runs");
            if signal != libc::SIGCHLD && !from_terminal {
                // SAFETY: kill touches no memory. The PID still names the origin, because it has
                // not been reaped.
                unsafe { libc::kill(origin.id().cast_signed(), signal) };
            }
        };
        self.nodes[0].child = None;
        let until = Instant::now() + END_MAX;
        let runs = |node: &mut Node| {
            let child = node.child.as_mut();
            child.is_some_and(|child| matches!(child.try_wait(), Ok(None)))
        };
        while Instant::now() < until && self.nodes.iter_mut().any(runs) {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.end();
        status::end_as(status)
    }

    /// Sends the origin the wait status of each node of this host that has ended.
    fn report_ended(&mut self) {
        let (origin, others) = self.nodes.split_first_mut().expect("the origin is a node");
        for (node, it) in (1..).zip(others) {
            let Some(child) = it.child.as_mut().filter(|_| it.is_here && !it.is_reported) else {
                continue;
            };
            if let (Ok(Some(status)), Some(channel)) = (child.try_wait(), &mut origin.channel) {
                it.is_reported = true;
                let ended = Ended { node, status: status.into_raw() };
                // If the channel is closed, the origin has ended, too.
                let _ = messages::send(&mut channel.to, &ended);
            }
        }
    }

    /// Ends all nodes that still run.
    fn end(&mut self) {
        for child in self.nodes.iter_mut().filter_map(|node| node.child.as_mut()) {
            let _ = child.kill();
            let _ = child.wait();
        }
        // The nodes on other hosts end with their channels.
        self.nodes.clear();
    }
}

impl<J: Job> Drop for Nodes<J> {
    fn drop(&mut self) {
        self.end();
    }
}

fn failed(kind: Kind, line: &str) -> Error {
    Error::new(format!("{}: {line}", kind.name))
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

/// Copies the lines that a node on another host prints to standard error, each with the host's name
/// in front.
fn pass_on(errors: Box<dyn Read + Send>, host: String) {
    let copy = move || {
        let mut lines = BufReader::new(errors);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
            eprint_line(&host, &line);
            line.clear();
        }
    };
    let _ = std::thread::Builder::new().spawn(copy);
}

fn eprint_line(host: &str, line: &[u8]) {
    let text = String::from_utf8_lossy(line);
    proc::error_line!("{host}: {}", text.trim_end());
}
