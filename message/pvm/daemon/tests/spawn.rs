//! Start, output, notices, signals and end of tasks are as in stock PVM.

mod client;

use std::path::Path;
use std::time::{Duration, Instant};

use client::{Client, Host, PATIENCE, parcel};
use pvm::constants::{
    PvmHostAdd, PvmHostCompl, PvmHostDelete, PvmNoSpawnParent, PvmNotifyCancel, PvmTaskArch,
    PvmTaskExit, PvmTaskHost,
};
use pvm::error::Error;
use pvm::tid::Tid;
use pvm::wire::{Answer, Inheritance, Request, Sink, Spawn};

/// Variable with the role of the test program as a task.
const ROLE: &str = "PVMD_TEST_ROLE";

const OUTPUT: i32 = 77;
const EXIT: i32 = 78;
const READY: i32 = 1;

fn program(file: &str, arguments: &[&str], count: u32) -> Spawn {
    Spawn {
        file: file.into(),
        directory: String::new(),
        arguments: arguments.iter().map(|word| word.to_string()).collect(),
        flags: 0,
        place: String::new(),
        count,
        environment: Vec::new(),
        inheritance: Inheritance::default(),
    }
}

/// Returns a spawn of this test program as a task with a role; see `task`.
fn myself(role: &str, count: u32) -> Spawn {
    let exe = std::env::current_exe().expect("a test program");
    let file = exe.to_str().expect("a path").to_string();
    let spawn = program(&file, &["--exact", "task", "--nocapture"], count);
    Spawn { environment: vec![format!("{ROLE}={role}")], ..spawn }
}

fn heard_by(spawn: Spawn, tid: Tid) -> Spawn {
    let output = Sink { tid: tid.as_int(), context: 0, tag: OUTPUT };
    Spawn { inheritance: Inheritance { output, ..Inheritance::default() }, ..spawn }
}

fn spawned(client: &mut Client, spawn: Spawn) -> Vec<i32> {
    match client.ask(Request::Spawn(spawn)) {
        Ok(Answer::Spawned(slots, _)) => slots,
        other => panic!("{other:?} instead of tids"),
    }
}

fn notify(
    client: &mut Client,
    what: i32,
    tag: i32,
    tids: &[i32],
    count: i32,
) -> Result<Answer, i32> {
    let tids = tids.iter().map(|tid| Tid::from(*tid)).collect();
    client.ask(Request::Notify { what, context: 0, tag, tids, count })
}

/// Runs the role of a spawned test program.
#[test]
fn task() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let number = |name: &str| std::env::var(name).expect("set").parse::<u32>().expect("a number");
    let socket = std::env::var("PVMSOCK").expect("set");
    let mut task = Client::started_as(Path::new(&socket), Some(number("PVMEPID")));
    let parent = Tid::from(task.welcome.parent);
    task.ask(Request::Route(parcel(parent, READY, &[]))).expect("sent");
    match &role[..] {
        "wait" => std::thread::sleep(PATIENCE * 2),
        "leave" => {
            task.ask(Request::Exit).expect("left");
            std::thread::sleep(PATIENCE * 2);
        }
        "end" => {}
        role => panic!("no role {role}"),
    }
}

#[test]
fn output_of_children_comes_as_from_stock_pvm_and_before_their_exit_notice() {
    let host = Host::start("output");
    let mut parent = Client::new(&host.path);
    let me = parent.tid().as_int();
    let spawn = heard_by(program("echo", &["abc"], 2), parent.tid());
    let tids = spawned(&mut parent, spawn);
    assert_eq!(tids, [0x40002, 0x40003]);
    let messages: Vec<Vec<i32>> = (0..8).map(|_| parent.receive(OUTPUT).ints()).collect();
    let expected = |tid| {
        let abc = i32::from_be_bytes(*b"abc\n");
        [vec![tid, -2, me], vec![tid, -1, me], vec![tid, 4, abc], vec![tid, 0]]
    };
    for tid in tids {
        let own: Vec<_> = messages.iter().filter(|message| message[0] == tid).cloned().collect();
        assert_eq!(own, expected(tid));
    }
    assert_eq!(messages[..2].iter().map(|m| m[1]).collect::<Vec<_>>(), [-2, -2], "first all new");
    // Without a parent. The end is reported after the output.
    let flags = PvmNoSpawnParent;
    let spawn =
        Spawn { flags, ..heard_by(program("sh", &["-c", "read x; echo last"], 1), parent.tid()) };
    let tid = spawned(&mut parent, spawn)[0];
    let no_parent = Error::ParentNotSet.code();
    assert_eq!(parent.receive(OUTPUT).ints(), [tid, -2, no_parent]);
    host.halt();
}

