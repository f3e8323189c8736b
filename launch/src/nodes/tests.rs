//! The starter of a job over simulated nodes, in one thread. A seed selects what each node does,
//! and when, and the errors of system calls.

mod world;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use sync::clock;

use super::{END_MAX, Nodes};
use crate::Error;
use crate::hosts::Host;
use crate::meeting::{Addressee, Job};
use crate::messages::{self, Ended, Kind, Refusal};
use crate::status;

use self::world::{Act, Errors, KIND, Order, Path, Simulated, Starter, World, greeting};

/// Number of seeds in an ordinary run.
const SEEDS: u64 = 1000;
/// Maximum time of a step of a node that is not faulty.
const STEP_MAX: Duration = Duration::from_millis(200);
/// Maximum time until the end of a good node is reported.
const NOTICE_MAX: Duration = Duration::from_millis(5);
/// Maximum time of a start without a time limit.
const UNLIMITED_MAX: Duration = Duration::from_secs(10);

struct Test {
    order_bytes: usize,
    /// The nodes cannot work together.
    disagrees: bool,
}

impl Job for Test {
    const KIND: Kind = KIND;
    type Order = Order;
    type Ready = u32;
    type Everybody = Vec<u32>;

    fn order(&self, to: Addressee<'_>) -> Order {
        (to.node, vec![7; self.order_bytes])
    }

    fn everybody(&self, ready: Vec<u32>) -> Result<Vec<u32>, String> {
        if self.disagrees { Err("nodes of two kinds".into()) } else { Ok(ready) }
    }
}

/// A fault of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    OtherVersion,
    Flood,
    Refuses { is_of_program: bool },
    Dies,
    Closes,
    Garbage,
    Partial,
    Hangs,
}

/// Changes the script of a good node. Returns its fault.
fn spoil(world: &mut World, script: &mut Vec<(Duration, Act)>, node: usize, hangs: bool) -> Fault {
    let random = &mut world.random;
    let late = Duration::from_nanos(random.u64(0..1 << 28));
    let position = |script: &[(Duration, Act)], wanted: fn(&Act) -> bool| {
        script.iter().position(|it| wanted(&it.1)).expect("a good node does that")
    };
    let any = random.usize(0..position(script, |act| matches!(act, Act::Begin)) + 1);
    let is_second = random.bool();
    let answer = position(
        script,
        match is_second {
            false => |act| matches!(act, Act::Ready),
            true => |act| matches!(act, Act::Begin),
        },
    );
    let greets =
        position(script, |act| matches!(act, Act::Print(text) if text.starts_with(b"nagaya-test")));
    let (fault, path) = match random.u32(0..if hangs { 9 } else { 7 }) {
        0 => {
            script[greets].1 = greeting("0.9");
            (Fault::OtherVersion, Path::OtherVersion)
        }
        1 => {
            script[greets].1 = Act::Print(b"Welcome! ".repeat(8 << 10));
            (Fault::Flood, Path::Flood)
        }
        2 | 3 => {
            let is_of_program = random.u32(0..4) == 0;
            script.truncate(answer);
            let line = format!("reason {node}");
            script.push((late, Act::Refuse(Refusal { line, is_of_program })));
            script.push((late, Act::Die(1 << 8, late)));
            let path = match (is_of_program, is_second) {
                (true, _) => Path::RefusedProgram,
                (false, false) => Path::RefusedReady,
                (false, true) => Path::RefusedBegin,
            };
            (Fault::Refuses { is_of_program }, path)
        }
        4 => {
            script.truncate(any);
            script.push((late, Act::Complain(format!("nagaya: reason {node}\n\n"))));
            script.push((Duration::ZERO, Act::Die([9, 1 << 8][random.usize(0..2)], late)));
            (Fault::Dies, Path::Died)
        }
        5 => {
            script.truncate(any);
            script.push((late, Act::Complain(format!("reason {node}"))));
            script.push((Duration::ZERO, Act::Close));
            (Fault::Closes, Path::Closed)
        }
        6 => {
            script.truncate(answer);
            let bytes = [vec![0xff; 60], vec![1, 0, 0, 0, 7]];
            script.push((late, Act::Print(bytes[random.usize(0..2)].clone())));
            (Fault::Garbage, Path::Garbage)
        }
        7 => {
            script.truncate(answer);
            script.push((late, Act::Print(vec![9, 0, 0, 0, 0])));
            (Fault::Partial, Path::PartialMessage)
        }
        _ => {
            script.truncate(any);
            (Fault::Hangs, Path::Hung)
        }
    };
    world.count(path);
    fault
}

