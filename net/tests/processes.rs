//! Fabrics in real processes: many at once, killed at random instants, stopped, started anew.
//! `NAGAYA_SEED=n` repeats a run's choices.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use net::event::{Event, Peer, Sending};
use net::fabric::Fabric;
use net::hex;
use net::ucx::ucp::Ucp;

mod node;
use node::{
    ALL_WAYS, Node, TIME_LIMIT, again_over, again_over_newer_ucx, bytes_of, payload, play, random,
    round, secret,
};

/// How soon the end of a process is known; the machine may be busy.
const LOST_MAX: Duration = Duration::from_secs(5);

#[test]
fn role() {
    play();
}

#[test]
fn every_test_here_passes_over_tcp() {
    again_over("tcp", None);
}

#[test]
fn every_test_here_passes_over_ucx() {
    again_over("ucx-tcp", None);
}

#[test]
fn every_test_here_passes_over_a_newer_ucx() {
    again_over_newer_ucx();
}

fn fabric() -> Fabric {
    Fabric::new(1, &secret()).unwrap()
}

#[track_caller]
fn next(fabric: &mut Fabric, timeout: Duration) -> Event {
    fabric.wait(timeout).unwrap().expect("an event in time")
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn thousands_of_messages_of_several_peers_come_in_order() {
    const COUNT: u64 = 20_000;
    let mut fabric = fabric();
    let environment =
        [("FABRIC_TO", hex::encode(fabric.address())), ("FABRIC_COUNT", COUNT.to_string())];
    let mut senders: Vec<_> = (2..6).map(|id| Node::start("send", id, &environment)).collect();
    let mut counts = HashMap::new();
    let mut closed = 0;
    while closed < senders.len() {
        match next(&mut fabric, TIME_LIMIT) {
            Event::Message { from, header, payload: came } => {
                let n: &mut u64 = counts.entry(from.id).or_default();
                assert_eq!(header, n.to_le_bytes());
                assert!(came == payload(*n, bytes_of(*n)), "message {n} of {}", from.id);
                *n += 1;
            }
            Event::Closed(_) => closed += 1,
            Event::Lost { peer, why } => panic!("{} is lost: {why}", peer.id),
            _ => {}
        }
    }
    assert_eq!(counts, (2..6).map(|id| (id, COUNT)).collect());
    // They wait for our bye.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(100) {
        fabric.poll();
    }
    for sender in &mut senders {
        assert!(sender.wait().success());
    }
}

/// Waits for the end of a peer, whose sends must all be accounted for. Returns the number of its
/// messages before that.
fn wait_for_loss(
    fabric: &mut Fabric,
    gone: Peer,
    mut pending: HashSet<net::event::SendId>,
) -> usize {
    let begin = Instant::now();
    let mut messages = 0;
    loop {
        let left = LOST_MAX.saturating_sub(begin.elapsed());
        match next(fabric, left) {
            Event::Sent(id) | Event::Unsent(id) => {
                pending.remove(&id);
            }
            Event::Lost { peer, .. } if peer == gone => break,
            Event::Lost { peer, why } => panic!("{} is lost: {why}", peer.id),
            Event::Message { from, .. } if from == gone => messages += 1,
            _ => {}
        }
    }
    assert_eq!(pending, HashSet::new(), "Lost is a peer's last event");
    messages
}

