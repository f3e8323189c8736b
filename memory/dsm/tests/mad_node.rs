//! A node that has the job's secret and talks nonsense: whatever it says, the other ends the job
//! with one line that names it. `NAGAYA_SEED` says which nonsense.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use coherence::diff;
use coherence::message::{Header, Op};
use coherence::random::Random;
use coherence::ride::{self, By, Fate, Ride};
use coherence::run::{self, NOBODY, Run};
use dsm::frame::{Address, Frame};
use dsm::launch::Launch;
use dsm::ledger::Allocation;
use dsm::settings::Settings;
use dsm::task::Task;
use dsm::world::Card;
use net::event::{Event, Peer};
use net::fabric::Fabric;
use net::rendezvous::Host;
use net::secret::Secret;

/// Which of both a process is; nothing in the test itself.
const ROLE: &str = "MAD_NODE_ROLE";
/// What the mad one says.
const SAYS: &str = "MAD_NODE_SAYS";
/// Until when all has ended; the machine may be busy.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Pages of the job's memory, and their bytes.
const PAGES: usize = 64;
const PAGE: usize = 8192;

#[test]
fn role() {
    match std::env::var(ROLE).as_deref() {
        Ok("sane") => sane(),
        Ok("mad") => mad(),
        _ => {}
    }
}

/// Uses memory, locks and barriers for ever.
fn sane() {
    let Ok(mut task) = Task::join() else { panic!("cannot join") };
    // What is said at once comes before there is any memory.
    std::thread::sleep(Duration::from_millis(100));
    let start = task.allocate((PAGES * PAGE) as u64, PAGE as u64, 0).expect("memory");
    for round in 0.. {
        for page in (round % 2..PAGES).step_by(2) {
            let byte = std::ptr::with_exposed_provenance_mut::<u8>(start + page * PAGE);
            // SAFETY: shared memory, which any task may write.
            unsafe { byte.write_volatile(byte.read_volatile().wrapping_add(1)) };
        }
        task.acquire(round as u32 % 4).expect("a lock");
        task.release(round as u32 % 4).expect("it is ours");
        if round % 8 == 7 {
            task.barrier().expect("a barrier");
        }
    }
}

/// Joins, says its nonsense, and leaves without a word.
fn mad() {
    let says = std::env::var(SAYS).expect("the test says");
    let launch = Launch::new().expect("the test's host");
    let agreed = Settings::of_environment().expect("they are").agreed;
    let limit = Some(TIME_LIMIT);
    let cards = launch.exchange(&Card::new(agreed).bytes(), limit).expect("both");
    let secret = Secret::new(Card::parse(&cards[0]).expect("a card").secret);
    let mut fabric = Fabric::new(1, &secret).expect("a fabric");
    let seat = (fabric.address(), (0usize, "none of your space", [0u8; 16]));
    let seat = postcard::to_allocvec(&seat).expect("into memory");
    let told = launch.exchange(&seat, limit).expect("both");
    let (address, _) = postcard::take_from_bytes::<Vec<u8>>(&told[0]).expect("an address");
    fabric.connect(&address).expect("a way");
    let until = Instant::now() + TIME_LIMIT;
    let peer = loop {
        assert!(Instant::now() < until, "nobody answers");
        if let Some(Event::Connected(peer)) = fabric.poll() {
            break peer;
        }
    };
    let mut send = |frame: Frame, body: Vec<u8>| send(&mut fabric, peer, frame, body);
    match says.parse::<u64>() {
        Ok(seed) => {
            let mut random = Random::new(seed);
            for _ in 0..300 {
                let (frame, body) = anything(&mut random);
                send(frame, body);
            }
        }
        Err(_) => NONSENSE.iter().find(|nonsense| nonsense.0 == says).expect("listed").1(&mut send),
    }
    // It must be heard before our end is.
    while Instant::now() < until {
        if matches!(fabric.poll(), Some(Event::Lost { .. } | Event::Closed(_))) {
            break;
        }
    }
}

fn send(fabric: &mut Fabric, peer: Peer, frame: Frame, body: Vec<u8>) {
    let _ = fabric.send(peer, &frame.bytes(), body);
    fabric.progress();
}

fn header(op: Op) -> Header {
    Header { op, from: 1, to: 0, lock: 0, scope: 0, epoch: 0, rides: 0 }
}

fn runs(first: u64, pages: u64) -> Vec<u8> {
    run::encode(&[Run { first, pages, writer: NOBODY }])
}

type Say<'a> = &'a mut dyn FnMut(Frame, Vec<u8>);

