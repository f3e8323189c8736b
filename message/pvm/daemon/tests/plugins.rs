//! Plug-ins, which do a part of the daemon's work, exchange the messages of stock PVM.

mod client;

use client::{Client, Host};
use pvm::constants::PvmTaskExit;
use pvm::envelope::{Envelope, What};
use pvm::error::Error;
use pvm::message::Header;
use pvm::protocol::*;
use pvm::signature::XDR;
use pvm::tid::Tid;
use pvm::wire::{Answer, Inheritance, Parcel, Request, Sink, Spawn};

const EXIT: i32 = 5;

/// An item packed by pvm_pkint or pvm_pkstr.
enum Item<'a> {
    Int(i32),
    Text(&'a str),
}

fn message(wait_id: i32, items: &[Item]) -> Parcel {
    let header = Header { wait_id, ..Header::default() };
    let envelope = Envelope { what: What::Message, header, number: 0, encoding: XDR, fragments: 1 };
    let mut bytes = envelope.to_bytes().to_vec();
    for item in items {
        match item {
            Item::Int(number) => bytes.extend(number.to_be_bytes()),
            Item::Text(text) => {
                bytes.extend((text.len() as i32 + 1).to_be_bytes());
                bytes.extend(text.as_bytes());
                bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
            }
        }
    }
    Parcel { bytes }
}

/// Reads the strings and numbers of a message, one after the other.
struct Reader(Vec<u8>, usize);

impl Reader {
    fn int(&mut self) -> i32 {
        self.1 += 4;
        i32::from_be_bytes(self.0[self.1 - 4..self.1].try_into().expect("a word"))
    }

    fn text(&mut self) -> String {
        let length = self.int() as usize;
        let text = String::from_utf8_lossy(&self.0[self.1..self.1 + length - 1]).into_owned();
        self.1 += length.next_multiple_of(4);
        text
    }
}

fn program(file: &str) -> Request {
    Request::Spawn(Spawn {
        file: file.into(),
        directory: String::new(),
        arguments: vec!["one".into()],
        flags: 0,
        place: String::new(),
        count: 1,
        environment: vec!["FOO=bar".into()],
        inheritance: Inheritance::default(),
    })
}

fn spawned(client: &mut Client, request: Request) -> i32 {
    match client.ask(request) {
        Ok(Answer::Spawned(slots, _)) => slots[0],
        other => panic!("{other:?} instead of a tid"),
    }
}

fn watch(client: &mut Client, tid: i32) {
    let tids = vec![Tid::from(tid)];
    let notify = Request::Notify { what: PvmTaskExit, context: 0, tag: EXIT, tids, count: 0 };
    client.ask(notify).expect("noted");
}

#[test]
fn a_tasker_is_told_what_to_start_and_tells_of_the_end() {
    let host = Host::start("tasker");
    let mut parent = Client::new(&host.path);
    let mut tasker = Client::new(&host.path);
    assert_eq!(tasker.ask(Request::Tasker(true)), Ok(Answer::Done));
    assert_eq!(parent.ask(Request::Tasker(true)), Err(Error::Already.code()));
    assert_eq!(spawned(&mut parent, program("nosuch")), Error::NoFile.code());
    let tid = spawned(&mut parent, program("true"));
    let told = tasker.receive(SM_STTASK);
    assert_eq!((told.header.source, told.header.context), (i32::MIN, 0));
    let mut reader = Reader(told.data, 0);
    assert_eq!((reader.int(), reader.int()), (tid, 0));
    assert_eq!((reader.text(), reader.int()), ("/bin/true".into(), 2));
    assert_eq!((reader.text(), reader.text()), ("/bin/true".into(), "one".into()));
    let count = reader.int();
    let environment: Vec<String> = (0..count).map(|_| reader.text()).collect();
    assert!(environment.contains(&"FOO=bar".into()), "{environment:?}");
    let cookie = environment.iter().find_map(|pair| pair.strip_prefix("PVMEPID="));
    let cookie = cookie.expect("a cookie").parse().expect("a number");
    // The task enrolls, and exits.
    watch(&mut parent, tid);
    let task = Client::started_as(&host.path, Some(cookie));
    assert_eq!((task.tid().as_int(), task.welcome.parent), (tid, parent.tid().as_int()));
    drop(task);
    assert_eq!(parent.receive(EXIT).ints(), [tid]);
    // The task does not enroll, and the tasker reports that. No other task may.
    let tid = spawned(&mut parent, program("true"));
    watch(&mut parent, tid);
    let end = message(0, &[tid, 0, 0, 0, 0, 0].map(Item::Int));
    let denied = parent.ask(Request::PlugIn(SM_TASKX, end.clone()));
    assert_eq!(denied, Err(Error::Denied.code()));
    assert_eq!(tasker.ask(Request::PlugIn(SM_TASKX, end)), Ok(Answer::Done));
    assert_eq!(parent.receive(EXIT).ints(), [tid]);
    // The task does not enroll, and the tasker has ended.
    let tid = spawned(&mut parent, program("true"));
    watch(&mut parent, tid);
    drop(tasker);
    assert_eq!(parent.receive(EXIT).ints(), [tid]);
    assert_eq!(parent.ask(Request::Tasker(true)), Ok(Answer::Done));
    host.halt();
}

