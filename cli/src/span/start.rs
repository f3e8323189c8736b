//! The processes of the nodes: started here or by ssh, told of each other, waited for. They end
//! with us.

use std::io::{BufRead as _, BufReader, Read};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use fabric::remote;
use nagaya_server::Failure;
use rustix::thread::CpuSet;
use span::hosts::Host;
use span::talk::{self, Everybody, Order, Program, Ready};

use super::failure;
use super::way::{Said, Way, converse};
use crate::nodes::{Signals, bind};
use crate::program;

/// How often the beginning looks whether a signal has come.
const LOOK: Duration = Duration::from_millis(50);
/// How long nodes may take to end after the program.
const END_MAX: Duration = Duration::from_secs(3);

/// The nodes, the origin's first.
#[derive(Default)]
pub struct Nodes(Vec<Node>);

struct Node {
    child: Option<Child>,
    /// Until it has begun, others have it.
    way: Option<Way>,
    host: Host,
    is_here: bool,
}

impl Nodes {
    /// Starts a node on this host.
    pub fn start_here(
        &mut self,
        signals: &Signals,
        share: Option<CpuSet>,
        host: Host,
    ) -> Result<(), Failure> {
        let failed = |why| Failure::ours(format!("span: cannot start a node: {why}"));
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let from = ours.try_clone().map_err(failed)?;
        let mut command = Command::new("/proc/self/exe");
        let number = theirs.as_raw_fd();
        command.args(["span", "--control", &number.to_string()]);
        signals.leave_to(&mut command);
        keep(&mut command, number);
        if let Some(share) = share {
            bind(&mut command, share);
        }
        let child = command.spawn().map_err(failed)?;
        let way = Way { from: Box::new(from), to: Box::new(ours), errors: None };
        self.0.push(Node { child: Some(child), way: Some(way), host, is_here: true });
        Ok(())
    }

