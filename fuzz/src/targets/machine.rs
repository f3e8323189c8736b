//! The state machine of PVM's daemon: requests of tasks, and messages of other daemons.

use pvm::tid::Tid;
use pvm::wire::{
    Frame, GroupRequest, Inheritance, MailboxRequest, Parcel, Request, Spawn, VERSION,
};
use pvmd::daemon::Daemon;
use pvmd::errand::Errand;
use pvmd::event::{Action, Clock, Event, PeerMessage};
use pvmd::invitation::Acceptance;
use pvmd::machine::{Change, Operation};
use pvmd::order::{self, Item};
use pvmd::task_message::TaskMessage;
use pvmd::tasks::Link;

use super::pvm::{place, sent};
use crate::input::{Input, Output};
use crate::target::{Seeds, Target, numbered};

/// The host of the daemon.
const HOST: u16 = 1;
/// Most events of an input.
const EVENTS_MAX: usize = 400;

/// A daemon and the state of the loop around it.
struct Loop {
    daemon: Daemon,
    /// Programs that the daemon has started.
    started: Vec<Tid>,
    events: usize,
}

impl Loop {
    fn new() -> Self {
        let daemon = Daemon::first(place(HOST).info, [7; 32]);
        Self { daemon, started: Vec::new(), events: 0 }
    }

    /// Passes an event to the daemon, and carries out its actions as far as they matter to it.
    fn step(&mut self, event: Event) {
        self.events += 1;
        let seconds = self.events as i64;
        for action in self.daemon.step(Clock { seconds, microseconds: 0 }, event) {
            match action {
                Action::StartTask(program) => self.started.push(program.tid),
                Action::Send(host, _) => assert_ne!(host, HOST, "a message to itself"),
                Action::Log(line) => assert!(!line.contains('\n'), "{line:?}"),
                _ => {}
            }
        }
    }

    /// An event that the loop reports.
    fn report(&mut self, input: &mut Input<'_>) {
        let number = usize::from(input.byte());
        let tid = self.started.get(number % self.started.len().max(1)).copied();
        match (input.byte() % 6, tid) {
            (0, Some(tid)) => self.step(Event::TaskStarted(tid, Ok(100 + number as u32))),
            (1, Some(tid)) => self.step(Event::Output(tid, input.bytes().to_vec())),
            (2, Some(tid)) => self.step(Event::OutputEnd(tid)),
            (3, Some(tid)) => self.step(Event::Ended(tid)),
            (4, _) => self.step(Event::Tick),
            _ => self.step(Event::Closed(link(number as u64))),
        }
    }
}

/// The connection of a task; there are four.
fn link(number: u64) -> Link {
    number % 4
}

pub const TASKS: Target = Target {
    name: "pvmd_tasks",
    reads: "requests of tasks, at the state machine of PVM's daemon",
    run: tasks,
    seeds: tasks_seeds,
};

fn tasks(bytes: &[u8]) {
    let (mut input, mut all) = (Input(bytes), Loop::new());
    all.step(Event::Begin);
    for number in 0..2 {
        let name = format!("task{number}");
        let request = Request::Enroll { version: VERSION, started_as: None, name };
        all.step(Event::Frame(link(number), 50 + number as u32, Frame { id: 1, request }));
    }
    while !input.is_empty() && all.events < EVENTS_MAX {
        match input.byte() {
            what @ 0..=191 => {
                let frame = postcard::from_bytes(input.bytes());
                if let Ok(frame) = frame {
                    all.step(Event::Frame(link(what.into()), 50 + u32::from(what % 4), frame));
                }
            }
            _ => all.report(&mut input),
        }
    }
}