#[test]
fn a_resource_manager_has_tasks_started_and_is_told_of_all_that_come_and_go() {
    let host = Host::start("manager");
    let mut manager = Client::new(&host.path);
    let sink = |n| [Item::Int(0), Item::Int(0), Item::Int(n)];
    let exec = |wait_id| {
        let mut items = vec![
            Item::Int(0x40001),
            Item::Text("echo"),
            Item::Int(0),
            Item::Int(2),
            Item::Int(1),
            Item::Text("hello"),
        ];
        items.extend(sink(0).into_iter().chain(sink(0)));
        items.extend([Item::Int(1), Item::Text("FOO=bar")]);
        Request::PlugIn(SM_EXEC, message(wait_id, &items))
    };
    assert_eq!(manager.ask(exec(1)), Err(Error::Denied.code()));
    assert_eq!(manager.ask(Request::ResourceManager), Ok(Answer::Done));
    assert_eq!(manager.ask(exec(77)), Ok(Answer::Done));
    let acknowledged = manager.receive(SM_EXECACK);
    assert_eq!((acknowledged.header.wait_id, &acknowledged.ints()[..1]), (77, &[2][..]));
    let mut ended = [manager.receive(SM_TASKX).ints()[0], manager.receive(SM_TASKX).ints()[0]];
    ended.sort();
    assert_eq!(ended, acknowledged.ints()[1..]);
    // The manager is also notified of tasks that enroll by themselves.
    let other = Client::new(&host.path).tid().as_int();
    assert_eq!(manager.receive(SM_EXECACK).ints(), [1, other]);
    assert_eq!(manager.receive(SM_TASKX).ints(), [other, 0, 0, 0, 0, 0]);
    // Messages that no plug-in sends.
    let bad = Err(Error::BadMsg.code());
    assert_eq!(manager.ask(Request::PlugIn(SM_EXEC, message(0, &[Item::Int(1)]))), bad);
    assert_eq!(manager.ask(Request::PlugIn(12, message(0, &[]))), bad);
    assert_eq!(manager.ask(Request::PlugIn(SM_EXEC, Parcel { bytes: vec![1; 7] })), bad);
    host.halt();
}

#[test]
fn a_resource_manager_adds_hosts_and_hands_its_work_over() {
    let host = Host::start("handoff");
    let mut manager = Client::new(&host.path);
    let mut next = Client::new(&host.path);
    assert_eq!(next.welcome.manager, None);
    assert_eq!(manager.ask(Request::ResourceManager), Ok(Answer::Done));
    assert_eq!(Client::new(&host.path).welcome.manager, Some(manager.tid()));
    // Neither host can be started.
    let add = message(5, &[Item::Int(2), Item::Text("lo=a b"), Item::Text("")]);
    assert_eq!(next.ask(Request::PlugIn(SM_ADD, add.clone())), Err(Error::Denied.code()));
    assert_eq!(manager.ask(Request::PlugIn(SM_ADD, add)), Ok(Answer::Done));
    let added = manager.receive(SM_ADDACK);
    assert_eq!(added.header.wait_id, 5);
    let mut reader = Reader(added.data, 0);
    assert_eq!((reader.int(), reader.int()), (2, 0));
    for _ in 0..2 {
        assert_eq!(reader.int(), Error::BadParam.code());
        assert_eq!((reader.text(), reader.text()), (String::new(), String::new()));
        assert_eq!((reader.int(), reader.int()), (0, 0));
    }
    // A handoff to an existing task succeeds, and to others it fails.
    let hand_off = |tid| Request::PlugIn(SM_HANDOFF, message(0, &[Item::Int(tid)]));
    let to_next = hand_off(next.tid().as_int());
    assert_eq!(next.ask(to_next.clone()), Err(Error::Denied.code()));
    assert_eq!(manager.ask(hand_off(0x4ffff)), Ok(Answer::Done));
    assert_eq!(Client::new(&host.path).welcome.manager, Some(manager.tid()));
    assert_eq!(manager.ask(to_next), Ok(Answer::Done));
    assert_eq!(Client::new(&host.path).welcome.manager, Some(next.tid()));
    // A manager that has ended loses its role, and its clients are notified.
    let before = next.tid();
    drop(next);
    let begin = std::time::Instant::now();
    while Client::new(&host.path).welcome.manager == Some(before) {
        assert!(begin.elapsed() < client::PATIENCE, "the manager's end is noticed");
    }
    assert_eq!(Client::new(&host.path).welcome.manager, Some(manager.tid()));
    host.halt();
}

