//! `nagaya run --nodes K`: a job over several address spaces of one machine. Each node is a
//! `nagaya run` of its own, which has a part of the tasks; here they are started, signalled
//! and waited for.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nagaya_server::{Failure, processors};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::program;
use crate::run::{Bind, FORWARDED, KILL_AFTER, Options, Part, StdinChoice, meeting};

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
        return Err(Failure::ours("--stdin all: one node's tasks only; choose one task, or none"));
    }
    let shares = shares(options.nodes as usize, options.bind)?;
    let signals = Signals::block()?;
    let host = meeting(options.n)?;
    let mut children = Vec::new();
    for node in 0..options.nodes {
        // Whole tasks in order, as even as can be.
        let border =
            |node: u32| (u64::from(node) * u64::from(options.n) / u64::from(options.nodes)) as u32;
        let (first, end) = (border(node), border(node + 1));
        let part = Part { first, size: options.n, socket: host.name().to_owned() };
        let mut command = Command::new("/proc/self/exe");
        command.args(arguments(options, node, &part, end - first));
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
    Ok(wait(&signals, &mut children, options.kill_on_bad_exit))
}

/// A share of processors for each node, if each is to have one: by default, where there are as
/// many as nodes.
pub fn shares(nodes: usize, bind: Option<Bind>) -> Result<Option<Vec<CpuSet>>, Failure> {
    if bind == Some(Bind::None) {
        return Ok(None);
    }
    let why = match processors::ours() {
        Ok(ours) if ours.len() >= nodes => return Ok(Some(processors::shares(&ours, nodes))),
        Ok(ours) => format!("there are {nodes} nodes, and we may use {} processors", ours.len()),
        Err(error) => format!("cannot tell which processors we may use: {error}"),
    };
    match bind {
        Some(_) => Err(Failure::ours(format!("--bind node: {why}"))),
        None => Ok(None),
    }
}

/// The node will run there, if it may.
pub fn bind(command: &mut Command, share: CpuSet) {
    // SAFETY: a plain call between fork and exec.
    unsafe {
        command.pre_exec(move || {
            let _ = sched_setaffinity(None, &share);
            Ok(())
        });
    }
}

/// What a node's `nagaya run` is started with.
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
    for (flag, given) in [("--label", options.label), ("-K", options.kill_on_bad_exit)] {
        if given {
            arguments.push(flag.into());
        }
    }
    arguments.push("--".into());
    arguments.extend(options.program.iter().cloned());
    arguments
}

/// Passes signals on until all nodes have ended.
fn wait(signals: &Signals, children: &mut [Option<Child>], kill_on_bad_exit: bool) -> i32 {
    let mut first_failure = 0;
    let mut interrupted: Option<Instant> = None;
    while children.iter().any(Option::is_some) {
        let next = match interrupted {
            None => Some(signals.next()),
            Some(since) => signals.next_within(NODE_KILL_AFTER.saturating_sub(since.elapsed())),
        };
        let Some((signal, from_terminal)) = next else {
            // They would have ended themselves by now: somebody has stopped them.
            signal_all(children, libc::SIGKILL);
            interrupted = None;
            continue;
        };
        if signal == libc::SIGINT {
            interrupted.get_or_insert_with(Instant::now);
        }
        // The terminal has told the nodes itself: they are in our process group.
        if signal != libc::SIGCHLD && !from_terminal {
            signal_all(children, signal);
        }
        let mut failed = false;
        for (node, place) in children.iter_mut().enumerate() {
            let Some(child) = place else { continue };
            let status = match child.try_wait() {
                Ok(Some(status)) => {
                    // Its tasks have gone with it, and could not say why.
                    if let Some(signal) = status.signal() {
                        let pid = child.id();
                        let _ = writeln!(
                            std::io::stderr(),
                            "nagaya: node {node} (PID {pid}) was killed by signal {signal}"
                        );
                    }
                    program::shell_status(status.into_raw())
                }
                Ok(None) => continue,
                Err(_) => 1,
            };
            *place = None;
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
        // SAFETY: a child that we have not waited for.
        unsafe { libc::kill(child.id().cast_signed(), signal) };
    }
}

/// The signals that we pass on, and word of ended children: blocked, and waited for.
pub struct Signals {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl Signals {
    pub fn block() -> Result<Self, Failure> {
        // SAFETY: plain calls on masks of ours.
        unsafe {
            let mut set = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in FORWARDED.iter().chain(&[libc::SIGCHLD]) {
                libc::sigaddset(&raw mut set, *signal);
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) {
                0 => Ok(Self { set, before }),
                error => {
                    let error = std::io::Error::from_raw_os_error(error);
                    Err(Failure::ours(format!("cannot block signals: {error}")))
                }
            }
        }
    }

    /// The child has the mask that we had.
    pub fn leave_to(&self, command: &mut Command) {
        let before = self.before;
        // SAFETY: a plain call between fork and exec.
        unsafe {
            command.pre_exec(move || {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
                Ok(())
            });
        }
    }

    /// A signal that has come, if any has that is not ignored.
    pub fn pending(&self) -> Option<i32> {
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: plain structures of ours.
        unsafe {
            let signal =
                libc::sigtimedwait(&raw const self.set, std::ptr::null_mut(), &raw const none);
            let mut action: libc::sigaction = std::mem::zeroed();
            let known =
                signal > 0 && libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0;
            (known && action.sa_sigaction != libc::SIG_IGN).then_some(signal)
        }
    }

    /// The next signal, and whether the terminal sent it.
    pub fn next(&self) -> (i32, bool) {
        loop {
            if let Some(next) = self.wait(std::ptr::null()) {
                return next;
            }
        }
    }

    /// The same; none if none comes within the limit.
    pub fn next_within(&self, limit: Duration) -> Option<(i32, bool)> {
        let (tv_sec, tv_nsec) = (limit.as_secs() as i64, i64::from(limit.subsec_nanos()));
        self.wait(&libc::timespec { tv_sec, tv_nsec })
    }

    fn wait(&self, limit: *const libc::timespec) -> Option<(i32, bool)> {
        // SAFETY: a plain structure, filled by the kernel; the limit is null or a valid one.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let signal = libc::sigtimedwait(&raw const self.set, &raw mut info, limit);
            (signal > 0).then_some((signal, info.si_code == libc::SI_KERNEL))
        }
    }
}
