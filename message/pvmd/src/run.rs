//! The daemon's loop: waits for what happens, tells [`Daemon`] of it, does what it says.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fabric::error::FabricError;
use nagaya_server::{Failure, job};
use pvm::signature::signature;
use pvm::tid::Tid;
use pvm::wire::HostInfo;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::connection::Connection;
use crate::daemon::Daemon;
use crate::event::{Action, Clock, Event};
use crate::invitation::{Invitation, SILENCE_MS};
use crate::network::Network;
use crate::peers::Peers;
use crate::post::Post;
use crate::socket::{self, Refused};
use crate::tasks::Link;

/// How long what found no room waits before it is tried again: from, and at most.
const RETRY_MIN: Duration = Duration::from_micros(200);
const RETRY_MAX: Duration = Duration::from_millis(20);

/// What a user may say about a daemon.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The virtual machine's ID (PVM_VMID).
    pub vmid: Option<String>,
    /// Where the socket is to be; else in [`job::directory`].
    pub directory: Option<PathBuf>,
    /// The host's name; else the system's.
    pub name: Option<String>,
}

/// What an epoll event is about.
pub(crate) enum Source {
    Listener,
    Signals,
    Connection(Connection),
    /// Other hosts have sent something, or are lost.
    Fabric,
    /// Daemons have been started on other hosts.
    Starts,
}

/// A running daemon.
pub(crate) struct Running {
    epoll: OwnedFd,
    listener: UnixListener,
    path: PathBuf,
    signals: OwnedFd,
    sources: BTreeMap<u64, Source>,
    next: u64,
    post: Post,
    retry: Duration,
    daemon: Daemon,
    pub(crate) network: Network,
    halting: bool,
}

/// How a daemon begins.
pub(crate) enum Beginning {
    /// As the first host of a virtual machine.
    First,
    /// As the guest of one.
    Guest(Box<Invitation>),
}

/// Runs the daemon of a new virtual machine until it is told to halt. `ready` is called once
/// tasks can connect.
pub fn run(options: &Options, ready: impl FnOnce(&std::path::Path)) -> Result<(), Failure> {
    begin(options, Beginning::First, |running| ready(&running.path))
}