/// Returns the hoster's request: its wait ID, the tids and the commands.
fn wanted(hoster: &mut Client) -> (i32, Vec<i32>, Vec<String>) {
    let told = hoster.receive(SM_STHOST);
    let wait_id = told.header.wait_id;
    let mut reader = Reader(told.data, 0);
    let count = reader.int();
    let mut of_each = || {
        let tid = reader.int();
        let texts: Vec<String> = (0..5).map(|_| reader.text()).collect();
        (tid, texts[2].clone())
    };
    let (tids, commands) = (0..count).map(|_| of_each()).unzip();
    (wait_id, tids, commands)
}

#[test]
fn the_answer_of_a_hoster_reaches_the_caller_of_addhosts() {
    let host = Host::start("hoster");
    let mut parent = Client::new(&host.path);
    let mut hoster = Client::new(&host.path);
    let add =
        |names: &[&str]| Request::AddHosts(names.iter().map(|name| name.to_string()).collect());
    assert_eq!(hoster.ask(Request::Hoster(true)), Ok(Answer::Done));
    assert_eq!(parent.ask(Request::Hoster(true)), Err(Error::Already.code()));
    // Errors by name, unknown text, and no text.
    let id = parent.send(add(&["127.0.0.3", "127.0.0.4", "127.0.0.5"]));
    let (wait_id, tids, commands) = wanted(&mut hoster);
    for command in &commands {
        // Stock hosters have room for 511 bytes; some quote the command for a shell.
        assert!(command.len() < 400 && !command.contains(['\'', '"', ';', '|']), "{command}");
    }
    let said = |wait_id, items: &[Item]| Request::PlugIn(SM_STHOSTACK, message(wait_id, items));
    let items = [
        Item::Int(2),
        Item::Int(tids[0]),
        Item::Text("PvmDupHost"),
        Item::Int(tids[1]),
        Item::Text("ssh: no route to host"),
    ];
    assert_eq!(parent.ask(said(wait_id, &items)), Err(Error::Denied.code()));
    assert_eq!(hoster.ask(said(wait_id, &items)), Ok(Answer::Done));
    let cant = Error::CantStart.code();
    assert_eq!(parent.answer(id), Ok(Answer::Each(vec![Error::DupHost.code(), cant, cant])));
    // A malformed answer.
    let id = parent.send(add(&["127.0.0.3"]));
    let (wait_id, ..) = wanted(&mut hoster);
    let bad = Err(Error::BadMsg.code());
    assert_eq!(hoster.ask(said(wait_id, &[Item::Int(7), Item::Int(1)])), bad);
    assert_eq!(parent.answer(id), Ok(Answer::Each(vec![Error::DSysErr.code()])));
    // After the hoster's end, the daemon starts daemons itself again.
    let id = parent.send(add(&["127.0.0.3"]));
    wanted(&mut hoster);
    drop(hoster);
    assert_eq!(parent.answer(id), Ok(Answer::Each(vec![cant])));
    assert_eq!(parent.ask(Request::Hoster(true)), Ok(Answer::Done));
    host.halt();
}

#[test]
fn a_tracer_sets_the_trace_of_tasks_that_were_not_spawned() {
    let host = Host::start("tracer");
    let mut tracer = Client::new(&host.path);
    let trace = Sink { tid: tracer.tid().as_int(), context: 3, tag: 4 };
    let wanted = Inheritance { trace, trace_mask: "A".into(), ..Inheritance::default() };
    assert_eq!(tracer.ask(Request::Tracer(Some(wanted.clone()))), Ok(Answer::Done));
    assert_eq!(Client::new(&host.path).welcome.inheritance, wanted);
    drop(tracer);
    let begin = std::time::Instant::now();
    while Client::new(&host.path).welcome.inheritance != Inheritance::default() {
        assert!(begin.elapsed() < client::PATIENCE, "the tracer's end is noticed");
    }
    host.halt();
}
