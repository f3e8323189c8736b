//! `nagaya run`: N tasks of a program in a space that this process owns.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use coherence::ride::Policy;
use dsm::rendezvous::Host;
use machines::join::Joined;
use machines::{Machines, Outcome};
use nagaya_layout::{REGION_END, REGION_START, SpaceLayout};
use nagaya_server::Failure;
use nagaya_server::identity::Identity;
use nagaya_server::inherit::{self, Inheritance};
use nagaya_server::job::{Job, directory, listen};
use nagaya_server::server::{Server, segment_size_for};
use net::control::Control;
use pvas::Attributes;

use crate::delegatee::Place;
use crate::domains::Domains;
use crate::machines as launch;
use crate::nodes;
use crate::pool::{self, Pools};
use crate::program;
use crate::server::raise_open_files;

/// Run N tasks of a program in one address space
///
/// The tasks are processes of this machine, each in a segment of its own. No launcher is needed.
/// The status is that of the first task that fails, or 0. See nagaya-run(1).
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Number of tasks
    #[arg(short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) n: u32,
    /// Domains: so many tasks with page tables of their own on each of these processors, such as
    /// 0-1:4,2-3:4. Also all, node0 (NUMA), big, little, cgroup=PATH; and of other machines @HOST
    /// or @HOST/PLACE, reached by ssh (or NAGAYA_RSH)
    #[arg(long, value_name = "PLACE:TASKS,...", conflicts_with_all = ["n", "nodes"])]
    pub(super) domains: Option<Domains>,
    /// With other machines that have memory in common with this one, such as virtual machines of
    /// one host: that memory, a file or a DAX device; HOST's own path where it differs
    #[arg(long, value_name = "PATH[,HOST=PATH]...", requires = "domains")]
    pub(super) pool: Option<Pools>,
    /// A delegatee of the node server's: so many threads on these processors that do I/O for tasks
    /// (see pvas_delegate(3)), such as 3:1
    #[arg(long, value_name = "PLACE:THREADS")]
    pub(super) delegatee: Option<Place>,
    /// With other machines: the program nagaya there (else where it is here, or where PATH says)
    #[arg(long, value_name = "PATH", requires = "domains")]
    pub(super) nagaya: Option<String>,
    /// With other machines: seconds in which they must begin, and after which one that does not
    /// answer is given up; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub(super) timeout: u32,
    /// One of several machines, which is told the rest over this descriptor
    #[arg(long, hide = true, value_name = "DESCRIPTOR")]
    pub(super) control: Option<i32>,
    /// One of several machines, which is told the rest by standard input
    #[arg(long, hide = true)]
    pub(super) join: bool,
    /// Number of nodes, each with a space of its own, over which the tasks are divided
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) nodes: u32,
    /// Processors of nodes: each a share of its own (node; the default where there are as many as
    /// nodes), or all of them (none)
    #[arg(long, value_name = "node|none", hide_possible_values = true)]
    pub(super) bind: Option<Bind>,
    /// Which part of a job this is: one of its nodes
    #[arg(long, hide = true, value_name = "FIRST:SIZE:SOCKET", value_parser = Part::parse)]
    pub(super) part: Option<Part>,
    /// Size of a segment, such as 32G (default: by memory and number of tasks)
    #[arg(long, value_name = "SIZE", value_parser = program::segment_size)]
    pub(super) segment_size: Option<u64>,
    /// Set a variable in the tasks, or pass one on
    #[arg(short = 'x', value_name = "VAR[=VALUE]")]
    pub(super) variables: Vec<OsString>,
    /// Shared memory between nodes: pages that ride along on messages: normal (none), ainori1
    /// (with pages), ainori2 (and with barriers), ainori3 (and with locks), auto (with all of
    /// these, as the best of several predictors say; the default), runs (with pages: what is
    /// behind them)
    #[arg(long, value_name = "POLICY", value_parser = crate::sim::policy)]
    pub(super) rides: Option<Policy>,
    /// Whether output is labelled.
    #[arg(short, long, help = "Begin each line of output with [ID]")]
    pub(super) label: bool,
    /// Working directory of the tasks
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(super) chdir: Option<PathBuf>,
    /// Kill the rest when a task fails
    #[arg(short = 'K', long)]
    pub(super) kill_on_bad_exit: bool,
    /// Which tasks read standard input
    #[arg(long, value_name = "all|none|ID", default_value = "0", value_parser = stdin_choice)]
    pub(super) stdin: StdinChoice,
    /// Name of the job (default: run:PID)
    #[arg(long, value_name = "NAME")]
    pub(super) job: Option<String>,
    /// Program and its arguments
    #[arg(
        required_unless_present_any = ["control", "join"],
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(super) program: Vec<OsString>,
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