/// Runs a daemon. `ready` is called once it can be reached.
pub(crate) fn begin(
    options: &Options,
    beginning: Beginning,
    ready: impl FnOnce(&Running),
) -> Result<(), Failure> {
    let (listener, path) = socket::listen(options).map_err(|why| match why {
        Refused::Running(path) => Failure::ours(format!(
            "{}: a daemon is running already (`nagaya pvm` talks to it)",
            path.display()
        )),
        Refused::System(failure) => failure,
    })?;
    let made = Running::new(options, beginning, listener, path.clone());
    let mut running = made.inspect_err(|_| socket::remove(&path))?;
    ready(&running);
    let result = running.serve();
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
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("wait for events"))?;
        let _ = listener.set_nonblocking(true);
        let silence_ms = match &beginning {
            Beginning::First => silence_ms()?,
            Beginning::Guest(invitation) => invitation.silence_ms,
        };
        let mut network = Network::new(silence_ms);
        let mut daemon = match beginning {
            Beginning::First => {
                let mut secret = [0; 32];
                rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())
                    .map_err(system("make a secret"))?;
                let name = options.name.clone().unwrap_or_else(host_name);
                Daemon::first(info(1, name, 1000), secret)
            }
            Beginning::Guest(invitation) => {
                let Invitation { host, secret, by, name, speed, .. } = *invitation;
                let failed = |error: FabricError| Failure::ours(error.to_string());
                let mut peers = Peers::open(host, secret).map_err(failed)?;
                peers.connect(by.info.tid.host(), &by.address).map_err(failed)?;
                network.peers = Some(peers);
                Daemon::guest(info(host, name, speed), secret)
            }
        };
        daemon.silence_ms = silence_ms;
        let post = Post::new().map_err(|error| Failure::ours(format!("no window: {error}")))?;
        let mut running = Running {
            epoll,
            listener,
            path,
            signals: signals().map_err(system("take signals"))?,
            sources: BTreeMap::new(),
            next: 0,
            post,
            retry: RETRY_MIN,
            daemon,
            network,
            halting: false,
        };
        running.watch(Source::Listener).map_err(system("wait for tasks"))?;
        running.watch(Source::Signals).map_err(system("wait for signals"))?;
        if running.network.peers.is_some() {
            running.watch(Source::Fabric).map_err(system("wait for other hosts"))?;
        }
        Ok(running)
    }

    /// Waits for events of this source, too.
    pub(crate) fn watch(&mut self, source: Source) -> rustix::io::Result<u64> {
        let number = self.next;
        let fd = match &source {
            Source::Listener => self.listener.as_fd(),
            Source::Signals => self.signals.as_fd(),
            Source::Connection(connection) => connection.as_fd(),
            Source::Fabric => match &self.network.peers {
                Some(peers) => peers.as_fd(),
                None => return Err(Errno::BADF),
            },
            Source::Starts => match &self.network.starts {
                Some(starts) => starts.as_fd(),
                None => return Err(Errno::BADF),
            },
        };
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
        self.next += 1;
        self.sources.insert(number, source);
        Ok(number)
    }

    fn serve(&mut self) -> Result<(), Failure> {
        let mut buffer = [MaybeUninit::<epoll::Event>::uninit(); 64];
        while !self.halting {
            self.hear();
            if self.halting {
                break;
            }
            let retry = self.post.waits().then_some(self.retry);
            let silence = self.network.deadline();
            let silence = silence.map(|end| end.saturating_duration_since(Instant::now()));
            let nap = if self.network.may_sleep() {
                retry.into_iter().chain(silence).min()
            } else {
                Some(Duration::ZERO)
            };
            let nap = nap.map(|nap| Timespec {
                tv_sec: nap.as_secs() as i64,
                tv_nsec: nap.subsec_nanos().into(),
            });
            let events = match epoll::wait(&self.epoll, &mut buffer, nap.as_ref()) {
                Ok((events, _)) => events.iter().map(|event| event.data.u64()).collect(),
                Err(Errno::INTR) => Vec::new(),
                Err(error) => return Err(system("wait for events")(error)),
            };
            for number in events {
                self.happened(number);
            }
            if self.post.waits() {
                let went = self.post.try_again();
                self.retry = if went { RETRY_MIN } else { (self.retry * 2).min(RETRY_MAX) };
            }
        }
        self.network.farewell();
        Ok(())
    }

    fn happened(&mut self, number: u64) {
        match self.sources.get_mut(&number) {
            Some(Source::Listener) => self.accept(),
            Some(Source::Signals) => self.halting = true,
            Some(Source::Connection(connection)) => {
                let came = connection.read();
                let pid = connection.pid;
                for frame in came.frames {
                    self.tell(Event::Frame(number, pid, frame));
                }
                if let Some(why) = came.end {
                    if let Some(why) = why {
                        log(&format!("process {pid} sends {why}"));
                    }
                    self.sources.remove(&number);
                    self.tell(Event::Closed(number));
                }
            }
            Some(Source::Fabric) => self.hear(),
            Some(Source::Starts) => self.hear_starts(),
            None => {}
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            match job::check_peer(&stream) {
                Ok(pid) => {
                    let _ = stream.set_nonblocking(true);
                    let connection = Connection::new(stream, pid as u32);
                    if let Err(error) = self.watch(Source::Connection(connection)) {
                        log(&format!("process {pid} cannot connect: {error}"));
                    }
                }
                Err(failure) => log(&failure.message),
            }
        }
    }

    pub(crate) fn tell(&mut self, event: Event) {
        for action in self.daemon.step(now(), event) {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Welcome(link, welcome) => self.welcome(link, &welcome),
            Action::Deliver(tid, bytes) => {
                self.retry = RETRY_MIN;
                self.post.deliver(tid, bytes);
            }
            Action::Forget(tid) => self.post.forget(tid),
            Action::Close(link) => {
                self.sources.remove(&link);
                self.tell(Event::Closed(link));
            }
            Action::Signal(pid, signal) => {
                if let Some(pid) = Pid::from_raw(pid as i32)
                    && let Some(signal) = Signal::from_named_raw(signal)
                {
                    let _ = kill_process(pid, signal);
                }
            }
            Action::Slot(slot, change) => {
                if let Some((closing, count)) = self.post.change_slot(slot, change) {
                    self.tell(Event::Counted(closing, count));
                }
            }
            Action::Log(line) => log(&line),
            Action::Halt => self.halting = true,
            abroad @ (Action::OpenFabric(..)
            | Action::Start(_)
            | Action::Connect(..)
            | Action::Disconnect(_)
            | Action::Send(..)) => self.act_abroad(abroad),
        }
    }

    fn welcome(&mut self, link: Link, welcome: &Result<Box<pvm::wire::Welcome>, i32>) {
        let Some(Source::Connection(connection)) = self.sources.get(&link) else { return };
        if connection.welcome(welcome, self.post.window()).is_err() {
            self.act(Action::Close(link));
        }
    }
}

fn now() -> Clock {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Clock { seconds: since.as_secs() as i64, microseconds: since.subsec_micros() as i32 }
}

pub(crate) fn log(line: &str) {
    eprintln!("pvmd: {line}");
}

/// After how many milliseconds of silence a host counts as lost: `NAGAYA_PVM_SILENCE`, in
/// seconds.
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

/// This host, as others see it.
pub(crate) fn info(host: u16, name: String, speed: i32) -> HostInfo {
    let tid = Tid::of_host(host);
    HostInfo { tid, name, architecture: "LINUX64".into(), speed, signature: signature() }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Signals that end the daemon, as a descriptor.
fn signals() -> rustix::io::Result<OwnedFd> {
    // SAFETY: the set is initialized by sigemptyset; the descriptor is new and ours.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        // Who is written to may have ended.
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
        let _ = fd.as_raw_fd();
        Ok(OwnedFd::from_raw_fd(fd))
    }
}
