//! A node among peers that violate the protocol. They send any well-formed messages at any time.
//! The node refuses such a message without a change of its state, or accepts it and its driver can
//! carry out the actions. `NAGAYA_SEED` replays one run; `NAGAYA_WALKS` sets the number of runs.

use std::collections::{HashMap, HashSet};

use coherence::content::Content;
use coherence::diff;
use coherence::message::{Header, Lock, NodeId, Op, Page};
use coherence::random::Random;
use coherence::ride::{self, By, Carrier, Fate, Policy, Ride};
use coherence::run::{self, NOBODY, Run};
use coherence::scope::event::{Body, Kept, Task};
use coherence::scope::homes::Homes;
use coherence::scope::{Action, Event, Node, Options};

/// Size of a page in bytes.
const PAGE: usize = 4;
/// Number of events of a walk.
const EVENTS: usize = 400;
/// Maximum number of allocated pages.
const PAGES_MAX: u64 = 400;

/// The operations that need no request.
const UNASKED: [Op; 11] = [
    Op::GetPage,
    Op::Diff,
    Op::Acquire,
    Op::WriteNotice,
    Op::Release,
    Op::Barrier,
    Op::Set,
    Op::Reset,
    Op::Wait,
    Op::Meet,
    Op::Push,
];

/// The node, and the state of its driver.
struct Host {
    node: Node,
    /// True for each task that waits.
    waits: Vec<bool>,
    twins: HashSet<Page>,
    /// Sizes of the kept messages.
    kept: HashMap<Kept, usize>,
    /// Incomplete lists by sender: operation, lock and end.
    lists: HashMap<NodeId, (Op, Lock, Page)>,
    /// The headers of its messages, for peers that answer correctly.
    said: Vec<Header>,
}

impl Host {
    /// Handles an event like a driver. `body` is the body of the message.
    fn step(&mut self, event: Event, body: &[u8]) -> bool {
        let before = self.node.clone();
        let mut actions = Vec::new();
        if self.node.step(event.clone(), 0, &mut actions).is_err() {
            assert!(self.node == before && actions.is_empty(), "{event:?} changed the state");
            return false;
        }
        let Options { me, nodes, .. } = *self.node.options();
        for action in actions {
            match action {
                Action::Fill(page, place) => {
                    assert!(page < self.node.pages() && (place + 1) * PAGE <= body.len());
                }
                Action::Keep(kept) => {
                    assert_eq!(
                        self.kept.insert(kept, body.len()),
                        None,
                        "a second message for one barrier"
                    );
                    assert!(self.kept.len() <= 2 * nodes as usize, "too many kept messages");
                }
                Action::FillKept(page, kept, place) => {
                    assert!(page < self.node.pages() && (place + 1) * PAGE <= self.kept[&kept]);
                }
                Action::Forget(kept) => assert!(self.kept.remove(&kept).is_some(), "not kept"),
                Action::Twin(page) => assert!(self.twins.insert(page), "two twins"),
                Action::Diff(page, home) => {
                    assert!(self.twins.remove(&page), "no twin");
                    assert!(home < nodes && home != me, "changes for {home}");
                }
                Action::Change => assert!(diff::pages(body, PAGE).is_ok(), "no changes"),
                Action::Send(header, body, rides) => {
                    assert!(header.to < nodes && header.to != me, "{header:?}");
                    assert_eq!(usize::from(header.rides), rides.len());
                    let bytes = body.bytes(&rides, Vec::new(), |_, bytes| {
                        bytes.resize(bytes.len() + PAGE, 0);
                    });
                    assert!(Content::parse(&header, &bytes, PAGE).is_some(), "{header:?}");
                    self.said.push(header);
                }
                Action::Grant(task) | Action::Misuse(task, _) => {
                    self.waits[task as usize] = false;
                }
                _ => {}
            }
        }
        true
    }