/// Returns what a node does that begins, runs for a while, and ends.
fn script(random: &mut Rng) -> Vec<(Duration, Act)> {
    let most = random.u64(1..STEP_MAX.as_nanos() as u64);
    let mut step = |act| (Duration::from_nanos(random.u64(0..most)), act);
    let login = Act::Print(b"Welcome to nagaya-test\n\n".to_vec());
    let mut script = vec![
        step(login),
        step(Act::Complain("Warning: permanently added\n".into())),
        step(greeting(KIND.version)),
        step(Act::ReadOrder),
        step(Act::Ready),
        step(Act::ReadAll),
        step(Act::Begin),
    ];
    let most = 1 << random.u32(20..33);
    let run = Duration::from_nanos(random.u64(0..most));
    let status = [0, 3 << 8, 6][random.usize(0..3)];
    script.push((
        run,
        Act::Die(status, Duration::from_nanos(random.u64(0..NOTICE_MAX.as_nanos() as u64))),
    ));
    script
}

/// Checks that an error names a node that is faulty, and why.
fn check(
    error: &Error,
    faults: &[Option<Fault>],
    has_errors: &[bool],
    test: &Test,
) -> Option<Path> {
    let Error { line, status } = error;
    assert!(!line.contains('\n') && line.starts_with("test: "), "{line:?}");
    if line.contains("nodes of two kinds") {
        assert!(test.disagrees && *status == 125);
        return Some(Path::Disagreed);
    }
    let of_program = |node: usize| faults[node] == Some(Fault::Refuses { is_of_program: true });
    if *status == 126 {
        let node = (0..faults.len()).find(|&it| *line == format!("test: reason {it}"));
        assert!(node.is_some_and(of_program), "{line}: {faults:?}");
        return None;
    }
    assert_eq!(*status, 125, "{line}");
    let is_late = line.contains("does not begin within");
    let named = |node: &usize| line.starts_with(&format!("test: node {node}"));
    let node = if faults.len() == 1 { Some(0) } else { (0..faults.len()).find(named) };
    let node = node.unwrap_or_else(|| panic!("{line}: no node"));
    let fault = faults[node].unwrap_or_else(|| panic!("{line}: the node is good: {faults:?}"));
    if is_late {
        // The last line of a command is awaited for as long.
        let is_open =
            has_errors[node] && matches!(fault, Fault::Closes | Fault::Garbage | Fault::Flood);
        assert!(is_open || matches!(fault, Fault::Hangs | Fault::Partial), "{line}: {fault:?}");
        return Some(Path::Late);
    }
    let reason = match fault {
        Fault::OtherVersion => "its nagaya is 0.9, and here is 1.2-3",
        Fault::Refuses { is_of_program: false } => &*format!("reason {node}"),
        Fault::Dies | Fault::Closes if has_errors[node] => &*format!("reason {node}"),
        _ if has_errors[node] => "Warning: permanently added",
        Fault::Flood => "no node of nagaya test, but much text",
        _ => "it does not begin: ",
    };
    assert!(line.contains(reason), "{line}: {fault:?}");
    assert!(!line.contains("nagaya: "), "{line}");
    None
}

/// A job that a seed selects.
struct Seeded {
    world: World,
    test: Test,
    timeout: u32,
    faults: Vec<Option<Fault>>,
    /// The nodes on other hosts, whose commands have a standard error.
    has_errors: Vec<bool>,
}

