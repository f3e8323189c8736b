//! The daemon's event loop: waits for events, passes them to [`Daemon`], and executes its
//! actions.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fcp::protocol::Protocol;
use nagaya_server::{Failure, job};
use net::error::FabricError;
use pvm::error::Error;
use pvm::protocol::SM_STTASK;
use pvm::signature::signature;
use pvm::tid::Tid;
use pvm::wire::{HostInfo, Welcome};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::connection::Connection;
use crate::daemon::Daemon;
use crate::event::{Action, Clock, Event};
use crate::hostfile::{HostFile, HostOptions};
use crate::hosts::SPEED;
use crate::invitation::{Acceptance, Invitation, SILENCE_MS};
use crate::load::Load;
use crate::log::{self, Log};
use crate::network::Network;
use crate::peers::Peers;
use crate::plugin;
use crate::poll::{Poll, signals};
use crate::post::Post;
use crate::pressure::Pressure;
use crate::processes::{Processes, read_output};
use crate::program::{self, ARCHITECTURE, Recipe, Settings};
use crate::socket::{self, Refused};
use crate::space::{Fate, Space, Stub};
use crate::tasks::Link;

/// Retry interval for messages that found no room: initial and maximum.
const RETRY_MIN: Duration = Duration::from_micros(200);
const RETRY_MAX: Duration = Duration::from_millis(20);
/// Time that tasks have to end when the virtual machine is halted.
const HALT_PATIENCE: Duration = Duration::from_secs(2);

/// A daemon's command-line options.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The virtual machine's ID (PVM_VMID).
    pub vmid: Option<String>,
    /// Directory of the socket; default: [`job::directory`].
    pub directory: Option<PathBuf>,
    /// Directory of the log; default: `log::directory`.
    pub log: Option<PathBuf>,
    /// The host's name; default: the system's.
    pub name: Option<String>,
    /// The host file.
    pub hostfile: HostFile,
    /// Halt the virtual machine on SIGHUP, SIGINT and SIGTERM.
    pub signals: bool,
    /// Write no more to standard error once tasks can connect.
    pub quiet: bool,
    /// Tasks share one address space on each host.
    pub space: bool,
    /// Bytes of a task's segment in that space, if given.
    pub segment_size: Option<u64>,
}

/// The object behind a polled descriptor.
#[derive(Debug)]
pub(crate) enum Source {
    Listener(UnixListener),
    Signals(OwnedFd),
    Connection(Connection),
    /// PID descriptor of a task that has enrolled.
    Process(Tid, OwnedFd),
    /// PID descriptor of a program that the daemon started. The program or a child of it may
    /// enroll.
    Child(Tid, OwnedFd),
    Output(Tid, OwnedFd),
    /// Connection to the node server for a task that is, or will be, in the space.
    Stub(Tid, Stub),
    /// Wake-up descriptor of the fabric.
    Fabric(OwnedFd),
    /// Wake-up descriptor for daemons started on other hosts.
    Starts(OwnedFd),
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Source::Listener(listener) => listener.as_fd(),
            Source::Connection(connection) => connection.as_fd(),
            Source::Stub(_, stub) => stub.as_fd(),
            Source::Signals(fd)
            | Source::Fabric(fd)
            | Source::Starts(fd)
            | Source::Process(_, fd)
            | Source::Child(_, fd)
            | Source::Output(_, fd) => fd.as_fd(),
        }
    }
}

/// A running daemon.
pub(crate) struct Running {
    pub(crate) poll: Poll<Source>,
    path: PathBuf,
    pub(crate) post: Post,
    pub(crate) pressure: Pressure,
    retry: Duration,
    processes: Processes,
    /// The space of this host's tasks, with `--space`.
    space: Option<Space>,
    settings: Settings,
    pub(crate) log: Log,
    daemon: Daemon,
    /// Events not passed to the daemon yet.
    events: VecDeque<Event>,
    telling: bool,
    pub(crate) network: Network,
    /// Time limit for all tasks to end.
    halting: Option<Instant>,
}

/// The role in which a daemon starts.
pub(crate) enum Beginning {
    /// First host of a virtual machine.
    First,
    /// First host of a virtual machine whose other hosts a launcher has started.
    Leader { secret: [u8; 32], peers: Box<Peers>, acceptances: Vec<Acceptance> },
    /// Guest in a virtual machine.
    Guest(Box<Invitation>),
}

