//! The tasks of this process: a space with its domains, the tasks that are started in it, and the
//! wait for their end.

use std::ffi::CString;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use ::cluster::Cluster;
use ::cluster::join::Joined;
use launch::placement::Domain;
use launch::signals::FORWARDED;
use nagaya_layout::{REGION_END, REGION_START, SpaceLayout};
use nagaya_server::Failure;
use nagaya_server::identity::Identity;
use nagaya_server::inherit::{self, Inheritance};
use nagaya_server::job::{Job, directory};
use nagaya_server::server::{Server, segment_size_for};
use net::rendezvous::Host;
use pvas::{Attributes, SpaceOptions};

use super::environment::{self, set};
use super::meeting::meeting;
use super::options::{Options, Part, StdinChoice};
use super::pool;
use super::socket::Socket;
use super::streams::{Printer, copy_input, copy_output, pipe};
use super::wait::{wait, wait_for_others};
use crate::limits::raise_open_files;
use crate::program::{self, unstarted};

/// The signal mask and the descriptors that this process was started with: its tasks get them.
pub struct Given {
    mask: u64,
    fds: Vec<RawFd>,
}

impl Given {
    /// Reads them, before this process opens anything.
    pub fn now() -> Self {
        let fds = inherit::fds().unwrap_or_else(|_| vec![0, 1, 2]);
        Self { mask: program::signal_mask(), fds }
    }
}