/// Selects a job.
fn select(seed: u64) -> Seeded {
    let mut random = Rng::with_seed(seed);
    let count = random.usize(1..7);
    let timeout = if random.u32(0..4) == 0 { 0 } else { random.u32(3..6) };
    let shift = random.u32(0..12);
    let order_bytes = random.usize(0..4096) >> shift;
    let test = Test { order_bytes, disagrees: random.u32(0..20) == 0 };
    let mut world = World::new(random);
    let mut faults = vec![None; count];
    let mut has_errors = vec![false; count];
    let one_in = world.random.u32(2..20);
    for node in 0..count {
        let mut acts = script(&mut world.random);
        has_errors[node] = world.random.bool();
        if world.random.u32(0..one_in) == 0 {
            faults[node] = Some(spoil(&mut world, &mut acts, node, timeout > 0));
        }
        // A command's standard error may stay open after its channel has closed.
        let stays = world.random.u32(0..4) == 0;
        world.add(acts, has_errors[node].then(|| (Vec::new(), stays)));
    }
    if world.random.u32(0..3) == 0 {
        for _ in 0..world.random.u32(1..4) {
            let most = 1 << world.random.u32(28..33);
            let at = Duration::from_nanos(world.random.u64(0..most));
            let signal = if world.random.bool() { libc::SIGTERM } else { libc::SIGWINCH };
            let from_terminal = world.random.bool();
            world.signals.push((at, signal, from_terminal));
        }
    }
    Seeded { world, test, timeout, faults, has_errors }
}

/// Starts the nodes of a seed's job, and waits for its end. Returns the counts of its events.
fn run(seed: u64) -> [u64; Path::ALL.len()] {
    let Seeded { mut world, test, timeout, faults, has_errors } = select(seed);
    let count = faults.len();
    let fails_at = (world.random.u32(0..30) == 0).then(|| world.random.usize(0..count));
    let started = fails_at.unwrap_or(count);
    let world = Rc::new(RefCell::new(world));
    let mut nodes = Nodes { job: Test { ..test }, nodes: Vec::new() };
    for (node, &is_there) in has_errors.iter().enumerate().take(started) {
        let errors = is_there.then(|| Errors { world: world.clone(), node });
        let name = if is_there { format!("host{node}") } else { String::new() };
        let process = Simulated { world: world.clone(), node, errors };
        nodes.add(process, Host { name, processors: None }, !is_there);
    }
    let starter = Starter(world.clone());
    let met = fails_at.is_none().then(|| nodes.meet(&starter, timeout));
    match met {
        // As if ENOMEM or EMFILE kept the next node from being started.
        None => {
            nodes.end();
            world.borrow_mut().count(Path::SpawnFailed);
        }
        Some(Ok(())) => {
            let is_good = faults.iter().all(Option::is_none) && !test.disagrees;
            let has_ended = world.borrow().nodes[0].is_over;
            assert!(is_good || has_ended, "the job begins: {faults:?}");
            let path = if is_good { Path::AllBegan } else { Path::EndedBeforeOthers };
            world.borrow_mut().count(path);
            finish(&mut nodes, &starter);
        }
        Some(Err(error)) if error.line.is_empty() => {
            assert_eq!(world.borrow().ended_as, Some(libc::SIGTERM));
            assert_eq!(error.status, status::shell_status(libc::SIGTERM));
            world.borrow_mut().count(Path::Signal);
        }
        Some(Err(error)) => {
            let path = check(&error, &faults, &has_errors, &test);
            path.into_iter().for_each(|path| world.borrow_mut().count(path));
            let limit = Duration::from_secs(u64::from(timeout) * 2 + 1);
            let limit = if timeout == 0 { UNLIMITED_MAX } else { limit };
            let now = world.borrow().now;
            assert!(now < limit, "{} after {now:?}", error.line);
        }
    }
    assert!(nodes.nodes.is_empty(), "nodes are left");
    let world = world.borrow();
    for node in &world.nodes[..started] {
        assert!(node.is_over && node.is_left, "a node is left: {node:?}");
    }
    clock::simulate(None);
    world.paths
}