/// Who gets our standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdinChoice {
    All,
    None,
    Task(u32),
}

/// Which processors nodes have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Bind {
    /// Each a share of its own.
    Node,
    /// All of them all.
    None,
}

fn stdin_choice(text: &str) -> Result<StdinChoice, String> {
    match text {
        "all" => Ok(StdinChoice::All),
        "none" => Ok(StdinChoice::None),
        id => id.parse().map(StdinChoice::Task).map_err(|_| "must be all, none or an ID".into()),
    }
}

/// From the first Ctrl-C on: SIGTERM, then SIGKILL.
const TERM_AFTER: Duration = Duration::from_secs(5);
/// See above.
pub const KILL_AFTER: Duration = Duration::from_secs(10);

/// Signals that are passed on to the tasks.
pub const FORWARDED: &[i32] = &[
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
];

/// Runs the tasks; returns the first failing status, or 0.
pub fn run(options: Options) -> Result<i32, Failure> {
    if let Some(descriptor) = options.control {
        return launch::machine(launch::control(descriptor));
    }
    if options.join {
        // SAFETY: this process does nothing else.
        return launch::machine(Ok(unsafe { Control::standard() }));
    }
    if options.nodes > 1 {
        return nodes::run(&options);
    }
    let machines = options.domains.as_ref().map(Domains::machines).transpose()?.flatten();
    match machines {
        Some(_) if options.delegatee.is_some() => Err(Failure::ours(
            "--delegatee: not with domains of other machines (a task of one can be the delegatee)",
        )),
        Some(machines) => launch::run(&options, &machines),
        None if options.pool.is_some() => Err(Failure::ours(
            "--pool: only with domains of other machines (--domains ...,@HOST:4)",
        )),
        None => run_tasks(options, Given::now(), None),
    }
}

/// What this process was started with, and its tasks will be.
pub struct Given {
    mask: u64,
    fds: Vec<RawFd>,
}

impl Given {
    /// Before there is anything else in this process.
    pub fn now() -> Self {
        let fds = inherit::fds().unwrap_or_else(|_| vec![0, 1, 2]);
        Self { mask: program::signal_mask(), fds }
    }
}

/// One of several machines: runs its tasks, and returns when all machines' have ended.
pub fn run_machine(options: Options, given: Given, joined: &mut Joined) -> Result<i32, Failure> {
    run_tasks(options, given, Some(joined))
}