#[test]
fn peers_killed_at_random_instants_are_lost_in_time_and_harm_nobody() {
    let mut random = random();
    let mut fabric = fabric();
    let stays = connected_echo(&mut fabric);
    let before = descriptors();
    for turn in 0..20 {
        let victim = Node::start("echo", 100, &[]);
        let peer = fabric.connect(&victim.address).unwrap();
        let end = Instant::now() + Duration::from_micros(random.u64(..30_000));
        let mut pending = HashSet::new();
        // Both ways full of messages, short and long.
        while Instant::now() < end {
            let bytes = [10, 5_000, 200_000, 2_000_000][random.usize(..4)];
            if pending.len() < 8
                && let Ok(Sending::Pending(id)) = fabric.send(peer, b"x", payload(1, bytes))
            {
                pending.insert(id);
            }
            match fabric.poll() {
                Some(Event::Sent(id)) => drop(pending.remove(&id)),
                Some(Event::Lost { peer, why }) => panic!("{} is lost: {why}", peer.id),
                _ => {}
            }
        }
        victim.signal(libc::SIGKILL);
        wait_for_loss(&mut fabric, peer, pending);
        assert!(fabric.send(peer, b"", Vec::new()).is_err());
        round(&mut fabric, stays.0, turn);
    }
    // Other tests of this process have descriptors, too, which they close in time.
    let begin = Instant::now();
    while descriptors() >= before + 10 {
        let late = begin.elapsed() > TIME_LIMIT;
        assert!(!late, "{before} descriptors have become {}", descriptors());
        assert!(fabric.poll().is_none());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Steps of a connection's start and of the messages after which a peer dies: after the last ones
/// all is done. A step is a few polls, since some carriers rarely look at new connections.
const STEPS: u64 = 40;
const POLLS_PER_STEP: u64 = 8;

/// A process that dies after `step` steps.
fn victim(step: u64, environment: &[(&str, String)]) -> Node {
    let count = ("FABRIC_COUNT", (step * POLLS_PER_STEP).to_string());
    Node::start("dies", 100, &[environment, &[count]].concat())
}

/// A peer that lives on.
fn connected_echo(fabric: &mut Fabric) -> (Peer, Node) {
    let echo = Node::start("echo", 2, &[]);
    let peer = fabric.connect(&echo.address).unwrap();
    round(fabric, peer, 0);
    (peer, echo)
}

#[test]
fn a_called_peer_that_dies_at_any_step_is_lost_and_harms_nobody() {
    let mut fabric = fabric();
    let stays = connected_echo(&mut fabric);
    let mut answers = 0;
    for step in 0..STEPS {
        let victim = victim(step, &[]);
        let peer = fabric.connect(&victim.address).unwrap();
        let mut pending = HashSet::new();
        for bytes in ALL_WAYS {
            match fabric.send(peer, b"to the victim", payload(step, bytes)) {
                Ok(Sending::Pending(id)) => drop(pending.insert(id)),
                Ok(Sending::Done) | Err(_) => {}
            }
        }
        answers += wait_for_loss(&mut fabric, peer, pending);
        round(&mut fabric, stays.0, step);
    }
    assert!((1..STEPS as usize * ALL_WAYS.len()).contains(&answers), "{answers} answers");
}

/// UCX before 1.14 aborts this process if a caller ends while it is answered (docs/net.md). The
/// test runs with a newer UCX, too.
fn is_over_old_ucx() -> bool {
    let is_ucx = std::env::var("NAGAYA_NET").is_ok_and(|names| names == "ucx-tcp");
    is_ucx && Ucp::get().is_ok_and(|ucx| ucx.version() < (1, 14))
}

#[test]
fn a_calling_peer_that_dies_at_any_step_is_lost_and_harms_nobody() {
    if is_over_old_ucx() {
        return;
    }
    let mut fabric = fabric();
    let stays = connected_echo(&mut fabric);
    let to = ("FABRIC_TO", hex::encode(fabric.address()));
    let (mut calls, mut messages) = (0, 0);
    for step in 0..STEPS {
        let mut victim = victim(step, std::slice::from_ref(&to));
        let (mut is_connected, mut end) = (false, None);
        // After its death the caller is lost, unless it never was a peer.
        loop {
            match fabric.wait(Duration::from_millis(20)).unwrap() {
                Some(Event::Connected(_)) => is_connected = true,
                Some(Event::Message { header, .. }) => {
                    assert_eq!(header, b"from the victim");
                    messages += 1;
                }
                Some(Event::Lost { .. }) => break,
                Some(event) => panic!("step {step}: {event:?}"),
                None => {}
            }
            end = end.or_else(|| victim.has_ended().then(Instant::now));
            let since = end.map_or(Duration::ZERO, |end| end.elapsed());
            assert!(since < LOST_MAX, "step {step}: the end of the caller is not noticed");
            if !is_connected && since > Duration::from_millis(100) {
                break;
            }
        }
        calls += u64::from(is_connected);
        round(&mut fabric, stays.0, step);
    }
    assert!(0 < calls && 0 < messages, "{calls} calls, {messages} messages");
}

#[test]
fn a_peer_that_is_idle_is_lost_when_it_is_killed() {
    let mut fabric = fabric();
    let victim = Node::start("echo", 2, &[]);
    let peer = fabric.connect(&victim.address).unwrap();
    round(&mut fabric, peer, 0);
    victim.signal(libc::SIGKILL);
    wait_for_loss(&mut fabric, peer, HashSet::new());
}

#[test]
fn a_peer_that_connected_to_us_is_lost_when_it_is_killed() {
    let mut fabric = fabric();
    let environment =
        [("FABRIC_TO", hex::encode(fabric.address())), ("FABRIC_COUNT", u64::MAX.to_string())];
    let victim = Node::start("send", 2, &environment);
    let Event::Connected(peer) = next(&mut fabric, TIME_LIMIT) else { panic!() };
    for _ in 0..1000 {
        let event = next(&mut fabric, TIME_LIMIT);
        assert!(matches!(event, Event::Message { .. }), "{event:?}");
    }
    victim.signal(libc::SIGKILL);
    wait_for_loss(&mut fabric, peer, HashSet::new());
}

#[test]
fn a_connection_to_nobody_is_lost() {
    let mut fabric = fabric();
    let address = Node::start("echo", 2, &[]).address.clone();
    let peer = fabric.connect(&address).unwrap();
    // UCX may know at once.
    let pending = match fabric.send(peer, b"", vec![1; 100]) {
        Ok(Sending::Pending(id)) => HashSet::from([id]),
        _ => HashSet::new(),
    };
    wait_for_loss(&mut fabric, peer, pending);
}

#[test]
fn a_restarted_process_is_a_new_peer() {
    let mut fabric = fabric();
    let first = Node::start("echo", 2, &[]);
    let old = fabric.connect(&first.address).unwrap();
    round(&mut fabric, old, 0);
    first.signal(libc::SIGKILL);
    wait_for_loss(&mut fabric, old, HashSet::new());
    let second = Node::start("echo", 2, &[]);
    let new = fabric.connect(&second.address).unwrap();
    assert_ne!(old, new);
    assert!(fabric.send(old, b"", Vec::new()).is_err());
    round(&mut fabric, new, 1);
}

#[test]
fn a_connection_that_was_closed_can_be_made_again() {
    let mut fabric = fabric();
    let echo = Node::start("echo", 2, &[]);
    for n in 0..20 {
        let peer = fabric.connect(&echo.address).unwrap();
        assert_eq!(fabric.connect(&echo.address), Ok(peer), "it stands already");
        round(&mut fabric, peer, n);
        fabric.close(peer);
        while !matches!(next(&mut fabric, TIME_LIMIT), Event::Closed(closed) if closed == peer) {}
        assert!(fabric.send(peer, b"", Vec::new()).is_err());
    }
}

#[test]
fn a_connection_that_was_abandoned_can_be_made_again() {
    let mut fabric = fabric();
    let mut echo = Node::start("echo", 2, &[]);
    for n in 0..5 {
        let peer = fabric.connect(&echo.address).unwrap();
        round(&mut fabric, peer, n);
        let sent = fabric.send(peer, b"", vec![0; 8 << 20]).unwrap();
        fabric.abandon(peer);
        let pending = match sent {
            Sending::Pending(id) => HashSet::from([id]),
            Sending::Done => HashSet::new(),
        };
        wait_for_loss(&mut fabric, peer, pending);
        // UCX closes its sockets while it is let work.
        let heard = std::thread::scope(|scope| {
            let heard = scope.spawn(|| echo.word("lost"));
            while !heard.is_finished() {
                fabric.wait(Duration::from_millis(1)).unwrap();
            }
            heard.join().unwrap()
        });
        assert!(heard.starts_with("1 "), "{heard}");
    }
}

#[test]
fn a_peer_that_is_stopped_is_waited_for() {
    let mut fabric = fabric();
    let echo = Node::start("echo", 2, &[]);
    let peer = fabric.connect(&echo.address).unwrap();
    round(&mut fabric, peer, 0);
    echo.signal(libc::SIGSTOP);
    echo.until_stopped();
    for _ in 0..20 {
        fabric.send(peer, b"later", vec![3; 1 << 20]).unwrap();
    }
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(1) {
        let event = fabric.wait(Duration::from_millis(100)).unwrap();
        assert!(matches!(event, None | Some(Event::Sent(_))), "{event:?}");
    }
    echo.signal(libc::SIGCONT);
    let mut back = 0;
    while back < 20 {
        match next(&mut fabric, TIME_LIMIT) {
            Event::Message { payload, .. } => {
                assert_eq!(payload.len(), 1 << 20);
                back += 1;
            }
            Event::Lost { why, .. } => panic!("lost: {why}"),
            _ => {}
        }
    }
}

#[test]
fn programs_that_a_process_executes_inherit_no_connection() {
    /// O_CLOEXEC, as the kernel shows it.
    const CLOSES: &str = "flags:\t02";
    let mut fabric = fabric();
    let echo = Node::start("echo", 2, &[]);
    let peer = fabric.connect(&echo.address).unwrap();
    round(&mut fabric, peer, 0);
    let directory = PathBuf::from(format!("/proc/{}", echo.pid()));
    let inherited = || {
        let names = std::fs::read_dir(directory.join("fd")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name());
        let found = names.filter_map(|name| {
            let to = std::fs::read_link(directory.join("fd").join(&name)).ok()?;
            let info = std::fs::read_to_string(directory.join("fdinfo").join(&name)).ok()?;
            let to = to.to_str()?.to_owned();
            // A socket that is in no table is not connected: UCX keeps one now and then.
            let inode = to.strip_prefix("socket:[").and_then(|to| to.strip_suffix(']'));
            let is_connected = inode.and_then(|inode| {
                let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
                table.lines().find(|line| line.split_whitespace().nth(9) == Some(inode))?;
                Some(())
            });
            let is_ucxs = is_connected.is_some() || to == "anon_inode:[eventpoll]";
            (is_ucxs && !info.contains(CLOSES)).then(|| format!("{name:?} {to} {info}"))
        });
        found.collect::<Vec<_>>()
    };
    let begin = Instant::now();
    while !inherited().is_empty() {
        assert!(begin.elapsed() < TIME_LIMIT / 4, "inherited: {:?}", inherited());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn both_may_call_at_once() {
    // Each calls the other before it has heard of it.
    let mut fabrics = [1, 2].map(|id| Fabric::new(id, &secret()).unwrap());
    let addresses = [1, 0].map(|other: usize| fabrics[other].address().to_vec());
    let peers = [0, 1].map(|i: usize| fabrics[i].connect(&addresses[i]).unwrap());
    for (fabric, peer) in fabrics.iter_mut().zip(peers) {
        fabric.send(peer, b"", vec![1]).unwrap();
    }
    let mut came = [0, 0];
    let begin = Instant::now();
    while came != [1, 1] {
        assert!(begin.elapsed() < TIME_LIMIT);
        for i in [0, 1] {
            match fabrics[i].poll() {
                Some(Event::Message { from, .. }) => {
                    assert_eq!(from, peers[i], "one connection, not two");
                    came[i] += 1;
                }
                Some(Event::Lost { why, .. }) => panic!("lost: {why}"),
                _ => {}
            }
        }
    }
}
