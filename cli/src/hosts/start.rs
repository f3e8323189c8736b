//! The processes of the nodes: started here or by ssh, told of each other, waited for. They end
//! with us.

use std::io::{BufRead as _, BufReader, Read};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use nagaya_server::Failure;
use net::remote;
use net::secret::Secret;
use net::talk::{Kind, Refusal};
use rustix::thread::CpuSet;
use serde::Serialize;
use serde::de::DeserializeOwned;
use span::hosts::Host;

use super::way::{Said, Way, converse};
use crate::nodes::{Signals, bind};
use crate::program;

/// How often the beginning looks whether a signal has come.
const LOOK: Duration = Duration::from_millis(50);
/// How long nodes may take to end after the program.
const END_MAX: Duration = Duration::from_secs(3);

/// What is run on nodes, and what is said to them. A node is `nagaya NAME --control DESCRIPTOR`
/// on this host, and `nagaya NAME --join` on others, by the kind's name.
pub trait Job {
    /// What nodes greet with.
    const KIND: Kind;
    /// To a node, at first.
    type Order: Serialize + Send + 'static;
    /// From a node: it is there.
    type Ready: DeserializeOwned + Clone + Send + 'static;
    /// To each node: where all are.
    type Everybody: Serialize + Clone + Send + 'static;

    /// What a node is to do.
    fn order(&self, to: Addressee<'_>) -> Self::Order;

    /// What is told to all when all are there; or why that cannot be.
    fn everybody(&self, ready: Vec<Self::Ready>) -> Result<Self::Everybody, String>;
}

/// Whom an order is for.
pub struct Addressee<'a> {
    /// Which node it is.
    pub node: u32,
    /// How many there are.
    pub nodes: u32,
    /// Its host.
    pub host: &'a Host,
    /// Whether that is this one.
    pub is_here: bool,
    /// The job's secret.
    pub secret: [u8; 32],
    /// Seconds after which a silent node is lost; 0: never.
    pub timeout: u32,
}

impl Addressee<'_> {
    /// For its environment, where that is not ours: the network's settings.
    pub fn variables(&self) -> Vec<(String, String)> {
        if self.is_here { Vec::new() } else { network_settings() }
    }
}

/// The nodes, the origin's first.
pub struct Nodes<J: Job> {
    job: J,
    nodes: Vec<Node>,
}

struct Node {
    child: Option<Child>,
    /// Until it has begun, others have it.
    way: Option<Way>,
    host: Host,
    is_here: bool,
}

impl<J: Job> Nodes<J> {
    /// None yet.
    pub fn new(job: J) -> Self {
        Self { job, nodes: Vec::new() }
    }

    /// Starts a node on this host.
    pub fn start_here(
        &mut self,
        signals: &Signals,
        share: Option<CpuSet>,
        host: Host,
    ) -> Result<(), Failure> {
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
        let way = Way { from: Box::new(from), to: Box::new(ours), errors: None };
        self.nodes.push(Node { child: Some(child), way: Some(way), host, is_here: true });
        Ok(())
    }