fn run_tasks(
    mut options: Options,
    given: Given,
    mut joined: Option<&mut Joined>,
) -> Result<i32, Failure> {
    let domains = options.domains.as_ref().map(|it| it.found("--domains")).transpose()?;
    if let Some(domains) = &options.domains {
        options.n = domains.tasks();
    }
    let options = options;
    let inheritance = Inheritance::of_this_process(given.mask);
    program::check_name("run", &options.program[0])?;
    let path = find(&options)?;
    let environment = match &joined {
        None => environment(&options)?,
        Some(joined) => {
            let entries = joined.order.environment.iter();
            entries.filter_map(|entry| CString::new(entry.clone()).ok()).collect()
        }
    };
    if let StdinChoice::Task(task) = options.stdin
        && task >= options.n
        && task != 0
        && joined.is_none()
    {
        let n = options.n;
        return Err(Failure::ours(format!("--stdin {task}: no such task (there are {n})")));
    }
    if let Some(directory) = &options.chdir
        && let Err(error) = std::fs::metadata(directory.join("."))
    {
        return Err(Failure::ours(format!("--chdir {}: {error}", directory.display())));
    }
    raise_open_files();

    let name = options.job.clone().unwrap_or_else(|| format!("run:{}", std::process::id()));
    let job = Job { name, local_tasks: Some(options.n), local_rank: None, expected_tasks: None };
    let socket = Socket::listen(job.socket(&directory()?, &Identity::of_this_process()))?;
    let size = program::wanted_segment_size(options.segment_size)?
        .unwrap_or_else(|| segment_size_for(Some(options.n)));
    let ids = SpaceLayout::tasks_within(size, REGION_END - REGION_START);
    if options.n > ids {
        return Err(Failure::ours(format!(
            "{} tasks do not fit: segments of {} give {ids} (choose a smaller --segment-size)",
            options.n,
            crate::ps::human(size)
        )));
    }
    // What we were started to ignore, as a script's background jobs do SIGINT, stays so.
    let heard = FORWARDED.iter().filter(|&&signal| !inheritance.ignores(signal));
    let signals = heard.fold(0, |set, signal| set | 1u64 << (signal - 1));
    let is_fixed = pvas::is_fixed(&path).map_err(|e| Failure::from(&e))?;
    if is_fixed && joined.is_some() {
        return Err((&pvas::Error::OverMachines).into());
    }
    let shared = domains.is_some() || is_fixed;
    let mut server = Server::new(&job.name, socket.listener()?, size, shared, signals)?;
    let domains = domains.unwrap_or_default();
    let mut processors = Vec::new();
    for (number, domain) in domains.iter().enumerate() {
        let first = processors.len() as u32;
        processors.extend((0..domain.tasks).map(|_| domain.mask()));
        // Programs that are linked to their addresses cannot share an mm: each gets its own.
        if is_fixed {
            for id in first..first + domain.tasks {
                server.add_domain(id..id + 1, domain.mask())?;
            }
        } else if number > 0 {
            server.add_domain(first..first + domain.tasks, domain.mask())?;
        }
    }

    if let Some(place) = &options.delegatee {
        let place = place.found()?;
        server.start_delegatee(place.mask(), place.tasks)?;
    }

    // Threads of ours take no signal: they are blocked from here on.
    let over = match &mut joined {
        None => None,
        Some(joined) => {
            let pool = joined.order.pool.as_ref().map(|(path, mark)| pool::open(path, *mark));
            let pool = pool.transpose().map_err(Failure::ours)?;
            Some(Arc::new(joined.begin(server.space(), pool).map_err(Failure::ours)?))
        }
    };
    let ids = joined.as_ref().map_or(0..options.n, |joined| joined.ids());
    // Of other machines' tasks the first prints what they write.
    let is_far = ids.start > 0;
    let part = match (&options.part, &joined) {
        (Some(part), _) => part.clone(),
        (None, Some(joined)) => Part { first: 0, size: joined.tasks(), socket: String::new() },
        (None, None) => {
            let socket = meeting(options.n)?.name().to_owned();
            Part { first: 0, size: options.n, socket }
        }
    };
    let null = File::open("/dev/null").map_err(|e| Failure::ours(format!("/dev/null: {e}")))?;
    let mut labels = Vec::new();
    let mut readers = Vec::new();
    // A task that closes its input, or whoever reads our output, must not end us.
    // SAFETY: changes what a signal does to this process; tasks have their own.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    // SAFETY: a plain read.
    let base = inheritance.attributes(unsafe { libc::getsid(0) }, None);
    for id in ids.clone() {
        let own = given.fds.iter().filter(|_| !is_far);
        let mut fds: Vec<(RawFd, RawFd)> = own.map(|&fd| (fd, fd)).collect();
        let mut pipes: Vec<OwnedFd> = Vec::new();
        let new_pipe = || pipe().map_err(|e| Failure::ours(format!("pipe: {e} (raise ulimit -n)")));
        let input = match options.stdin {
            StdinChoice::Task(task) if task == id => None,
            StdinChoice::All => {
                let (reader, writer) = new_pipe()?;
                let input = reader.as_raw_fd();
                pipes.push(reader);
                readers.push(File::from(writer));
                Some(input)
            }
            _ => Some(null.as_raw_fd()),
        };
        if let Some(input) = input {
            fds.retain(|fd| fd.1 != 0);
            fds.push((input, 0));
        }
        if options.label || is_far {
            for stream in [1, 2] {
                let (reader, writer) = new_pipe()?;
                fds.retain(|fd| fd.1 != stream);
                fds.push((writer.as_raw_fd(), stream));
                pipes.push(writer);
                let prefix = options.label.then(|| format!("[{}] ", part.first + id));
                let printer = Printer { stream, over: over.clone().filter(|_| is_far) };
                labels.push(copy_output(prefix, printer, reader));
            }
        }
        let affinity = processors.get((id - ids.start) as usize).unwrap_or(&base.affinity).clone();
        let attributes =
            Attributes { fds: Some(fds), cwd: cwd(&options)?, affinity, ..base.clone() };
        let mut environment = environment.clone();
        let rank = part.first + id;
        set(&mut environment, "NAGAYA_TASK_ID", &rank.to_string());
        set(&mut environment, "NAGAYA_TASKS", &part.size.to_string());
        // libjia's tasks meet on one machine.
        if joined.is_none() {
            for (name, value) in Host::environment(&part.socket, rank, part.size) {
                set(&mut environment, name, &value);
            }
        }
        let arguments = arguments(&options)?;
        if let Err(failure) = server.spawn(Some(id), &path, arguments, &environment, &attributes) {
            // What runs already must not outlive the failure.
            for pid in server.pids() {
                server.signal(pid, libc::SIGKILL, None);
            }
            server.close();
            return Err(failure);
        }
    }
    if options.stdin == StdinChoice::All {
        std::thread::spawn(|| copy_input(readers));
    }
    if let Some(joined) = joined {
        joined.begun().map_err(Failure::ours)?;
    }
    let mut status = wait(&mut server, &options, over.as_deref());
    // What tasks have left behind may keep their output open.
    let killed = over.as_ref().is_some_and(|over| over.outcome().kill);
    for label in labels.into_iter().filter(|_| !killed) {
        let _ = label.join();
    }
    if let Some(over) = over {
        status = wait_for_others(&mut server, &over, status, is_far);
        over.stop();
    }
    server.close();
    Ok(status)
}