    /// Returns the next event of a task of this node.
    fn task(&mut self, random: &mut Random) -> Option<Event> {
        let pages = self.node.pages();
        let somebody_runs = self.waits.iter().any(|waits| !waits);
        if random.one_in(12) && pages < PAGES_MAX && somebody_runs {
            let homes = match random.one_in(2) {
                true => Homes::At(random.below(self.node.options().nodes as usize) as NodeId),
                false => Homes::Blocks { pages: 1 + random.below(9) as u64, first: 0 },
            };
            return Some(Event::Allocate { pages: 1 + random.below(70) as u64, homes });
        }
        if pages > 0 && random.one_in(2) {
            let page = random.below(pages as usize) as Page;
            return Some(if random.one_in(2) { Event::Read(page) } else { Event::Write(page) });
        }
        let task = random.below(self.waits.len());
        if std::mem::replace(&mut self.waits[task], true) {
            return None;
        }
        let (number, lock) = (task as Task, random.below(9) as u32);
        let goes_on = random.below(8);
        self.waits[task] = goes_on < 4;
        Some(match goes_on {
            0 => Event::Acquire(number, lock),
            1 => Event::Wait(number, lock),
            2 => Event::Meet(number),
            3 => Event::Barrier(number),
            4 => Event::Set(number, lock),
            5 => Event::Reset(number, lock),
            _ => Event::Release(number, lock),
        })
    }

    /// Returns a message of a peer: an answer, possibly wrong, or anything.
    fn peer(&mut self, random: &mut Random) -> (Header, Vec<u8>) {
        let Options { me, nodes, .. } = *self.node.options();
        let epoch = self.node.epoch();
        let asked = match random.one_in(2) || self.said.is_empty() {
            true => None,
            false => Some(self.said.swap_remove(random.below(self.said.len()))),
        };
        let answer = asked.and_then(|header| {
            let op = match header.op {
                Op::GetPage => Op::GetPageGrant,
                Op::Diff => Op::DiffGrant,
                Op::Acquire => Op::AcquireGrant,
                Op::Barrier => Op::BarrierGrant,
                Op::Wait => Op::WaitGrant,
                Op::Meet => Op::MeetGrant,
                _ => return None,
            };
            Some(Header { op, from: header.to, to: me, ..header })
        });
        let anything = |random: &mut Random| {
            let op = match random.one_in(20) {
                true => Op::ALL[random.below(Op::ALL.len())],
                false => UNASKED[random.below(UNASKED.len())],
            };
            Header {
                op,
                from: (me + 1 + random.below(nodes as usize - 1) as NodeId) % nodes,
                to: me,
                lock: me + nodes * random.below(2) as u32,
                scope: random.below(80) as u64,
                epoch: epoch + u64::from(random.one_in(5)),
                rides: 0,
            }
        };
        let mut header = answer.unwrap_or_else(|| anything(random));
        if header.op == Op::Barrier {
            header.lock = 0;
        }
        // An incomplete list is continued or completed.
        let mut end = 0;
        if let Some(&(op, lock, begun)) =
            self.lists.get(&header.from).filter(|_| !random.one_in(20))
        {
            let ends = match op {
                Op::Invalidate => [Op::AcquireGrant, Op::BarrierGrant, Op::WaitGrant],
                _ => [Op::Release, Op::Barrier, Op::Set],
            };
            header.op = if random.one_in(4) { op } else { ends[random.below(3)] };
            header.lock = lock;
            end = begun;
        }
        // Messages with a single error pass more checks.
        match random.below(40) {
            0 => header.from = any(random) as NodeId,
            1 => header.to = any(random) as NodeId,
            2 => header.lock = any(random) as u32,
            3 => header.scope = any(random),
            4 => header.epoch = any(random),
            5 => header.op = Op::ALL[random.below(Op::ALL.len())],
            _ => {}
        }
        let carries = Carrier::of(header.op).is_some();
        let ride = |random: &mut Random| Ride {
            page: if random.one_in(9) { any(random) } else { random.below(80) as u64 },
            by: By::ALL[random.below(By::ALL.len())],
            fate: match random.one_in(20) {
                true => Fate::ALL[random.below(Fate::ALL.len())],
                false if carries => Fate::Aboard,
                false => Fate::ALL[1 + random.below(3)],
            },
        };
        let may = carries || ride::reports_fates(header.op);
        let rides: Vec<Ride> = match random.one_in(if may { 2 } else { 20 }) {
            true => (0..random.below(5)).map(|_| ride(random)).collect(),
            false => Vec::new(),
        };
        header.rides = rides.len() as u8;
        let (body, changes) = match header.op {
            Op::GetPageGrant => (Body::Page(0), Vec::new()),
            Op::Diff => (Body::Diffs, changes(random)),
            Op::GetPage | Op::DiffGrant | Op::Acquire | Op::Reset | Op::Wait => {
                (Body::Empty, Vec::new())
            }
            Op::Meet | Op::MeetGrant | Op::Push => (Body::Empty, Vec::new()),
            _ => (Body::Runs(runs(random, header.from, end, nodes)), Vec::new()),
        };
        let page = |_, bytes: &mut Vec<u8>| bytes.extend([0; PAGE]);
        (header, body.bytes(&rides, changes, page))
    }
}