/// Runs the daemon of a new virtual machine until it is halted. Calls `ready` once tasks can
/// connect.
pub fn run(options: &Options, ready: impl FnOnce(&Path)) -> Result<(), Refused> {
    begin(options, Beginning::First, |running| ready(&running.path))
}

/// Runs a daemon. Calls `ready` once tasks can connect.
pub(crate) fn begin(
    options: &Options,
    beginning: Beginning,
    ready: impl FnOnce(&Running),
) -> Result<(), Refused> {
    let (listener, path) = socket::listen(options)?;
    let (beginning, acceptances) = match beginning {
        Beginning::Leader { secret, peers, acceptances } => {
            (Beginning::Leader { secret, peers, acceptances: Vec::new() }, acceptances)
        }
        beginning => (beginning, Vec::new()),
    };
    let made = Running::new(options, beginning, listener, path.clone());
    let mut running = made.map_err(|failure| {
        socket::remove(&path);
        Refused::System(failure)
    })?;
    ready(&running);
    if options.quiet {
        running.log.hush();
    }
    if !acceptances.is_empty() {
        running.tell(Event::Launched(acceptances));
    }
    running.tell(Event::Begin);
    let result = running.serve().map_err(Refused::System);
    socket::remove(&running.path);
    result
}

fn system(doing: &str) -> impl Fn(Errno) -> Failure + '_ {
    move |error| Failure::ours(format!("cannot {doing}: {error}"))
}

impl Running {
    fn new(
        options: &Options,
        beginning: Beginning,
        listener: UnixListener,
        path: PathBuf,
    ) -> Result<Running, Failure> {
        let _ = listener.set_nonblocking(true);
        let in_space = match &beginning {
            Beginning::First | Beginning::Leader { .. } => options.space,
            Beginning::Guest(invitation) => options.space || invitation.space,
        };
        let space = || Space::new(options.vmid.as_deref(), options.segment_size);
        let space = in_space.then(space);
        let (silence_ms, protocol) = match &beginning {
            Beginning::First | Beginning::Leader { .. } => choices()?,
            Beginning::Guest(invitation) => {
                let protocol = Protocol::of_number(invitation.protocol);
                (invitation.silence_ms, protocol.expect("a faulty invitation is not accepted"))
            }
        };
        let mut network = Network::new(silence_ms);
        let mut poll = Poll::new().map_err(system("wait for events"))?;
        poll.add(Source::Listener(listener)).map_err(system("wait for tasks"))?;
        if options.signals {
            let signals = signals(&[libc::SIGHUP, libc::SIGINT, libc::SIGTERM]);
            let added = signals.and_then(|signals| poll.add(Source::Signals(signals)));
            added.map_err(system("take signals"))?;
        }
        let settings;
        let mut daemon = match beginning {
            Beginning::First | Beginning::Leader { .. } => {
                let secret = match beginning {
                    Beginning::Leader { secret, peers, .. } => {
                        let opened = network.open(*peers, &mut poll);
                        opened.map_err(system("wait for other hosts"))?;
                        secret
                    }
                    _ => new_secret()?,
                };
                let name = options.name.clone().unwrap_or_else(host_name);
                let own = options.hostfile.own(&name).clone();
                let HostOptions { path, directory, debugger, speed, .. } = own;
                settings = Settings { path, directory, debugger };
                Daemon::first(info(1, name, speed.unwrap_or(SPEED)), secret)
            }
            Beginning::Guest(invitation) => {
                let Invitation { host, secret, by, name, speed, .. } = *invitation;
                let failed = |error: FabricError| Failure::ours(error.to_string());
                let mut peers = Peers::open(host, secret).map_err(failed)?;
                peers.connect(by.info.tid.host(), &by.address).map_err(failed)?;
                network.open(peers, &mut poll).map_err(system("wait for other hosts"))?;
                let (path, directory) = (invitation.programs, invitation.directory);
                settings = Settings { path, directory, debugger: invitation.debugger };
                Daemon::guest(info(host, name, speed), secret)
            }
        };
        daemon.silence_ms = silence_ms;
        daemon.space = in_space;
        daemon.protocol = protocol;
        daemon.hostfile = options.hostfile.clone();
        let log_name = socket::file_name("pvml", options.vmid.as_deref())?;
        let log_directory = options.log.clone().or_else(log::directory);
        Ok(Running {
            poll,
            path,
            pressure: Pressure::default(),
            post: Post::new(protocol)
                .map_err(|error| Failure::ours(format!("no window: {error}")))?,
            retry: RETRY_MIN,
            processes: Processes::default(),
            space,
            settings,
            log: Log::new(log_directory.as_deref(), &log_name),
            daemon,
            events: VecDeque::new(),
            telling: false,
            network,
            halting: None,
        })
    }