    /// Starts a node on another host.
    pub fn start_there(
        &mut self,
        signals: &Signals,
        host: Host,
        nagaya: Option<&str>,
    ) -> Result<(), Failure> {
        let script = match (nagaya, std::env::current_exe()) {
            (Some(path), _) => format!("exec {} span --join", remote::quoted(path)),
            (None, Ok(own)) => remote::nagaya(&own, "span --join"),
            (None, Err(_)) => "exec nagaya span --join".to_owned(),
        };
        let mut command = remote::command("NAGAYA_RSH", None, &host.name, &script);
        signals.leave_to(&mut command);
        alone(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|why| {
            let ssh = command.get_program().display();
            Failure::ours(format!("span: cannot run {ssh}: {why} (NAGAYA_RSH names another)"))
        })?;
        let way = match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(to), Some(from), Some(errors)) => {
                Some(Way { from: Box::new(from), to: Box::new(to), errors: Some(Box::new(errors)) })
            }
            _ => None,
        };
        self.0.push(Node { child: Some(child), way, host, is_here: false });
        Ok(())
    }

    /// What the node is called.
    fn name(&self, node: usize) -> String {
        match &self.0[node].host.name {
            name if name.is_empty() => format!("node {node}"),
            name => format!("node {node} ({name})"),
        }
    }

    /// Lets them find each other, and the program begin.
    pub fn meet(
        &mut self,
        signals: &Signals,
        timeout: u32,
        program: &Program,
    ) -> Result<(), Failure> {
        let secret = *span::node::secret().bytes();
        let nodes = self.0.len() as u32;
        let (say, hear) = channel();
        let mut tell = Vec::new();
        for (node, it) in self.0.iter_mut().enumerate() {
            let host = &it.host;
            let order = Order {
                node: node as u32,
                nodes,
                secret,
                timeout,
                host: (!host.name.is_empty()).then(|| host.name.clone()),
                processors: host.processors,
                variables: if it.is_here { Vec::new() } else { network_settings() },
                program: (node == 0).then(|| program.clone()),
            };
            let (to, everybody): (Sender<Everybody>, Receiver<Everybody>) = channel();
            tell.push(to);
            let (way, say) = (it.way.take().expect("nobody has it yet"), say.clone());
            let thread = std::thread::Builder::new();
            thread
                .spawn(move || converse(way, node, &order, &everybody, &say))
                .map_err(|why| Failure::ours(format!("span: cannot start a thread: {why}")))?;
        }
        drop(say);
        let mut ready: Vec<Option<Ready>> = vec![None; self.0.len()];
        self.gather(signals, timeout, &hear, |_, node, said| match said {
            Said::Ready(it) => ready[node] = Some(it),
            _ => unreachable!("a node is ready before it begins"),
        })?;
        let everybody = Everybody { nodes: ready.into_iter().flatten().collect() };
        let origin = &everybody.nodes[0];
        for other in &everybody.nodes[1..] {
            if let [feature, ..] = talk::lacking(origin, other)[..] {
                let line = format!("span: {} has processors without {feature}", other.name);
                self.end();
                return Err(Failure::ours(line));
            }
        }
        tell.iter().for_each(|to| drop(to.send(everybody.clone())));
        self.gather(signals, timeout, &hear, |this, node, said| match said {
            Said::Begun(mut way) => {
                if let Some(errors) = way.errors.take() {
                    pass_on(errors, this.0[node].host.name.clone());
                }
                this.0[node].way = Some(way);
            }
            _ => unreachable!("a node that is ready begins"),
        })
    }

    /// Takes what each node says next. If one does not begin, the others end without a word.
    fn gather(
        &mut self,
        signals: &Signals,
        timeout: u32,
        hear: &Receiver<(usize, Said)>,
        take: impl FnMut(&mut Self, usize, Said),
    ) -> Result<(), Failure> {
        let said = self.listen(signals, timeout, hear, take);
        said.inspect_err(|_| self.end())
    }

    fn listen(
        &mut self,
        signals: &Signals,
        timeout: u32,
        hear: &Receiver<(usize, Said)>,
        mut take: impl FnMut(&mut Self, usize, Said),
    ) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut silent: Vec<usize> = (0..self.0.len()).collect();
        while !silent.is_empty() {
            match signals.pending() {
                None | Some(libc::SIGCHLD | libc::SIGWINCH) => {}
                Some(signal) => {
                    self.end();
                    let status = program::end_as(signal);
                    return Err(Failure { message: String::new(), status });
                }
            }
            match hear.recv_timeout(LOOK) {
                Ok((node, Said::Refused(refusal))) => {
                    let mut failure = failure(refusal.clone());
                    if !refusal.is_of_program && self.0.len() > 1 {
                        failure.message = format!("span: {}: {}", self.name(node), refusal.line);
                    }
                    return Err(failure);
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
                let line = format!("span: {name} does not begin within {timeout} s");
                return Err(Failure::ours(line));
            }
        }
        Ok(())
    }

    /// Passes signals on to the program until it has ended, and the nodes with it.
    pub fn wait(&mut self, signals: &Signals) -> Result<i32, Failure> {
        let status = loop {
            let origin = self.0[0].child.as_mut().expect("it runs");
            if let Ok(Some(status)) = origin.try_wait() {
                break status.into_raw();
            }
            let (signal, from_terminal) = signals.next();
            if signal != libc::SIGCHLD && !from_terminal {
                // SAFETY: a child that we have not waited for.
                unsafe { libc::kill(origin.id().cast_signed(), signal) };
            }
        };
        self.0[0].child = None;
        let until = Instant::now() + END_MAX;
        let runs = |node: &mut Node| {
            let child = node.child.as_mut();
            child.is_some_and(|child| matches!(child.try_wait(), Ok(None)))
        };
        while Instant::now() < until && self.0.iter_mut().any(runs) {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.end();
        Ok(program::end_as(status))
    }

    /// Ends those that run.
    fn end(&mut self) {
        for child in self.0.iter_mut().filter_map(|node| node.child.as_mut()) {
            let _ = child.kill();
            let _ = child.wait();
        }
        // With the ways end those on other hosts.
        self.0.clear();
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.end();
    }
}

/// The child has this descriptor, too.
fn keep(command: &mut Command, descriptor: i32) {
    // SAFETY: a plain call between fork and exec.
    unsafe {
        command.pre_exec(move || match libc::fcntl(descriptor, libc::F_SETFD, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

/// What the terminal sends is the program's affair, and not ssh's. A killed starter's ssh ends,
/// even if its network hangs.
fn alone(command: &mut Command) {
    command.process_group(0);
    // SAFETY: a plain call between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            Ok(())
        });
    }
}

/// Variables of UCX, which are in force on all hosts.
fn network_settings() -> Vec<(String, String)> {
    let all = std::env::vars_os().filter_map(|(name, value)| {
        let pair = (name.into_string().ok()?, value.into_string().ok()?);
        pair.0.starts_with("UCX_").then_some(pair)
    });
    all.collect()
}

/// What another host's node prints comes to standard error, with the host's name.
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
    use std::io::Write as _;
    let text = String::from_utf8_lossy(line);
    // The terminal may be gone.
    let _ = writeln!(std::io::stderr(), "{host}: {}", text.trim_end());
}