/// Runs the tasks of this process, which is one of several machines if `joined` is given. Returns
/// the first failing status of all machines, or 0.
pub fn run(
    mut options: Options,
    given: Given,
    mut joined: Option<&mut Joined>,
) -> Result<i32, Failure> {
    let domains = options.domains.as_ref().map(|it| it.found("--domains")).transpose();
    let domains = domains.map_err(unstarted)?;
    if let Some(domains) = &options.domains {
        options.n = domains.tasks();
    }
    let options = options;
    let inheritance = Inheritance::of_this_process(given.mask);
    let program = Program::of(&options, joined.as_deref())?;
    check(&options, joined.is_some())?;
    raise_open_files();

    let name = options.job.clone().unwrap_or_else(|| format!("run:{}", std::process::id()));
    let job = Job { name, local_tasks: Some(options.n), local_rank: None, expected_tasks: None };
    let socket = Socket::listen(job.socket(&directory()?, &Identity::of_this_process()))?;
    let is_shared = domains.is_some() || program.is_fixed;
    let window = joined.as_ref().map(|joined| joined.order.window);
    let space = space_options(&options, is_shared, window)?;
    let mut server = serve(space, &job.name, &socket, &inheritance)?;
    let is_alone = program.is_fixed || options.protect.is_some();
    let affinities = add_domains(&mut server, domains.unwrap_or_default(), is_alone)?;
    if let Some(place) = &options.delegatee {
        let place = place.found()?;
        server.start_delegatee(place.mask(), place.tasks)?;
    }

    // From here on, threads of this process have all signals blocked.
    let over = joined.as_deref_mut().map(|joined| join(&mut server, joined)).transpose()?;
    let tasks = Tasks::of(&options, &given, over.clone(), joined.as_deref())?;
    let is_far = tasks.is_far();
    let labels = match tasks.start(&mut server, &program, &affinities, &inheritance) {
        Ok(labels) => labels,
        Err(failure) => {
            // The tasks that run already must not outlive the failure.
            for pid in server.pids() {
                server.signal(pid, libc::SIGKILL, None);
            }
            server.close();
            return Err(failure);
        }
    };
    if let Some(joined) = joined {
        joined.begun().map_err(Failure::ours)?;
    }
    let mut status = wait(&mut server, &options, &tasks.part, over.as_deref());
    // Processes that tasks have started may keep the output open.
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

/// The program that all tasks run.
struct Program {
    path: PathBuf,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    directory: Option<CString>,
    /// It is linked to fixed addresses.
    is_fixed: bool,
}

impl Program {
    fn of(options: &Options, joined: Option<&Joined>) -> Result<Self, Failure> {
        program::check_name("run", &options.program[0])?;
        let path = environment::find(options)?;
        let environment = match joined {
            None => environment::environment(options)?,
            Some(joined) => {
                let entries = joined.order.environment.iter();
                entries.filter_map(|entry| CString::new(entry.clone()).ok()).collect()
            }
        };
        let is_fixed = pvas::is_fixed(&path).map_err(|e| Failure::from(&e))?;
        if is_fixed && joined.is_some() {
            return Err((&pvas::Error::OverMachines).into());
        }
        let arguments = environment::arguments(options)?;
        let directory = environment::cwd(options)?;
        Ok(Self { path, arguments, environment, directory, is_fixed })
    }
}

/// Refuses options that this job cannot have.
fn check(options: &Options, is_one_of_several: bool) -> Result<(), Failure> {
    if let StdinChoice::Task(task) = options.stdin
        && task >= options.n
        && task != 0
        && !is_one_of_several
    {
        let n = options.n;
        return Err(Failure::ours(format!("--stdin {task}: no such task (there are {n})")));
    }
    if let Some(directory) = &options.chdir
        && let Err(error) = std::fs::metadata(directory.join("."))
    {
        return Err(Failure::ours(format!("--chdir {}: {error}", directory.display())));
    }
    Ok(())
}

/// Returns the layout of the space. On one of several machines, it must begin at `window`.
fn space_options(
    options: &Options,
    shared: bool,
    window: Option<u64>,
) -> Result<SpaceOptions, Failure> {
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
    Ok(SpaceOptions {
        segment_size: Some(size),
        tasks_min: options.n,
        shared,
        fixed_addresses: options.fixed_addresses,
        protection: options.protect,
        window,
        ..SpaceOptions::default()
    })
}

/// Makes the space, and serves it.
fn serve(
    space: SpaceOptions,
    job: &str,
    socket: &Socket,
    inheritance: &Inheritance,
) -> Result<Server, Failure> {
    // A signal that this process was started to ignore stays ignored (a shell script's background
    // jobs ignore SIGINT).
    let heard = FORWARDED.iter().filter(|&&signal| !inheritance.ignores(signal));
    let signals = heard.fold(0, |set, signal| set | 1u64 << (signal - 1));
    Server::new(job, socket.listener()?, space, signals)
}

/// Adds the domains to the space, one for each task if `is_alone`. Returns the affinity of each
/// task.
fn add_domains(
    server: &mut Server,
    domains: Vec<Domain>,
    is_alone: bool,
) -> Result<Vec<Vec<u8>>, Failure> {
    let mut affinities = Vec::new();
    for (number, domain) in domains.iter().enumerate() {
        let first = affinities.len() as u32;
        affinities.extend((0..domain.tasks).map(|_| domain.mask()));
        // Programs that are linked to their addresses cannot share an mm, nor can protected tasks.
        if is_alone {
            for id in first..first + domain.tasks {
                server.add_domain(id..id + 1, domain.mask())?;
            }
        } else if number > 0 {
            server.add_domain(first..first + domain.tasks, domain.mask())?;
        }
    }
    Ok(affinities)
}

/// Joins the space to those of the other machines.
fn join(server: &mut Server, joined: &mut Joined) -> Result<Arc<Cluster>, Failure> {
    let pool = joined.order.pool.as_ref().map(|(path, mark)| pool::open(path, *mark));
    let pool = pool.transpose().map_err(Failure::ours)?;
    Ok(Arc::new(joined.begin(server.space(), pool).map_err(Failure::ours)?))
}

/// The tasks that this process starts.
struct Tasks<'a> {
    options: &'a Options,
    given: &'a Given,
    /// Their IDs in the space.
    ids: Range<u32>,
    /// Their part of the job.
    part: Part,
    /// The space over all machines, if there are several.
    over: Option<Arc<Cluster>>,
    null: File,
}

/// The descriptors of one task, and the objects in this process that serve them.
struct Streams {
    /// Ours and the task's.
    fds: Vec<(RawFd, RawFd)>,
    /// The task's ends, open until it has started.
    ends: Vec<OwnedFd>,
    /// This process's end of the task's standard input, if all tasks read the input.
    input: Option<File>,
    /// The threads that copy its output.
    labels: Vec<JoinHandle<()>>,
}