/// Waits until the tasks of all machines have ended, ours with this status; returns the first
/// failing status, or 0.
fn wait_for_others(server: &mut Server, over: &Machines, status: i32, is_far: bool) -> i32 {
    const LOOK: Duration = Duration::from_millis(500);
    over.finish(status);
    loop {
        let Outcome { statuses, over: is_over, lost, failure, .. } = over.outcome();
        if lost {
            return 1;
        }
        if is_over {
            return status;
        }
        if !is_far && !statuses.is_empty() && statuses.iter().all(Option::is_some) {
            over.end();
            let all = failure.into_iter().chain([status]).chain(statuses.into_iter().flatten());
            return all.into_iter().find(|&status| status != 0).unwrap_or(0);
        }
        for (signal, _) in server.turn(Some(LOOK)).signals {
            over.signal(signal);
        }
    }
}

/// Where so many tasks meet that share memory (libjia).
pub fn meeting(tasks: u32) -> Result<Host, Failure> {
    // As Ctrl-C does: who does not mind that is killed after a while.
    let ends = || {
        // SAFETY: a signal to ourselves, which `wait` takes.
        unsafe { libc::kill(libc::getpid(), libc::SIGINT) };
    };
    Host::new(tasks, ends).map_err(|error| {
        Failure::ours(match error.raw_os_error() {
            Some(libc::EAGAIN) => {
                "thread: too many, or no memory for it (raise ulimit -u or -v)".into()
            }
            _ => format!("a socket for the job: {error}"),
        })
    })
}