    fn serve(&mut self) -> Result<(), Failure> {
        while !self.is_over() {
            self.hear();
            let silence = self.network.deadline();
            let until = |time: Instant| time.saturating_duration_since(Instant::now());
            let nap = match self.network.may_sleep() {
                true => self.halting.into_iter().chain(silence).map(until).min(),
                false => Some(Duration::ZERO),
            };
            let retry = self.post.waits().then_some(self.retry);
            let nap = retry.into_iter().chain(nap).min();
            let events = self.poll.wait(nap).map_err(system("wait for events"))?;
            for number in events {
                self.happened(number);
            }
            if self.post.waits() {
                let went = self.post.try_again();
                self.retry = if went { RETRY_MIN } else { (self.retry * 2).min(RETRY_MAX) };
            }
            self.let_go();
            self.post.give_back();
        }
        if !self.network.farewell() {
            self.log.say("some hosts did not take their last letters");
        }
        Ok(())
    }

    /// Returns true if the virtual machine has ended. Kills tasks that did not end in time.
    fn is_over(&mut self) -> bool {
        let Some(by) = self.halting else { return false };
        if Instant::now() < by {
            return !self.processes.are_there();
        }
        self.processes.kill_all(&mut self.poll);
        true
    }

    fn happened(&mut self, number: u64) {
        match self.poll.get(number) {
            Some(Source::Listener(_)) => self.accept(number),
            Some(Source::Signals(_)) => self.tell(Event::Terminate),
            Some(Source::Connection(_)) => self.read(number),
            Some(Source::Process(tid, _)) => {
                let tid = *tid;
                self.poll.remove(number);
                self.processes.left(tid);
                self.read_all(tid);
                self.tell(Event::Ended(tid));
            }
            Some(Source::Child(tid, _)) => {
                let tid = *tid;
                self.child_ended(number, tid, 0);
            }
            Some(Source::Stub(tid, stub)) => {
                let (tid, fates) = (*tid, stub.read());
                fates.into_iter().for_each(|fate| self.act_in_space(number, tid, fate));
            }
            Some(Source::Output(..)) => self.read_output(number),
            Some(Source::Fabric(_)) => self.hear(),
            Some(Source::Starts(_)) => self.hear_starts(),
            None => {}
        }
    }

    /// Handles the end of the program that the daemon had started for this task. `status` is the
    /// wait status of a program in the space.
    fn child_ended(&mut self, number: u64, tid: Tid, status: i32) {
        self.poll.remove(number);
        self.read_all(tid);
        let usage = self.processes.reap(tid, status);
        self.post.process_ended();
        self.tell(Event::Reaped(tid, usage));
        if !self.processes.has_enrolled(tid) {
            self.tell(Event::Ended(tid));
        }
    }

    /// Reads the requests and output that a task left at its end.
    fn read_all(&mut self, tid: Tid) {
        let (link, output) = self.processes.sources(tid);
        if let Some(number) = output {
            self.read_output(number);
        }
        if let Some(number) = link {
            self.read(number);
        }
    }

    fn read(&mut self, number: u64) {
        let Some(Source::Connection(connection)) = self.poll.get(number) else { return };
        let came = connection.read();
        let pid = connection.pid;
        for frame in came.frames {
            self.tell(Event::Frame(number, pid, frame));
            self.hold_back(number);
        }
        if let Some(why) = came.end {
            if let Some(why) = why {
                self.log.say(&format!("process {pid} sends {why}"));
            }
            self.close(number);
        }
    }

    /// Handles the end of a connection, or closes it.
    fn close(&mut self, link: Link) {
        if self.poll.remove(link).is_none() {
            return;
        }
        // The task's output is passed on before its end.
        let output = self.processes.at(link).and_then(|tid| self.processes.sources(tid).1);
        if let Some(number) = output {
            self.read_output(number);
        }
        self.tell(Event::Closed(link));
    }