impl<'a> Tasks<'a> {
    fn of(
        options: &'a Options,
        given: &'a Given,
        over: Option<Arc<Cluster>>,
        joined: Option<&Joined>,
    ) -> Result<Self, Failure> {
        let ids = joined.map_or(0..options.n, Joined::ids);
        let part = match (&options.part, joined) {
            (Some(part), _) => part.clone(),
            (None, Some(joined)) => Part { first: 0, size: joined.tasks(), socket: String::new() },
            (None, None) => {
                let socket = meeting(options.n)?.name().to_owned();
                Part { first: 0, size: options.n, socket }
            }
        };
        let null = File::open("/dev/null").map_err(|e| Failure::ours(format!("/dev/null: {e}")))?;
        Ok(Self { options, given, ids, part, over, null })
    }

    /// Returns true if this is one of several machines and not the first, which prints all output.
    fn is_far(&self) -> bool {
        self.ids.start > 0
    }

    /// Starts all tasks; returns the threads that copy their output. After an error the tasks
    /// before it run.
    fn start(
        &self,
        server: &mut Server,
        program: &Program,
        affinities: &[Vec<u8>],
        inheritance: &Inheritance,
    ) -> Result<Vec<JoinHandle<()>>, Failure> {
        // A task that closes its input, or a reader that closes the output, must not end this
        // process. SAFETY: signal() changes this process's disposition only; tasks have their own.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        // SAFETY: getsid touches no memory.
        let base = inheritance.attributes(unsafe { libc::getsid(0) }, None);
        let mut labels = Vec::new();
        let mut inputs = Vec::new();
        for id in self.ids.clone() {
            let streams = self.streams(id)?;
            let at = (id - self.ids.start) as usize;
            let affinity = affinities.get(at).unwrap_or(&base.affinity).clone();
            let (fds, cwd) = (Some(streams.fds), program.directory.clone());
            let attributes = Attributes { fds, cwd, affinity, ..base.clone() };
            let environment = self.environment(program, id);
            let arguments = program.arguments.clone();
            server.spawn(Some(id), &program.path, arguments, &environment, &attributes)?;
            drop(streams.ends);
            inputs.extend(streams.input);
            labels.extend(streams.labels);
        }
        if self.options.stdin == StdinChoice::All {
            std::thread::spawn(|| copy_input(inputs));
        }
        Ok(labels)
    }

    /// A task's environment.
    fn environment(&self, program: &Program, id: u32) -> Vec<CString> {
        let mut environment = program.environment.clone();
        let rank = self.part.first + id;
        set(&mut environment, "NAGAYA_TASK_ID", &rank.to_string());
        set(&mut environment, "NAGAYA_TASKS", &self.part.size.to_string());
        // Tasks of several address spaces meet on one machine.
        if self.over.is_none() {
            for (name, value) in
                Host::environment(&self.part.socket, rank, self.part.size, self.options.n)
            {
                set(&mut environment, name, &value);
            }
        }
        environment
    }

    /// Returns the descriptors of a task: those of this process, except where options choose
    /// others for standard input and output.
    fn streams(&self, id: u32) -> Result<Streams, Failure> {
        let new_pipe = || pipe().map_err(|e| Failure::ours(format!("pipe: {e} (raise ulimit -n)")));
        let own = self.given.fds.iter().filter(|_| !self.is_far());
        let fds = own.map(|&fd| (fd, fd)).collect();
        let mut streams = Streams { fds, ends: Vec::new(), input: None, labels: Vec::new() };
        match self.options.stdin {
            StdinChoice::Task(task) if task == id => {}
            StdinChoice::All => {
                let (reader, writer) = new_pipe()?;
                streams.replace(0, reader.as_raw_fd());
                streams.ends.push(reader);
                streams.input = Some(File::from(writer));
            }
            _ => streams.replace(0, self.null.as_raw_fd()),
        }
        if self.options.label || self.is_far() {
            for stream in [1, 2] {
                let (reader, writer) = new_pipe()?;
                streams.replace(stream, writer.as_raw_fd());
                streams.ends.push(writer);
                let prefix = self.options.label.then(|| format!("[{}] ", self.part.first + id));
                let printer = Printer { stream, over: self.over.clone().filter(|_| self.is_far()) };
                streams.labels.push(copy_output(prefix, printer, reader));
            }
        }
        Ok(streams)
    }
}

impl Streams {
    /// Gives the task `ours` as its descriptor `number`.
    fn replace(&mut self, number: RawFd, ours: RawFd) {
        self.fds.retain(|fd| fd.1 != number);
        self.fds.push((ours, number));
    }
}