#[test]
fn the_end_of_a_task_is_told_after_its_output_and_of_the_dead_at_once() {
    let host = Host::start("notify");
    let mut parent = Client::new(&host.path);
    let spawn = heard_by(program("sh", &["-c", "sleep 0.3; echo last"], 1), parent.tid());
    let tid = spawned(&mut parent, spawn)[0];
    assert_eq!(notify(&mut parent, PvmTaskExit, EXIT, &[tid], 0), Ok(Answer::Done));
    let message = parent.receive(EXIT);
    assert_eq!((message.ints(), message.header.source), (vec![tid], i32::MIN));
    let heard: Vec<i32> = std::iter::from_fn(|| parent.receive_until(OUTPUT, Duration::ZERO))
        .map(|message| message.ints()[1])
        .collect();
    assert_eq!(heard, [-2, -1, 5, 0]);
    assert_eq!(notify(&mut parent, PvmTaskExit, EXIT, &[tid, 0x40099], 0), Ok(Answer::Done));
    assert_eq!(parent.receive(EXIT).ints(), [tid]);
    assert_eq!(parent.receive(EXIT).ints(), [0x40099]);
    // Hosts, and arguments that name none.
    let bad = Err(Error::BadParam.code());
    assert_eq!(notify(&mut parent, PvmTaskExit, EXIT, &[0x40000], 0), bad);
    assert_eq!(notify(&mut parent, 99, EXIT, &[], 0), bad);
    assert_eq!(notify(&mut parent, PvmHostDelete, EXIT, &[0x40000], 0), Ok(Answer::Done));
    assert_eq!(notify(&mut parent, PvmHostDelete, EXIT, &[0x80000], 0), Ok(Answer::Done));
    assert_eq!(parent.receive(EXIT).ints(), [0x80000]);
    assert_eq!(notify(&mut parent, PvmHostAdd, EXIT, &[], -1), Ok(Answer::Done));
    host.halt();
}

#[test]
fn a_cancelled_notice_comes_at_once_and_once() {
    let host = Host::start("cancel");
    let mut parent = Client::new(&host.path);
    let tid = spawned(&mut parent, program("sleep", &["30"], 1))[0];
    for tag in [11, 11, 12] {
        notify(&mut parent, PvmTaskExit, tag, &[tid], 0).expect("noted");
    }
    let cancel = PvmTaskExit | PvmNotifyCancel;
    for (tag, comes) in [(13, false), (12, true), (11, true)] {
        notify(&mut parent, cancel, tag, &[tid], 0).expect("cancelled");
        assert_eq!(parent.receive_until(tag, Duration::from_millis(50)).is_some(), comes);
    }
    parent.ask(Request::Signal(Tid::from(tid), 15)).expect("sent");
    assert_eq!(parent.receive(11).ints(), [tid]);
    assert!(parent.receive_until(12, Duration::ZERO).is_none());
    host.halt();
}

#[test]
fn a_failed_start_has_stock_pvms_error_in_its_slot() {
    let host = Host::start("errors");
    let mut parent = Client::new(&host.path);
    let (none, nowhere) = (Error::NoFile.code(), Error::NoHost.code());
    assert_eq!(spawned(&mut parent, program("nosuchprogram", &[], 3)), [none; 3]);
    assert_eq!(spawned(&mut parent, program("/etc/passwd", &[], 1)), [none]);
    for (flags, place) in [
        (PvmTaskHost, "nohost"),
        (PvmTaskArch, "SUN4"),
        (PvmTaskHost | PvmHostCompl, "."),
        (PvmTaskHost | PvmHostCompl, ".:/tmp"),
    ] {
        let spawn = Spawn { flags, place: place.into(), ..program("true", &[], 2) };
        assert_eq!(spawned(&mut parent, spawn), [nowhere; 2], "{place}");
    }
    for (flags, place) in [(PvmTaskHost, "."), (PvmTaskArch, "LINUX64"), (0, ":/nodir")] {
        let spawn = Spawn { flags, place: place.into(), ..program("true", &[], 1) };
        assert!(spawned(&mut parent, spawn)[0] > 0, "{place}");
    }
    assert_eq!(parent.ask(Request::Spawn(program("true", &[], 0))), Err(Error::BadParam.code()));
    // The number of tasks is limited by the member indices, which ended tasks free.
    let slots = spawned(&mut parent, program("sleep", &["30"], 1100));
    let tids: Vec<i32> = slots.iter().copied().filter(|slot| *slot > 0).collect();
    assert!(tids.len() >= 1000 && slots[1099] == Error::OutOfRes.code(), "{}", tids.len());
    for &tid in &tids {
        parent.send(Request::Signal(Tid::from(tid), 9));
    }
    notify(&mut parent, PvmTaskExit, EXIT, &tids, 0).expect("noted");
    tids.iter().for_each(|_| drop(parent.receive(EXIT)));
    assert!(spawned(&mut parent, program("true", &[], 100)).iter().all(|slot| *slot > 0));
    host.halt();
}

