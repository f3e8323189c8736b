//! The state of one host's daemon, and its elementary actions. `dispatch` has the transitions.
//! Each topic, such as `spawn` or `notice`, keeps its part of the state in a structure here.

use std::collections::BTreeMap;

use fcp::protocol::Protocol;
use pvm::event::Event as TraceEvent;
use pvm::parcel;
use pvm::tid::Tid;
use pvm::wire::{Control, HostInfo, Sink, TaskInfo};

use crate::contexts::Contexts;
use crate::errand::{Asker, Principal, Reply};
use crate::event::{Action, Clock};
use crate::hostfile::HostFile;
use crate::hosting::Hosting;
use crate::machine::{Change, Machine};
use crate::order::Order;
use crate::task_message::TaskMessage;
use crate::tasks::Tasks;

/// Continuation for the reply to an errand.
#[derive(Clone, Debug)]
pub(crate) enum Continuation {
    /// The reply answers this request.
    Answer(Asker),
    /// The reply is one part of the answer to this request.
    Gather(Asker),
    /// The reply lists which of these slots of a spawn became tasks.
    Spawn(u32, Vec<usize>),
    /// The reply is the outcome of a resource manager's request with this wait ID. The tasks
    /// have this output sink and this parent.
    Managed(i32, (Sink, i32)),
    /// The reply is the status of this task, whose end a task wants to be notified of.
    Notice(Tid),
    /// The reply is the status of this task, which is to become resource manager.
    HandOff(Tid),
    /// Ignore the reply.
    Nothing,
}

/// A request whose answer is collected from several hosts.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    pub waits: usize,
    pub tasks: Vec<TaskInfo>,
}

/// The known addresses of this host's tasks.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    pub known: BTreeMap<Tid, Vec<u8>>,
    /// Errands that wait for an address.
    pub wanted: BTreeMap<Tid, Vec<Principal>>,
}

/// One requested notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub what: i32,
    /// Receiver, context and tag of the notice.
    pub sink: Sink,
    /// The task or host that it concerns.
    pub of: Tid,
    /// Remaining number of notices; -1 for no limit.
    pub count: i32,
}

/// For each task its sink, parent and incomplete line. An entry may outlive its task.
#[derive(Debug, Default)]
pub(crate) struct Outputs(pub BTreeMap<Tid, (Sink, i32, Vec<u8>)>);

/// The tasks with a role on this host.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    pub hoster: Option<Tid>,
    pub tasker: Option<Tid>,
}

/// A spawn whose hosts have not all replied.
#[derive(Debug)]
pub(crate) struct Spawning {
    pub asker: Asker,
    /// For each task its tid or an error code.
    pub slots: Vec<i32>,
    /// Reasons why hosts failed to start tasks.
    pub why: Vec<String>,
    pub waits: usize,
    /// The sink of their output, and their parent.
    pub output: (Sink, i32),
}

/// The attributes of a spawn that its tracer gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpawnTrace {
    /// The flags of pvm_spawn.
    pub flags: i32,
    /// True if the parent has the tasks traced; otherwise the virtual machine's tracer has.
    pub by_parent: bool,
}

/// Programs being started for one errand.
#[derive(Debug)]
pub(crate) struct Starting {
    pub principal: Principal,
    pub trace: SpawnTrace,
    pub results: Vec<i32>,
    /// Reasons why programs were not started, each once.
    pub why: Vec<String>,
    pub waits: usize,
}

/// The tracers' state: described events, and tasks whose end is not reported yet.
#[derive(Debug, Default)]
pub(crate) struct Tracers {
    /// Events that were described to each tracer.
    pub known: BTreeMap<i32, Vec<TraceEvent>>,
    pub ending: BTreeMap<Tid, Sink>,
}