/// Waits for the program, and checks its end.
fn finish(nodes: &mut Nodes<Test, Simulated>, starter: &Starter) {
    let are_here: Vec<bool> = nodes.nodes.iter().map(|node| node.is_here).collect();
    let (since, signals) = (starter.0.borrow().now, starter.0.borrow().signals.clone());
    let shown = nodes.wait(starter);
    let mut world = starter.0.borrow_mut();
    let (end, status) = world.nodes[0].died.expect("the program has ended");
    assert_eq!((world.ended_as, shown), (Some(status), status::shell_status(status)));
    let limit = end.max(since) + END_MAX + Duration::from_millis(20);
    assert!(world.now < limit, "{:?} after {end:?}", world.now);
    let forwarded = |it: &&(Duration, i32, bool)| since < end && it.0 < end && !it.2;
    let expected = signals.iter().filter(forwarded).count();
    assert_eq!(world.nodes[0].signals.len(), expected, "{signals:?}");
    if expected > 0 {
        world.count(Path::Forwarded);
    }
    let all_end = world.nodes.iter().all(|node| node.died.is_some());
    assert!(all_end || world.now >= end.max(since) + END_MAX, "nodes were killed at once");
    // The ends of nodes of this host that the origin has been reported.
    let mut bytes = std::mem::take(&mut world.nodes[0].read);
    bytes.extend(world.nodes[0].take_inbox());
    let mut reported = Vec::new();
    while let Some(ended) = messages::take::<Ended>(&mut bytes).expect("an end") {
        reported.push((ended.node as usize, ended.status));
    }
    for (node, is_here) in are_here.into_iter().enumerate().skip(1) {
        let died = world.nodes[node].died;
        let found: Vec<i32> = reported.iter().filter(|it| it.0 == node).map(|it| it.1).collect();
        match died.filter(|_| is_here) {
            // Nothing is reported while the program ends.
            Some((at, status)) if at.max(since) + NOTICE_MAX < end => {
                assert_eq!(found, [status], "the end of node {node}");
            }
            Some((_, status)) => assert!(found.is_empty() || found == [status], "{found:?}"),
            None => assert!(found.is_empty(), "node {node} has not ended: {found:?}"),
        }
    }
    if !reported.is_empty() {
        world.count(Path::Reported);
    }
}

#[test]
fn a_job_begins_or_one_line_names_the_node_that_prevents_that() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let seeds = match number("NAGAYA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("NAGAYA_SEEDS").unwrap_or(SEEDS),
    };
    let mut paths = [0; Path::ALL.len()];
    for seed in seeds {
        println!("NAGAYA_SEED={seed}");
        paths.iter_mut().zip(run(seed)).for_each(|(all, one)| *all += one);
    }
    let paths: Vec<_> = Path::ALL.into_iter().zip(paths).collect();
    println!("{paths:?}");
    if number("NAGAYA_SEED").is_none() {
        let never: Vec<_> = paths.iter().filter(|(_, count)| *count == 0).collect();
        assert!(never.is_empty(), "never: {never:?}");
    }
}

/// Lets nodes with these scripts meet, without errors of system calls.
fn meet(scripts: [&[Act]; 2]) -> Result<(), Error> {
    // A node closes its channel at once after its last message.
    let step = |act: &Act| {
        let pause = if matches!(act, Act::Die(..)) { 0 } else { 1 };
        (Duration::from_millis(pause), act.clone())
    };
    let mut world = World::new(Rng::with_seed(0));
    world.is_calm = true;
    for script in scripts {
        world.add(script.iter().map(step).collect(), None);
        world.nodes.last_mut().expect("just added").room = 16;
    }
    let world = Rc::new(RefCell::new(world));
    let mut nodes = Nodes { job: Test { order_bytes: 100, disagrees: false }, nodes: Vec::new() };
    for node in 0..scripts.len() {
        let process = Simulated { world: world.clone(), node, errors: None };
        nodes.add(process, Host { name: String::new(), processors: None }, true);
    }
    let met = nodes.meet(&Starter(world), 1);
    clock::simulate(None);
    met
}

fn refuses(line: &str) -> Act {
    Act::Refuse(Refusal { line: line.into(), is_of_program: false })
}

/// The order could not be sent, and that was the reason.
#[test]
fn a_node_that_refuses_before_it_reads_its_order_has_its_own_reason() {
    let dies = Act::Die(1 << 8, Duration::ZERO);
    let met = meet([&[greeting(KIND.version), refuses("no memory"), dies], &[]]);
    assert_eq!(met.expect_err("it refuses").line, "test: node 0: no memory");
}

#[test]
fn a_node_that_misses_the_end_of_the_program_is_no_error() {
    let ready = [greeting(KIND.version), Act::ReadOrder, Act::Ready, Act::ReadAll];
    // The kernel reports the end of the origin after the other node has noticed it.
    let begins = [&ready[..], &[Act::Begin, Act::Die(0, Duration::from_millis(20))]].concat();
    let pause = Act::Complain(String::new());
    let misses = [&ready[..], &[pause.clone(), pause, refuses("node 0 is lost")]].concat();
    assert_eq!(meet([&begins, &misses]), Ok(()));
}
