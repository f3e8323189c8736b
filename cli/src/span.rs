//! `nagaya span`: a program whose threads run on several machines. Each node is a process of
//! its own, which is started here and told where the others are.

use std::ffi::OsString;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nagaya_server::Failure;
use span::place::Policy;
use span::talk::{self, Everybody, Order, Program, Ready};

use crate::nodes::{Signals, bind, shares};
use crate::program;
use crate::run::Bind;

/// How long nodes may take to say that they are there, and to end after the program.
const PATIENCE: Duration = Duration::from_secs(30);
const END_MAX: Duration = Duration::from_secs(3);

/// Options of `nagaya span`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Number of nodes: processes of this machine, as if each were a machine
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    nodes: u32,
    /// Where new threads go: to the node with the fewest for its processors (spread), or to the
    /// next only when one is full (pack)
    #[arg(long, value_name = "pack|spread", default_value = "spread")]
    place: Policy,
    /// Processors of nodes: each a share of its own (node; the default where there are as many as
    /// nodes), or all of them (none)
    #[arg(long, value_name = "node|none", hide_possible_values = true)]
    bind: Option<Bind>,
    /// Seconds after which a node that does not answer is given up; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    timeout: u32,
    /// One node, which is told the rest over this descriptor
    #[arg(long, hide = true, value_name = "DESCRIPTOR")]
    control: Option<i32>,
    /// Program and its arguments
    #[arg(
        required_unless_present = "control",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    program: Vec<OsString>,
}

/// Runs the program; its status.
pub fn span(options: &Options) -> Result<i32, Failure> {
    if let Some(descriptor) = options.control {
        // SAFETY: what we were started with, for this.
        let control = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let span::node::Failure { line, is_of_program } = span::node::run(control);
        let status = if is_of_program { 126 } else { 125 };
        return Err(Failure { message: format!("span: {line}"), status });
    }
    program::check_name(&options.program[0])?;
    let path = program::find(&options.program[0])?;
    let path = std::path::absolute(&path).unwrap_or(path);
    let opened = std::fs::metadata(&path);
    if let Err(why) = opened {
        let status = if why.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
        return Err(Failure { message: format!("{}: {why}", path.display()), status });
    }
    let arguments = options.program.iter().map(|it| it.clone().into_vec()).collect();
    let packs = options.place == Policy::Pack;
    let program = Program { path: path.as_os_str().as_bytes().to_vec(), arguments, packs };
    let signals = Signals::block()?;
    let mut nodes = Nodes::default();
    let shares = shares(options.nodes as usize, options.bind)?;
    for node in 0..options.nodes {
        let (ours, theirs) = UnixStream::pair()
            .map_err(|why| Failure::ours(format!("cannot make a socket: {why}")))?;
        let mut command = Command::new("/proc/self/exe");
        let number = theirs.as_raw_fd();
        command.args(["span", "--control", &number.to_string()]);
        signals.leave_to(&mut command);
        keep(&mut command, number);
        if let Some(shares) = &shares {
            bind(&mut command, shares[node as usize]);
        }
        let child =
            command.spawn().map_err(|why| Failure::ours(format!("cannot start a node: {why}")))?;
        nodes.0.push(Some(child));
        nodes.1.push(ours);
    }
    nodes.meet(options, &program)?;
    nodes.wait(&signals)
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

/// Their processes, the origin's first, and ways to them. Ended with us.
#[derive(Default)]
struct Nodes(Vec<Option<Child>>, Vec<UnixStream>);

impl Nodes {
    /// Lets them find each other, and the program begin.
    fn meet(&mut self, options: &Options, program: &Program) -> Result<(), Failure> {
        let secret = *span::node::secret().bytes();
        let failed = |node: usize, why: std::io::Error| {
            Failure::ours(format!("span: node {node} does not begin: {why}"))
        };
        for (node, way) in self.1.iter_mut().enumerate() {
            let order = Order {
                node: node as u32,
                nodes: options.nodes,
                secret,
                timeout: options.timeout,
                program: (node == 0).then(|| program.clone()),
            };
            way.set_read_timeout(Some(PATIENCE)).map_err(|why| failed(node, why))?;
            talk::say(way, &order).map_err(|why| failed(node, why))?;
        }
        let mut everybody = Everybody { nodes: Vec::new() };
        for (node, way) in self.1.iter_mut().enumerate() {
            let ready: Ready = match talk::hear(way) {
                Ok(ready) => ready,
                Err(why) => return Err(self.why_not(node, why)),
            };
            everybody.nodes.push(ready);
        }
        let origin = &everybody.nodes[0];
        for other in &everybody.nodes[1..] {
            if let [feature, ..] = talk::lacking(origin, other)[..] {
                let line = format!("span: {} has processors without {feature}", other.name);
                return Err(Failure::ours(line));
            }
        }
        for (node, way) in self.1.iter_mut().enumerate() {
            talk::say(way, &everybody).map_err(|why| failed(node, why))?;
        }
        self.1.clear();
        Ok(())
    }

    /// A node that does not begin has said why, if it still could.
    fn why_not(&mut self, node: usize, why: std::io::Error) -> Failure {
        let status = self.0[node].as_mut().and_then(|child| child.wait().ok());
        match status.and_then(|status| status.code()) {
            Some(status) if status != 0 => Failure { message: String::new(), status },
            _ => Failure::ours(format!("span: node {node} does not begin: {why}")),
        }
    }

    /// Passes signals on to the program until it has ended, and the nodes with it.
    fn wait(&mut self, signals: &Signals) -> Result<i32, Failure> {
        use std::os::unix::process::ExitStatusExt as _;
        let status = loop {
            let origin = self.0[0].as_mut().expect("it runs");
            if let Ok(Some(status)) = origin.try_wait() {
                break status.into_raw();
            }
            let (signal, from_terminal) = signals.next();
            if signal != libc::SIGCHLD && !from_terminal {
                // SAFETY: a child that we have not waited for.
                unsafe { libc::kill(origin.id().cast_signed(), signal) };
            }
        };
        self.0[0] = None;
        let until = Instant::now() + END_MAX;
        while Instant::now() < until && self.0.iter_mut().flatten().any(runs) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(program::end_as(status))
    }
}

fn runs(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for child in self.0.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