fn tasks_seeds() -> Seeds {
    let frame = |script: Output, link: u8, request: Request| {
        let bytes = postcard::to_allocvec(&Frame { id: 2, request }).expect("it has a length");
        script.raw(&[link]).bytes(&bytes)
    };
    let start = Output::default;
    let parcel = || Parcel { bytes: sent(Tid::task(HOST, 1), 0, &[&[0, 0, 0, 1]]) };
    let tid = Tid::task(HOST, 2);
    let spawn = Spawn {
        file: "true".into(),
        directory: "/tmp".into(),
        arguments: vec!["-x".into()],
        flags: 0,
        place: String::new(),
        count: 3,
        environment: vec!["A=b".into()],
        inheritance: Inheritance::default(),
    };
    let spawns = frame(start(), 0, Request::Spawn(spawn)).raw(&[200, 0, 0, 200, 1, 1]);
    let spawns = spawns.bytes(b"hello\n").raw(&[200, 1, 2, 200, 1, 3]);
    let notify = Request::Notify { what: 1, context: 0, tag: 5, tids: vec![tid], count: -1 };
    let notices = frame(frame(start(), 0, notify), 1, Request::Exit);
    let put = MailboxRequest::Put { class: "c".into(), index: -1, flags: 1, parcel: parcel() };
    let get = MailboxRequest::Get { class: "c".into(), index: 0, flags: 0 };
    let boxes = frame(frame(start(), 0, Request::Mailbox(put)), 1, Request::Mailbox(get));
    let boxes = frame(boxes, 0, Request::Mailbox(MailboxRequest::List("*".into())));
    let group = |request| Request::Group(request);
    let groups = frame(start(), 0, group(GroupRequest::Join("g".into())));
    let groups = frame(groups, 1, group(GroupRequest::Join("g".into())));
    let groups = frame(groups, 0, group(GroupRequest::Barrier("g".into(), 2)));
    let groups = frame(groups, 1, group(GroupRequest::Freeze("g".into(), 2)));
    let groups = frame(groups, 1, group(GroupRequest::Leave("g".into())));
    let hosts = frame(start(), 0, Request::AddHosts(vec!["two sp=500".into()]));
    let hosts = frame(hosts, 0, Request::DeleteHosts(vec!["two".into()]));
    let others = [
        Request::Route(parcel()),
        Request::Signal(tid, 15),
        Request::Config,
        Request::HostStatus("host1".into()),
        Request::TaskStatus(tid),
        Request::Tasks(Tid(0)),
        Request::NewContext,
        Request::Clock(Tid::of_host(HOST)),
        Request::NoReset(true),
        Request::Reset,
        Request::Hoster(true),
        Request::ResourceManager,
        Request::Tracer(Some(Inheritance::default())),
        Request::PlugIn(pvm::protocol::SM_EXEC, parcel()),
        Request::Tickle(vec![1, 2]),
        Request::Halt,
    ];
    let others = others.into_iter().fold(start(), |script, request| frame(script, 0, request));
    numbered([spawns, notices, boxes, groups, hosts, others].map(|it| it.0))
}

pub const PEERS: Target = Target {
    name: "pvmd_peers",
    reads: "messages of other daemons, and messages that they forward, at PVM's daemon",
    run: peers,
    seeds: peers_seeds,
};

fn peers(bytes: &[u8]) {
    let (mut input, mut all) = (Input(bytes), Loop::new());
    let launched: Vec<Acceptance> = vec![Ok(place(2)), Ok(place(3))];
    all.step(Event::Fabric(Ok(vec![1])));
    all.step(Event::Launched(launched));
    all.step(Event::Begin);
    let request = Request::Enroll { version: VERSION, started_as: None, name: "task".into() };
    all.step(Event::Frame(link(0), 50, Frame { id: 1, request }));
    for host in [2, 3] {
        all.step(Event::Peer(host, PeerMessage::Ready));
    }
    while !input.is_empty() && all.events < EVENTS_MAX {
        let what = input.byte();
        let host = 2 + u16::from(what & 1);
        match what >> 1 {
            0..=63 => {
                let message = postcard::from_bytes(input.bytes());
                if let Ok(message) = message {
                    all.step(Event::Peer(host, message));
                }
            }
            64..=79 => {
                let message = TaskMessage::Whole(input.bytes().to_vec());
                all.step(Event::TaskMessage(host, message));
            }
            80..=95 => {
                let head = input.bytes().to_vec();
                let message = TaskMessage::Split(head, input.bytes().to_vec());
                all.step(Event::TaskMessage(host, message));
            }
            96 => all.step(Event::PeerLost(host)),
            97..=110 => {
                if let Ok(frame) = postcard::from_bytes(input.bytes()) {
                    all.step(Event::Frame(link(0), 50, frame));
                }
            }
            _ => all.report(&mut input),
        }
    }
}

fn peers_seeds() -> Seeds {
    let message = |script: Output, host: u8, message: PeerMessage| {
        let bytes = postcard::to_allocvec(&message).expect("it has a length");
        script.raw(&[host]).bytes(&bytes)
    };
    let start = Output::default;
    let change = Change { asker: None, operation: Operation::Ended(Tid::task(2, 1)) };
    let propose = order::Message::Propose(1, Item::Change(change));
    let order = message(start(), 0, PeerMessage::Order(propose));
    let errand = Errand::Status(Tid::task(HOST, 1));
    let errands = message(start(), 0, PeerMessage::Errand(3, errand));
    let full = message(start(), 1, PeerMessage::Full(Tid::task(2, 1)));
    let full = message(full, 1, PeerMessage::Room(Tid::task(2, 1)));
    let alive = message(message(start(), 0, PeerMessage::Alive), 1, PeerMessage::Halt);
    let forwarded = start().raw(&[130]).bytes(&sent(Tid::task(2, 1), 0, &[&[0, 0, 0, 1]]));
    let lost = forwarded.clone().raw(&[192]);
    numbered([order, errands, full, alive, forwarded, lost].map(|it| it.0))
}