/// Serves until all tasks have ended.
fn wait(server: &mut Server, options: &Options, over: Option<&Machines>) -> i32 {
    let first = options.part.as_ref().map_or(0, |part| part.first);
    let mut first_failure = 0;
    let mut interrupted: Option<Instant> = None;
    let mut termed = false;
    let mut killed = false;
    let is_far = over.is_some_and(|over| over.me() > 0);
    let all = |server: &Server, signal| {
        for pid in server.pids() {
            server.signal(pid, signal, None);
        }
    };
    while !server.pids().is_empty() {
        let turn = server.turn(interrupted.map(|_| Duration::from_millis(100)));
        for ended in turn.ended {
            let status = program::shell_status(ended.status);
            if status == 0 {
                continue;
            }
            let is_news = interrupted.is_none() && first_failure == 0 && !killed;
            if libc::WIFSIGNALED(ended.status) && is_news {
                let _ = writeln!(
                    std::io::stderr(),
                    "nagaya: task {} (PID {}) was killed by signal {}",
                    first + ended.id,
                    ended.pid,
                    libc::WTERMSIG(ended.status)
                );
            }
            if first_failure == 0 {
                first_failure = status;
                if options.kill_on_bad_exit {
                    all(server, libc::SIGKILL);
                    over.inspect(|over| over.fail(status));
                }
            }
        }
        if over.is_some_and(|over| over.outcome().kill) {
            killed = true;
            all(server, libc::SIGKILL);
        }
        for (signal, from_terminal) in turn.signals {
            over.filter(|_| !is_far).inspect(|over| over.signal(signal));
            if signal == libc::SIGINT {
                if interrupted.is_some() {
                    all(server, libc::SIGKILL);
                    continue;
                }
                interrupted = Some(Instant::now());
            }
            // The terminal has told the tasks itself: they are in our process group.
            if !from_terminal {
                all(server, signal);
            }
        }
        if let Some(since) = interrupted {
            if since.elapsed() > KILL_AFTER {
                all(server, libc::SIGKILL);
            } else if since.elapsed() > TERM_AFTER && !termed {
                termed = true;
                all(server, libc::SIGTERM);
            }
        }
    }
    match interrupted {
        Some(_) if first_failure == 0 => 128 + libc::SIGINT,
        _ => first_failure,
    }
}

/// The job's socket, removed at the end.
struct Socket {
    path: PathBuf,
    listener: UnixListener,
}

impl Socket {
    fn listen(path: PathBuf) -> Result<Self, Failure> {
        let fail = |e: std::io::Error| Failure::ours(format!("{}: {e}", path.display()));
        if std::os::unix::net::UnixStream::connect(&path).is_ok() {
            return Err(Failure::ours("a job of this name runs already (choose another --job)"));
        }
        let listener = listen(&path).map_err(fail)?;
        Ok(Self { path, listener })
    }