/// The state of one host's daemon.
#[derive(Debug)]
pub struct Daemon {
    pub(crate) host: u16,
    pub(crate) secret: [u8; 32],
    /// Another host started this daemon.
    pub(crate) is_guest: bool,
    /// Silence in milliseconds after which a host counts as lost.
    pub(crate) silence_ms: u32,
    /// Tasks share one address space per host.
    pub(crate) space: bool,
    /// Protocol of the messages in a host's window.
    pub(crate) protocol: Protocol,
    pub(crate) machine: Machine,
    pub(crate) order: Order<Change, Machine>,
    pub(crate) tasks: Tasks,
    pub(crate) errands: BTreeMap<u32, (u16, Continuation)>,
    pub(crate) last_errand: u32,
    pub(crate) gatherings: BTreeMap<Asker, Gathering>,
    /// Host that received a task last.
    pub(crate) last_host: u16,
    /// Spawns by our tasks, and program starts on this host. Both take numbers from
    /// `last_spawn`.
    pub(crate) spawns: BTreeMap<u32, Spawning>,
    pub(crate) starts: BTreeMap<u32, Starting>,
    pub(crate) starting: BTreeMap<Tid, u32>,
    pub(crate) last_spawn: u32,
    pub(crate) subscriptions: Vec<Subscription>,
    pub(crate) outputs: Outputs,
    pub(crate) contexts: Contexts,
    pub(crate) roles: Roles,
    pub(crate) tracers: Tracers,
    /// The host file's options for hosts that are added.
    pub hostfile: HostFile,
    pub(crate) hosting: Hosting,
    pub(crate) addresses: Addresses,
    pub(crate) now: Clock,
    /// Set by pvm_tickle; nothing depends on it.
    pub(crate) mask: i32,
    /// The virtual machine has ended; later events are ignored.
    pub(crate) halted: bool,
    pub(crate) actions: Vec<Action>,
}

impl Daemon {
    /// Returns the daemon of the first host of a virtual machine.
    pub fn first(host: HostInfo, secret: [u8; 32]) -> Daemon {
        let order = Order::first(host.tid.host());
        Daemon::new(host, secret, order)
    }

    /// Returns the daemon of a host that is to join the virtual machine with this secret. The
    /// first messages from other daemons bring it the state of the machine.
    pub fn guest(host: HostInfo, secret: [u8; 32]) -> Daemon {
        let order = Order::joining(host.tid.host());
        Daemon { is_guest: true, ..Daemon::new(host, secret, order) }
    }

    fn new(host: HostInfo, secret: [u8; 32], order: Order<Change, Machine>) -> Daemon {
        let number = host.tid.host();
        Daemon {
            host: number,
            secret,
            is_guest: false,
            silence_ms: crate::invitation::SILENCE_MS,
            space: false,
            protocol: Protocol::default(),
            machine: Machine::new(host),
            order,
            tasks: Tasks::new(number),
            errands: BTreeMap::new(),
            last_errand: 0,
            gatherings: BTreeMap::new(),
            last_host: number,
            spawns: BTreeMap::new(),
            starts: BTreeMap::new(),
            starting: BTreeMap::new(),
            last_spawn: 0,
            subscriptions: Vec::new(),
            outputs: Outputs::default(),
            contexts: Contexts::new(number),
            roles: Roles::default(),
            tracers: Tracers::default(),
            hostfile: HostFile::default(),
            hosting: Hosting::default(),
            addresses: Addresses::default(),
            now: Clock::default(),
            mask: 0,
            halted: false,
            actions: Vec::new(),
        }
    }

    /// Answers a request of a task on this host.
    pub(crate) fn answer(&mut self, asker: Asker, reply: Reply) {
        if asker.id != 0 && self.tasks.get(asker.tid).is_some() {
            self.write(asker.tid, &Control::Answer(asker.id, reply));
        }
    }

    /// Sends a control message to a task on this host.
    pub(crate) fn write(&mut self, to: Tid, message: &Control) {
        // Postcard fails only on data of unknown length; every part of a `Control` has a length.
        let data = postcard::to_allocvec(message).expect("a control message");
        self.actions.push(Action::Deliver(to, TaskMessage::Whole(parcel::control(to, &data))));
    }

    /// Routes a message to its destination. A message to an unknown task is dropped, as in stock
    /// PVM.
    pub(crate) fn route(&mut self, mut message: TaskMessage) {
        let to = message.destination().filter(|to| to.is_task());
        self.actions.push(match to {
            Some(to) if to.host() == self.host && self.tasks.get(to).is_some() => {
                Action::Deliver(to, message)
            }
            Some(to) if to.host() != self.host && self.machine.host(to.host()).is_some() => {
                Action::Forward(to, message)
            }
            _ => Action::Drop(message),
        });
    }

    /// Writes a line into the log.
    pub(crate) fn log(&mut self, line: String) {
        self.actions.push(Action::Log(line));
    }
}