#[test]
fn a_program_starts_with_the_directory_and_environment_of_stock_pvm() {
    let host = Host::start("begin");
    let mut parent = Client::new(&host.path);
    let script = "echo $PWD $FOO $PVM_ARCH $PVMCTX $PVMTRCBUF $0; pwd; test -t 0 || cat";
    let spawn = Spawn {
        place: ":usr".into(),
        environment: vec!["FOO=bar".into(), "PVM_EXPORT=FOO".into()],
        ..heard_by(program("sh", &["-c", script], 1), parent.tid())
    };
    let tid = spawned(&mut parent, spawn)[0];
    notify(&mut parent, PvmTaskExit, EXIT, &[tid], 0).expect("noted");
    parent.receive(EXIT);
    let mut text = Vec::new();
    while let Some(message) = parent.receive_until(OUTPUT, Duration::ZERO) {
        let length = message.ints()[1].max(0) as usize;
        text.extend_from_slice(message.data.get(8..8 + length).unwrap_or_default());
    }
    assert_eq!(String::from_utf8_lossy(&text), "/usr bar LINUX64 0x0 0 /bin/sh\n/usr\n");
    host.halt();
}

#[test]
fn a_spawned_task_knows_its_parent_and_its_end_is_noticed_however_it_comes() {
    let host = Host::start("ends");
    let mut parent = Client::new(&host.path);
    for (role, signal) in [("end", 0), ("leave", 0), ("wait", 9), ("wait", 15)] {
        let tid = spawned(&mut parent, myself(role, 1))[0];
        notify(&mut parent, PvmTaskExit, EXIT, &[tid], 0).expect("noted");
        assert_eq!(parent.receive(READY).header.source, tid);
        if signal != 0 {
            let Ok(Answer::Tasks(tasks)) = parent.ask(Request::Tasks(Tid::from(tid))) else {
                panic!("no task")
            };
            assert_eq!((tasks[0].parent, tasks[0].flags), (parent.tid(), 6));
            parent.ask(Request::Signal(Tid::from(tid), signal)).expect("sent");
        }
        assert_eq!(parent.receive(EXIT).ints(), [tid], "{role} {signal}");
        let status = parent.ask(Request::TaskStatus(Tid::from(tid)));
        assert_eq!(status, Err(Error::NoTask.code()));
    }
    // Signals to unknown tasks are dropped.
    assert_eq!(parent.ask(Request::Signal(Tid(0x40077), 9)), Ok(Answer::Done));
    assert_eq!(parent.ask(Request::Signal(Tid(0xc0001), 9)), Ok(Answer::Done));
    let began = Instant::now();
    host.halt();
    assert!(began.elapsed() < PATIENCE, "halt waits for nobody for long");
}

#[test]
fn unclaimed_output_goes_to_the_log_and_empty_logs_are_removed() {
    let host = Host::start("log");
    let mut parent = Client::new(&host.path);
    let script = "printf 'one\\ntwo'; printf three >&2";
    let tid = spawned(&mut parent, program("sh", &["-c", script], 1))[0];
    notify(&mut parent, PvmTaskExit, EXIT, &[tid], 0).expect("noted");
    parent.receive(EXIT);
    let log = std::fs::read_to_string(&host.log).expect("a log");
    assert_eq!(log, "[t40002] one\n[t40002] twothree\n");
    host.halt();
}
