//! A running daemon: its state machine, and the resources of the process around it.

use std::collections::VecDeque;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fcp::protocol::Protocol;
use nagaya_server::Failure;
use net::error::FabricError;
use rustix::io::Errno;

use crate::daemon::Daemon;
use crate::delivery::Delivery;
use crate::event::Event;
use crate::hostfile::{HostOptions, SPEED};
use crate::identity::{host_name, info, new_secret};
use crate::invitation::{Acceptance, Invitation};
use crate::log::{self, Log};
use crate::network::Network;
use crate::options::{Options, choices};
use crate::peers::Peers;
use crate::poll::{Poll, signals};
use crate::pressure::Pressure;
use crate::processes::Processes;
use crate::program::Settings;
use crate::socket;
use crate::source::Source;
use crate::space::Space;

/// Shortest retry interval for messages that found no room.
pub(crate) const RETRY_MIN: Duration = Duration::from_micros(200);

/// A running daemon.
pub(crate) struct Running {
    pub(crate) poll: Poll<Source>,
    pub(crate) path: PathBuf,
    pub(crate) delivery: Delivery,
    pub(crate) pressure: Pressure,
    pub(crate) retry: Duration,
    pub(crate) processes: Processes,
    /// The space of this host's tasks, with `--space`.
    pub(crate) space: Option<Space>,
    pub(crate) settings: Settings,
    pub(crate) log: Log,
    pub(crate) daemon: Daemon,
    /// Events not passed to the daemon yet.
    pub(crate) events: VecDeque<Event>,
    pub(crate) handling: bool,
    pub(crate) network: Network,
    /// Time limit for all tasks to end.
    pub(crate) halting: Option<Instant>,
}

/// The role in which a daemon starts.
pub(crate) enum Startup {
    /// First host of a virtual machine.
    First,
    /// First host of a virtual machine whose other hosts a launcher has started.
    Leader { secret: [u8; 32], peers: Box<Peers>, acceptances: Vec<Acceptance> },
    /// Guest in a virtual machine.
    Guest(Box<Invitation>),
}

/// Converts an error of the system into the failure of `doing`.
pub(crate) fn system(doing: &str) -> impl Fn(Errno) -> Failure + '_ {
    move |error| Failure::ours(format!("cannot {doing}: {error}"))
}

impl Running {
    /// Returns the daemon of this process, which has no tasks yet.
    pub(crate) fn new(
        options: &Options,
        startup: Startup,
        listener: UnixListener,
        path: PathBuf,
    ) -> Result<Running, Failure> {
        let _ = listener.set_nonblocking(true);
        let in_space = match &startup {
            Startup::First | Startup::Leader { .. } => options.space,
            Startup::Guest(invitation) => options.space || invitation.space,
        };
        let space = || Space::new(options.vmid.as_deref(), options.segment_size);
        let space = in_space.then(space);
        let (silence_ms, protocol) = match &startup {
            Startup::First | Startup::Leader { .. } => choices()?,
            Startup::Guest(invitation) => {
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
            added.map_err(system("receive signals"))?;
        }
        let settings;
        let mut daemon = match startup {
            Startup::First | Startup::Leader { .. } => {
                let secret = match startup {
                    Startup::Leader { secret, peers, .. } => {
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
            Startup::Guest(invitation) => {
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
            delivery: Delivery::new(protocol)
                .map_err(|error| Failure::ours(format!("cannot create the window: {error}")))?,
            retry: RETRY_MIN,
            processes: Processes::default(),
            space,
            settings,
            log: Log::new(log_directory.as_deref(), &log_name),
            daemon,
            events: VecDeque::new(),
            handling: false,
            network,
            halting: None,
        })
    }
}