    fn read_output(&mut self, number: u64) {
        let Some(Source::Output(tid, fd)) = self.poll.get(number) else { return };
        let tid = *tid;
        let (bytes, more) = read_output(fd);
        if !bytes.is_empty() {
            self.tell(Event::Output(tid, bytes));
            self.hold_back(number);
        }
        if !more {
            self.poll.remove(number);
            self.processes.output_ended(tid);
            self.tell(Event::OutputEnd(tid));
        }
    }

    fn accept(&mut self, number: u64) {
        loop {
            let Some(Source::Listener(listener)) = self.poll.get(number) else { return };
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // Probably out of descriptors: let the process wait until some are free.
                    self.log.say(&format!("a task cannot connect: {error}"));
                    std::thread::sleep(RETRY_MAX);
                    return;
                }
            };
            match job::check_peer(&stream) {
                Ok(pid) => {
                    let _ = stream.set_nonblocking(true);
                    let connection = Connection::new(stream, pid as u32);
                    if let Err(error) = self.poll.add(Source::Connection(connection)) {
                        self.log.say(&format!("process {pid} cannot connect: {error}"));
                    }
                }
                Err(failure) => self.log.say(&failure.message),
            }
        }
    }

    /// Returns this host's number.
    pub(crate) fn own_host(&self) -> u16 {
        self.daemon.host
    }

    /// Returns the path of the socket for tasks.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Passes an event to the daemon and executes its actions. Events caused by an action wait
    /// until all actions are executed, so that messages keep the order in which the daemon sends
    /// them.
    pub(crate) fn tell(&mut self, event: Event) {
        self.events.push_back(event);
        if std::mem::replace(&mut self.telling, true) {
            return;
        }
        self.pressure.begin();
        while let Some(event) = self.events.pop_front() {
            for action in self.daemon.step(now(), event) {
                self.act(action);
            }
        }
        self.telling = false;
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Welcome(link, welcome) => self.welcome(link, &welcome),
            Action::Deliver(tid, load) => self.deliver(tid, load),
            Action::Drop(load) => {
                if let Load::Lent(_, terms) = load {
                    drop(self.post.loan(terms));
                }
            }
            Action::Forget(tid) => {
                self.post.forget(tid);
                if let Some(number) = self.processes.forget(tid) {
                    self.poll.remove(number);
                }
            }
            Action::Close(link) => self.close(link),
            Action::StartTask(program) => {
                let tid = program.tid;
                if let Some(tasker) = program.tasker {
                    let message = program::describe(&self.settings, &self.path, &program);
                    let told = message.map(|message| {
                        let sink = plugin::to(tasker, SM_STTASK);
                        let message = message.message(sink, tid.as_int());
                        self.deliver(tasker, Load::Whole(message));
                        0
                    });
                    return self.tell(Event::TaskStarted(tid, told));
                }
                match Recipe::new(&self.settings, &self.path, &program) {
                    Ok(recipe) => self.start(Box::new(recipe)),
                    Err(error) => self.tell(Event::TaskStarted(tid, Err(error))),
                }
            }
            Action::Signal(tid, signal) => self.processes.signal(tid, signal, &mut self.poll),
            Action::Slot(slot, change) => {
                if let Some((closing, count)) = self.post.change_slot(slot, change) {
                    self.tell(Event::Counted(closing, count));
                }
            }
            Action::Log(line) => self.log.say(&line),
            Action::LogOutput(line) => self.log.write(&line),
            Action::Halt(asker) => self.halt(asker),
            abroad @ (Action::OpenFabric(..)
            | Action::Start(_)
            | Action::StartBy(..)
            | Action::GiveUp(_)
            | Action::Connect(..)
            | Action::Disconnect(_)
            | Action::Send(..)
            | Action::PassOn(..)) => self.act_abroad(abroad),
        }
    }

    /// Starts a program, in the space if there is one. A debugger starts its program as a
    /// process.
    fn start(&mut self, recipe: Box<Recipe>) {
        let space = self.space.as_mut().filter(|_| !recipe.debugged);
        let Some(space) = space else { return self.start_process(&recipe) };
        let tid = recipe.tid;
        match space.start(recipe) {
            Ok(stub) => match self.poll.add(Source::Stub(tid, stub)) {
                Ok(number) => self.processes.lodged(tid, number),
                Err(_) => self.tell(Event::TaskStarted(tid, Err(Error::OutOfRes.into()))),
            },
            Err((recipe, why)) => self.start_outside(&recipe, &why),
        }
    }

    /// Starts as a process a program that cannot run in the space.
    fn start_outside(&mut self, recipe: &Recipe, why: &str) {
        let tid = recipe.tid;
        self.log.say(&format!("[{tid}] {why}; it runs as an ordinary process, not in the space"));
        self.start_process(recipe);
    }

    fn start_process(&mut self, recipe: &Recipe) {
        let watched = recipe.start().and_then(|(child, output)| {
            self.processes.started(recipe.tid, child, output, &mut self.poll)
        });
        self.tell(Event::TaskStarted(recipe.tid, watched.map_err(Into::into)));
    }

    /// Handles a report of the node server on a task.
    fn act_in_space(&mut self, number: u64, tid: Tid, fate: Fate) {
        match fate {
            Fate::Started(pid, output) => {
                self.processes.has_output(tid, output, &mut self.poll);
                self.tell(Event::TaskStarted(tid, Ok(pid)));
            }
            Fate::Refused(recipe, why) => {
                self.poll.remove(number);
                self.processes.refused(tid);
                self.start_outside(&recipe, &why);
            }
            Fate::Ended(status) => self.child_ended(number, tid, status),
        }
    }

    pub(crate) fn deliver(&mut self, tid: Tid, load: Load) {
        self.retry = RETRY_MIN;
        self.post.deliver(tid, load);
        self.went_to(tid);
    }

    fn welcome(&mut self, link: Link, welcome: &Result<Box<Welcome>, i32>) {
        let Some(Source::Connection(connection)) = self.poll.get(link) else { return };
        let pid = connection.pid;
        if connection.welcome(welcome, self.post.window()).is_err() {
            return self.close(link);
        }
        if let Ok(welcome) = welcome {
            self.processes.enrolled(welcome.tid, link, pid, &mut self.poll);
        }
    }

    /// Ends all tasks but `asker`, which requested the halt and may continue.
    fn halt(&mut self, asker: Option<Tid>) {
        if self.halting.is_none() {
            self.processes.signal_all(asker, libc::SIGTERM, &mut self.poll);
            self.halting = Some(Instant::now() + HALT_PATIENCE);
        }
    }
}