/// Its name, how it is said, and what the line says of it.
#[allow(clippy::type_complexity, reason = "a list, used here")]
const NONSENSE: &[(&str, fn(Say<'_>), &str)] = &[
    (
        "changes that end with rides",
        |say| {
            let mut body = Vec::new();
            diff::append(&mut body, 0, &[0; PAGE], &[1; PAGE]);
            ride::append(&mut body, &[Ride { page: 0, by: By::Next, fate: Fate::Used }]);
            say(Frame::Page(Header { rides: 1, ..header(Op::Diff) }), body);
        },
        "OP_DIFF has ride records that the operation must not have",
    ),
    (
        "an arrival that names pages that do not exist yet",
        |say| say(Frame::Page(header(Op::Barrier)), runs(0, 10)),
        "OP_BARR lists written pages of which it has had no copy",
    ),
    (
        "the end of numbers",
        |say| {
            say(Frame::Page(Header { lock: 3, scope: u64::MAX, ..header(Op::AcquireGrant) }), {
                Vec::new()
            });
        },
        "OP_ACQGRANT grants a lock without a request",
    ),
    (
        "two lists at once",
        |say| {
            say(Frame::Page(header(Op::WriteNotice)), runs(0, 1));
            say(Frame::Page(Header { lock: 2, ..header(Op::WriteNotice) }), runs(0, 1));
        },
        "OP_WTNT interrupts a list",
    ),
    ("another's name", |say| say(Frame::Page(Header { from: 0, ..header(Op::Meet) }), vec![]), {
        "has sent an unknown header: a protocol violation"
    }),
    (
        "a message for nobody",
        |say| say(Frame::Message(Address { from: 1, to: 9, tag: 0 }), vec![]),
        "has sent a message between other tasks",
    ),
    (
        "messages without end",
        |say| {
            for _ in 0..100_000 {
                say(Frame::Message(Address { from: 1, to: 0, tag: 0 }), vec![0; 4000]);
            }
        },
        "has sent messages beyond the limit",
    ),
    (
        "messages that were never sent",
        |say| say(Frame::Received { task: 1, bytes: 1 }, vec![]),
        "has sent a receipt of unsent messages",
    ),
];

/// Something that parses, nearly always.
fn anything(random: &mut Random) -> (Frame, Vec<u8>) {
    let number = |random: &mut Random| match random.below(6) {
        0 => u64::MAX - random.below(3) as u64,
        _ => random.below(PAGES + 9) as u64,
    };
    let frame = match random.below(12) {
        0 => Frame::Message(Address {
            from: 1,
            to: random.one_in(9).into(),
            tag: random.below(3) as i32,
        }),
        1 => Frame::Received { task: random.below(3) as u32, bytes: random.below(2) as u64 },
        2 => Frame::Allocated(Allocation { bytes: number(random), block: 1, first: 0 }),
        3 => Frame::Alive,
        _ => Frame::Page(Header {
            op: Op::ALL[random.below(Op::ALL.len())],
            lock: random.below(4) as u32,
            scope: number(random),
            epoch: random.below(2) as u64,
            ..header(Op::Meet)
        }),
    };
    let mut body = Vec::new();
    if let Frame::Page(Header { op, .. }) = frame {
        match op {
            Op::GetPageGrant => body = vec![0; PAGE],
            Op::Diff => {
                diff::append(&mut body, number(random), &[0; PAGE], &[1; PAGE]);
            }
            Op::GetPage | Op::DiffGrant | Op::Acquire | Op::Reset | Op::Wait => {}
            Op::Meet | Op::MeetGrant => {}
            _ => body = runs(number(random), 1),
        }
    }
    (frame, body)
}

fn start(host: &Host, rank: u32, says: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this"));
    command.args(["role", "--exact", "--nocapture"]);
    command.envs(Host::environment(host.name(), rank, 2, 1)).env(SAYS, says);
    command.env(ROLE, if rank == 0 { "sane" } else { "mad" });
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// What the sane node says at its end.
#[track_caller]
fn end_after(says: &str) -> String {
    let host = Host::new(2, || {}).expect("a socket");
    let (mut sane, mut mad) = (start(&host, 0, says), start(&host, 1, says));
    let until = Instant::now() + TIME_LIMIT;
    while sane.try_wait().expect("ours").is_none() {
        if Instant::now() > until {
            let _ = (sane.kill(), mad.kill());
            panic!("{says}: the job goes on");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = mad.kill();
    mad.wait().expect("ours");
    let end = sane.wait_with_output().expect("ours");
    let said = String::from_utf8_lossy(&end.stderr).into_owned();
    assert_eq!(end.status.code(), Some(1), "{says}: {said}");
    assert_eq!(said.lines().count(), 1, "{says}: {said}");
    assert!(said.starts_with("nagaya: node 1 (task 1, host "), "{says}: {said}");
    said
}

#[test]
fn nonsense_is_told_in_one_line_that_names_the_node() {
    for (says, _, wanted) in NONSENSE {
        let said = end_after(says);
        assert!(said.contains(wanted), "{says}: {said}");
    }
}

#[test]
fn random_nonsense_ends_the_job_with_one_line() {
    match std::env::var("NAGAYA_SEED") {
        Ok(seed) => drop(end_after(&seed)),
        Err(_) => (0..6).for_each(|seed| drop(end_after(&seed.to_string()))),
    }
}