    fn listener(&self) -> Result<OwnedFd, Failure> {
        self.listener
            .as_fd()
            .try_clone_to_owned()
            .map_err(|e| Failure::ours(format!("socket: {e}")))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Gives each task a copy of our standard input, until it ends.
fn copy_input(mut readers: Vec<File>) {
    let mut input = std::io::stdin().lock();
    let mut buffer = [0; 64 << 10];
    while let Ok(size @ 1..) = input.read(&mut buffer) {
        readers.retain_mut(|reader| reader.write_all(&buffer[..size]).is_ok());
    }
}

/// The program's absolute path; one with a slash is meant as seen from --chdir.
pub fn find(options: &Options) -> Result<PathBuf, Failure> {
    let name = &options.program[0];
    let path = match &options.chdir {
        Some(directory) if name.as_encoded_bytes().contains(&b'/') => directory.join(name),
        _ => program::find(name)?,
    };
    Ok(std::path::absolute(&path).unwrap_or(path))
}

fn cwd(options: &Options) -> Result<Option<CString>, Failure> {
    let Some(path) = &options.chdir else { return Ok(None) };
    CString::new(path.clone().into_os_string().into_vec())
        .map(Some)
        .map_err(|_| Failure::ours("--chdir: contains a zero byte"))
}

fn arguments(options: &Options) -> Result<Vec<CString>, Failure> {
    let convert = |a: &OsString| CString::new(a.clone().into_vec());
    let arguments: Result<Vec<_>, _> = options.program.iter().map(convert).collect();
    arguments.map_err(|_| Failure::ours("an argument contains a zero byte"))
}

/// Our environment with the variables of -x, and what options say by variables.
pub fn environment(options: &Options) -> Result<Vec<CString>, Failure> {
    let mut environment: Vec<CString> =
        inherit::environment().into_iter().filter_map(|entry| CString::new(entry).ok()).collect();
    for variable in &options.variables {
        let text = variable.to_string_lossy();
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => set(&mut environment, key, value),
            Some(_) => return Err(Failure::ours(format!("-x {text}: no name before ="))),
            None if std::env::var_os(variable).is_some() => {}
            None => {
                return Err(Failure::ours(format!(
                    "-x {text}: not set here (give -x {text}=VALUE)"
                )));
            }
        }
    }
    if let Some(policy) = options.rides {
        set(&mut environment, "NAGAYA_DSM_RIDES", policy.name());
    }
    Ok(environment)
}

fn set(environment: &mut Vec<CString>, key: &str, value: &str) {
    let prefix = format!("{key}=");
    environment.retain(|entry| !entry.as_bytes().starts_with(prefix.as_bytes()));
    if let Ok(entry) = CString::new(format!("{prefix}{value}")) {
        environment.push(entry);
    }
}

fn pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// Where a task's output goes.
struct Printer {
    stream: i32,
    /// The first machine prints it.
    over: Option<Arc<Machines>>,
}

impl Printer {
    /// Whether it could be printed.
    fn print(&self, text: Vec<u8>) -> bool {
        match (&self.over, self.stream) {
            (Some(over), stream) => {
                over.print(stream as u8, text);
                true
            }
            (None, 1) => std::io::stdout().lock().write_all(&text).is_ok(),
            (None, _) => std::io::stderr().lock().write_all(&text).is_ok(),
        }
    }
}

/// Copies a task's output: line by line behind this prefix, or as it comes.
fn copy_output(prefix: Option<String>, printer: Printer, reader: OwnedFd) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(File::from(reader));
        let mut line = Vec::new();
        loop {
            let text = match &prefix {
                None => reader.fill_buf().map(<[u8]>::to_vec),
                Some(prefix) => reader.read_until(b'\n', &mut line).map(|_| {
                    if !line.is_empty() && !line.ends_with(b"\n") {
                        line.push(b'\n');
                    }
                    // One write a line, so that lines of several tasks do not mix.
                    let mut text = if line.is_empty() { Vec::new() } else { prefix.clone().into() };
                    text.append(&mut line);
                    text
                }),
            };
            let Some(text) = text.ok().filter(|text| !text.is_empty()) else { return };
            if prefix.is_none() {
                reader.consume(text.len());
            }
            if !printer.print(text) {
                return;
            }
        }
    })
}