fn now() -> Clock {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Clock { seconds: since.as_secs() as i64, microseconds: since.subsec_micros() as i32 }
}

/// Returns the user's settings for the virtual machine: [`silence_ms`] and [`protocol`].
pub(crate) fn choices() -> Result<(u32, Protocol), Failure> {
    Ok((silence_ms()?, protocol()?))
}

/// Returns the protocol for messages inside a host: `NAGAYA_PVM_PROTOCOL`.
fn protocol() -> Result<Protocol, Failure> {
    let Some(text) = std::env::var_os("NAGAYA_PVM_PROTOCOL") else {
        return Ok(Protocol::default());
    };
    text.to_str().and_then(Protocol::of_name).ok_or_else(|| {
        let names = Protocol::ALL.map(Protocol::name).join(", ");
        let text = text.to_string_lossy();
        Failure::ours(format!("NAGAYA_PVM_PROTOCOL={text}: should be one of {names}"))
    })
}

/// Returns the silence in milliseconds after which a host counts as lost: `NAGAYA_PVM_SILENCE`,
/// given in seconds.
fn silence_ms() -> Result<u32, Failure> {
    let Some(text) = std::env::var_os("NAGAYA_PVM_SILENCE") else { return Ok(SILENCE_MS) };
    let seconds = text.to_str().and_then(|text| text.parse::<f64>().ok());
    match seconds.filter(|seconds| (0.1..=1e6).contains(seconds)) {
        Some(seconds) => Ok((seconds * 1000.0) as u32),
        None => Err(Failure::ours(format!(
            "NAGAYA_PVM_SILENCE={}: should be seconds, from 0.1",
            text.to_string_lossy()
        ))),
    }
}

/// Returns the description of a host that other hosts see.
pub(crate) fn info(host: u16, name: String, speed: i32) -> HostInfo {
    let architecture = ARCHITECTURE.into();
    HostInfo { tid: Tid::of_host(host), name, architecture, speed, signature: signature() }
}

/// Returns a random secret for a new virtual machine.
pub(crate) fn new_secret() -> Result<[u8; 32], Failure> {
    let mut secret = [0; 32];
    getrandom(&mut secret, GetRandomFlags::empty()).map_err(system("make a secret"))?;
    Ok(secret)
}

pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