    /// Starts a node on another host.
    pub fn start_there(
        &mut self,
        signals: &Signals,
        host: Host,
        nagaya: Option<&str>,
    ) -> Result<(), Failure> {
        let join = format!("{} --join", J::KIND.name);
        let script = match (nagaya, std::env::current_exe()) {
            (Some(path), _) => remote::named(path, &join, "--nagaya"),
            (None, Ok(own)) => remote::nagaya(&own, &join, "--nagaya"),
            (None, Err(_)) => remote::named("nagaya", &join, "--nagaya"),
        };
        let mut command = remote::command("NAGAYA_RSH", None, &host.name, &script);
        signals.leave_to(&mut command);
        alone(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|why| {
            let ssh = command.get_program().display();
            failed(J::KIND, &format!("cannot run {ssh}: {why} (NAGAYA_RSH names another)"))
        })?;
        let way = match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(to), Some(from), Some(errors)) => {
                Some(Way { from: Box::new(from), to: Box::new(to), errors: Some(Box::new(errors)) })
            }
            _ => None,
        };
        self.nodes.push(Node { child: Some(child), way, host, is_here: false });
        Ok(())
    }

    /// What the node is called.
    fn name(&self, node: usize) -> String {
        match &self.nodes[node].host.name {
            name if name.is_empty() => format!("node {node}"),
            name => format!("node {node} ({name})"),
        }
    }

    /// Lets them find each other, and the program begin.
    pub fn meet(&mut self, signals: &Signals, timeout: u32) -> Result<(), Failure> {
        let secret = *Secret::random().bytes();
        let nodes = self.nodes.len() as u32;
        let (say, hear) = channel();
        let mut tell = Vec::new();
        for (node, it) in self.nodes.iter_mut().enumerate() {
            let (node, host, is_here) = (node as u32, &it.host, it.is_here);
            let to = Addressee { node, nodes, host, is_here, secret, timeout };
            let order = self.job.order(to);
            let (to, everybody): (Sender<J::Everybody>, Receiver<_>) = channel();
            tell.push(to);
            let (way, say) = (it.way.take().expect("nobody has it yet"), say.clone());
            let thread = std::thread::Builder::new();
            thread
                .spawn(move || converse::<J>(way, node as usize, &order, &everybody, &say))
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
            Said::Begun(mut way) => {
                if let Some(errors) = way.errors.take() {
                    pass_on(errors, this.nodes[node].host.name.clone());
                }
                this.nodes[node].way = Some(way);
            }
            _ => unreachable!("a node that is ready begins"),
        })
    }

    /// Takes what each node says next. If one does not begin, the others end without a word.
    fn gather(
        &mut self,
        signals: &Signals,
        timeout: u32,
        hear: &Receiver<(usize, Said<J::Ready>)>,
        take: impl FnMut(&mut Self, usize, Said<J::Ready>),
    ) -> Result<(), Failure> {
        let said = self.listen(signals, timeout, hear, take);
        said.inspect_err(|_| self.end())
    }

    fn listen(
        &mut self,
        signals: &Signals,
        timeout: u32,
        hear: &Receiver<(usize, Said<J::Ready>)>,
        mut take: impl FnMut(&mut Self, usize, Said<J::Ready>),
    ) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut silent: Vec<usize> = (0..self.nodes.len()).collect();
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
                    let Refusal { mut line, is_of_program } = refusal;
                    if !is_of_program && self.nodes.len() > 1 {
                        line = format!("{}: {line}", self.name(node));
                    }
                    let status = if is_of_program { 126 } else { 125 };
                    return Err(Failure { status, ..failed(J::KIND, &line) });
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

    /// Passes signals on to the program until it has ended, and the nodes with it.
    pub fn wait(&mut self, signals: &Signals) -> Result<i32, Failure> {
        let status = loop {
            let origin = self.nodes[0].child.as_mut().expect("it runs");
            if let Ok(Some(status)) = origin.try_wait() {
                break status.into_raw();
            }
            let (signal, from_terminal) = signals.next();
            if signal != libc::SIGCHLD && !from_terminal {
                // SAFETY: a child that we have not waited for.
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
        Ok(program::end_as(status))
    }

    /// Ends those that run.
    fn end(&mut self) {
        for child in self.nodes.iter_mut().filter_map(|node| node.child.as_mut()) {
            let _ = child.kill();
            let _ = child.wait();
        }
        // With the ways end those on other hosts.
        self.nodes.clear();
    }
}

impl<J: Job> Drop for Nodes<J> {
    fn drop(&mut self) {
        self.end();
    }
}

fn failed(kind: Kind, line: &str) -> Failure {
    Failure::ours(format!("{}: {line}", kind.name))
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