/// Returns a random number, often a limit.
fn any(random: &mut Random) -> u64 {
    let number = random.below(usize::MAX) as u64;
    match random.below(4) {
        0 => u64::MAX - number % 3,
        1 => u64::from(u32::MAX) - number % 3,
        2 => number % 3,
        _ => number,
    }
}

fn changes(random: &mut Random) -> Vec<u8> {
    let mut body = Vec::new();
    for _ in 0..random.below(4) {
        let page = if random.one_in(9) { any(random) } else { random.below(80) as u64 };
        diff::append(&mut body, page, &[0; PAGE], &[1; PAGE]);
    }
    body
}

/// Returns a random list of pages. Parts of a list may follow each other in any order.
fn runs(random: &mut Random, from: NodeId, mut end: Page, nodes: u32) -> Vec<Run> {
    let mut runs = Vec::new();
    for _ in 0..random.below(6) {
        let step = if random.one_in(30) { any(random) } else { random.below(30) as u64 };
        let pages = if random.one_in(30) { any(random) } else { 1 + random.below(9) as u64 };
        let Some(first) = end.checked_add(step) else { break };
        let Some(last) = first.checked_add(pages).filter(|_| pages > 0) else { break };
        let writer = match random.below(8) {
            0 => any(random) as NodeId,
            1 | 2 => NOBODY,
            3 => random.below(nodes as usize) as NodeId,
            _ => from,
        };
        runs.push(Run { first, pages, writer });
        end = last;
    }
    assert!(run::decode(&run::encode(&runs), u64::MAX).is_some(), "well-formed");
    runs
}

/// Prints the seed of a walk that panics.
struct Tells(u64);

impl Drop for Tells {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("NAGAYA_SEED={}", self.0);
        }
    }
}

fn walk(seed: u64) -> (usize, usize, u64) {
    let random = &mut Random::new(seed);
    let nodes = 2 + random.below(4) as u32;
    let tasks = 1 + random.below(3) as u32;
    let options = Options {
        nodes,
        me: random.below(nodes as usize) as NodeId,
        tasks,
        migrate: random.one_in(2),
        alone: random.one_in(2),
        rides: Policy::ALL[random.below(Policy::ALL.len())],
        pages_max: 1 + random.below(8) as u32,
    };
    let mut host = Host {
        node: Node::new(options),
        waits: vec![false; tasks as usize],
        twins: HashSet::new(),
        kept: HashMap::new(),
        lists: HashMap::new(),
        said: Vec::new(),
    };
    let _seed = Tells(seed);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..EVENTS {
        if random.one_in(3) {
            if let Some(event) = host.task(random) {
                host.step(event, &[]);
            }
            continue;
        }
        let (header, body) = host.peer(random);
        // Messages arrive as bytes.
        let header = Header::parse(&header.bytes()).expect("well-formed");
        let Some((content, rides)) = Content::parse(&header, &body, PAGE) else { continue };
        let Header { op, from, lock, .. } = header;
        let end = match &content {
            Content::Runs(runs) => runs.last().map_or(0, |last| last.range().end),
            _ => 0,
        };
        if !host.step(Event::Message(header, content, rides), &body) {
            refused += 1;
            continue;
        }
        taken += 1;
        match op {
            Op::Invalidate | Op::WriteNotice => host.lists.insert(from, (op, lock, end)),
            _ => host.lists.remove(&from),
        };
    }
    (taken, refused, host.node.epoch())
}

#[test]
fn every_message_of_a_peer_is_refused_or_valid() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect(name));
    if let Some(seed) = number("NAGAYA_SEED") {
        walk(seed);
        return;
    }
    let (mut taken, mut refused, mut barriers) = (0, 0, 0);
    for seed in 0..number("NAGAYA_WALKS").unwrap_or(5_000) {
        let (more_taken, more_refused, passed) = walk(seed);
        taken += more_taken;
        refused += more_refused;
        barriers += passed;
    }
    println!("{taken} taken, {refused} refused, {barriers} barriers passed");
    assert!(2 * taken > refused && barriers > 500, "too few accepted messages");
}
