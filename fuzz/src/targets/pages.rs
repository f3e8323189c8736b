//! The protocols that keep pages consistent between nodes: messages of peers that violate them, and
//! recordings.

use coherence::content::Content;
use coherence::message::{Header, NodeId, Op};
use coherence::record::{Differs, Recorder, Recording, replay};
use coherence::ride::Policy;
use coherence::run::{self, Run};
use coherence::scope::homes::Homes;
use coherence::{scope, sequential};
use sequential::message::{self, Header as SequentialHeader, Op as SequentialOp};

use crate::input::{Input, Output};
use crate::target::{Seeds, Target, numbered};

/// Size of a page in bytes.
const PAGE: usize = 4;
/// The nodes of a job, of which this one is 1.
const NODES: u32 = 3;
const ME: NodeId = 1;
/// Pages that are allocated at first, with homes on all nodes.
const PAGES: u64 = 40;

pub const SCOPE: Target = Target {
    name: "scope",
    reads: "messages of scope consistency, from nodes that violate the protocol",
    run: scope,
    seeds: scope_seeds,
};

fn policy(byte: u8) -> Policy {
    Policy::ALL[usize::from(byte) % Policy::ALL.len()]
}

/// A node of scope consistency and the facts that its driver relies on.
struct Scope {
    node: scope::Node,
    waits: bool,
    twins: std::collections::HashSet<u64>,
    kept: std::collections::HashMap<scope::event::Kept, usize>,
}

impl Scope {
    /// Handles an event as a driver does. `body` is the body of the message.
    fn step(&mut self, event: scope::Event, body: &[u8]) {
        use scope::Action;
        let before = self.node.clone();
        let mut actions = Vec::new();
        if self.node.step(event.clone(), 0, &mut actions).is_err() {
            assert!(self.node == before && actions.is_empty(), "{event:?} changed the state");
            return;
        }
        for action in actions {
            match action {
                Action::Fill(page, place) => {
                    assert!(page < self.node.pages() && (place + 1) * PAGE <= body.len());
                }
                Action::Keep(kept) => {
                    assert_eq!(self.kept.insert(kept, body.len()), None, "kept twice");
                }
                Action::FillKept(page, kept, place) => {
                    assert!(page < self.node.pages() && (place + 1) * PAGE <= self.kept[&kept]);
                }
                Action::Forget(kept) => assert!(self.kept.remove(&kept).is_some(), "not kept"),
                Action::Twin(page) => assert!(self.twins.insert(page), "two twins"),
                Action::Diff(page, home) => {
                    assert!(self.twins.remove(&page), "no twin");
                    assert!(home < NODES && home != ME, "changes for {home}");
                }
                Action::Change => assert!(coherence::diff::pages(body, PAGE).is_ok()),
                Action::Send(header, _, rides) => {
                    assert!(header.to < NODES && header.to != ME, "{header:?}");
                    assert_eq!(usize::from(header.rides), rides.len());
                }
                Action::Grant(_) | Action::Misuse(..) => self.waits = false,
                _ => {}
            }
        }
    }

    /// An event of this node's task, unless that waits.
    fn task(&mut self, what: u8, number: u64) {
        use scope::Event;
        let pages = self.node.pages();
        let (page, lock) = (number % pages.max(1), (number % 9) as u32);
        if self.waits {
            // A task that waits does nothing; another thread may touch a page.
            return self
                .step(if what & 1 == 0 { Event::Read(page) } else { Event::Write(page) }, &[]);
        }
        let (event, waits) = match what % 9 {
            0 => (Event::Read(page), false),
            1 => (Event::Write(page), false),
            2 => (Event::Acquire(0, lock), true),
            3 => (Event::Release(0, lock), false),
            4 => (Event::Barrier(0), true),
            5 => (Event::Meet(0), true),
            6 => (Event::Set(0, lock), false),
            7 => (Event::Reset(0, lock), false),
            _ => (Event::Wait(0, lock), true),
        };
        self.waits = waits;
        self.step(event, &[]);
    }
}

fn scope(bytes: &[u8]) {
    let mut input = Input(bytes);
    let options = scope::Options {
        nodes: NODES,
        me: ME,
        tasks: 1,
        migrate: input.is(),
        alone: input.is(),
        rides: policy(input.byte()),
        pages_max: 1 + u32::from(input.byte() % 8),
    };
    let node = scope::Node::new(options);
    let (twins, kept) = Default::default();
    let mut scope = Scope { node, waits: false, twins, kept };
    let homes = Homes::Blocks { pages: 3, first: 0 };
    scope.step(scope::Event::Allocate { pages: PAGES, homes }, &[]);
    while !input.is_empty() {
        let what = input.byte();
        if what & 128 != 0 {
            scope.task(what & 127, input.any());
            continue;
        }
        let header = match what & 64 {
            0 => {
                let op = Op::ALL[usize::from(what) % Op::ALL.len()];
                let from = if input.is() { 2 } else { 0 };
                let (lock, scope_field) = (input.any() as u32, input.any());
                let epoch = scope.node.epoch().wrapping_add(input.any());
                let rides = input.byte();
                Header { op, from, to: ME, lock, scope: scope_field, epoch, rides }
            }
            _ => match Header::parse(input.bytes()) {
                Some(header) => header,
                None => continue,
            },
        };
        assert_eq!(Header::parse(&header.bytes()), Some(header));
        let body = input.bytes();
        if let Some((content, rides)) = Content::parse(&header, body, PAGE) {
            scope.step(scope::Event::Message(header, content, rides), body);
        }
    }
}

fn scope_seeds() -> Seeds {
    let op = |op: Op| Op::ALL.iter().position(|it| *it == op).expect("one of all") as u8;
    let message = |script: Output, which: Op, scope_field: u64, body: &[u8]| {
        let script = script.raw(&[op(which), 1]).any(1).any(scope_field).any(0).raw(&[0]);
        script.bytes(body)
    };
    let start = || Output::default().raw(&[1, 0, 4, 7]);
    let runs = run::encode(&[Run { first: 2, pages: 3, writer: 2 }]);
    let mut changes = Vec::new();
    coherence::diff::append(&mut changes, 4, &[0; PAGE], &[1, 0, 2, 0]);
    let reads = message(start().raw(&[128]).any(0), Op::GetPageGrant, 0, &[5; PAGE]);
    let asks = message(message(start(), Op::GetPage, 4, &[]), Op::Diff, 1, &changes);
    let locks = message(start(), Op::Acquire, 0, &[]);
    let locks = message(locks.raw(&[130]).any(2), Op::AcquireGrant, 0, &runs);
    let locks = message(locks.raw(&[129]).any(4).raw(&[131]).any(2), Op::Release, 0, &runs);
    let barrier = message(start().raw(&[129]).any(5).raw(&[132]).any(0), Op::Barrier, 0, &runs);
    let barrier = message(barrier, Op::BarrierGrant, 0, &runs);
    let conditions = message(message(start(), Op::Set, 0, &runs), Op::Wait, 0, &[]);
    numbered([reads, asks, locks, barrier, conditions].map(|it| it.0))
}

pub const SEQUENTIAL: Target = Target {
    name: "sequential",
    reads: "messages of sequential consistency, and batches of them, from nodes that violate it",
    run: sequential_messages,
    seeds: sequential_seeds,
};

/// Handles an event as a driver does. `arrived` are the pages of the message.
fn step(
    node: &mut sequential::Node,
    event: sequential::Event,
    arrived: Option<message::Pages<'_>>,
) {
    use sequential::Action;
    let mut actions = Vec::new();
    if node.step(event, 1, &mut actions).is_err() {
        assert!(actions.is_empty(), "a refused message has no effect");
        return;
    }
    for action in actions {
        match action {
            Action::Fill(page, place) => {
                assert!(page < node.pages());
                let pages = arrived.as_ref().expect("a message with pages");
                assert!(pages.get(place).is_none_or(|bytes| bytes.len() == PAGE));
            }
            Action::Send(header, _) => {
                assert!(header.to < NODES && header.to != ME, "{header:?}");
            }
            Action::MapRead(page) | Action::MapWrite(page) | Action::Unmap(page) => {
                assert!(page < node.pages());
            }
            _ => {}
        }
    }
}

fn sequential_messages(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut node = sequential::Node::new(sequential::Options {
        nodes: NODES,
        me: ME,
        pages_max: 1 + u32::from(input.byte() % 8),
        copies_max: input.any(),
        rides: policy(input.byte()),
        migratory: input.byte() % 4,
        rest: 0,
    });
    for owner in [0, ME, 2] {
        let event = sequential::Event::Allocate { pages: PAGES, owner, everywhere: owner == 2 };
        step(&mut node, event, None);
    }
    while !input.is_empty() {
        let what = input.byte();
        match what & 0xe0 {
            0xe0 => step(&mut node, sequential::Event::Read(input.any() % (3 * PAGES)), None),
            0xc0 => step(&mut node, sequential::Event::Write(input.any() % (3 * PAGES)), None),
            0xa0 => {
                for (header, content) in message::parse_batch(input.bytes()).unwrap_or_default() {
                    if (header.from, header.to) == (0, ME) {
                        step(&mut node, sequential::Event::Message(header, content), None);
                    }
                }
            }
            _ => {
                let header = SequentialHeader {
                    op: SequentialOp::ALL[usize::from(what) % SequentialOp::ALL.len()],
                    from: if input.is() { 2 } else { 0 },
                    to: ME,
                    node: input.any() as u32,
                    page: input.any(),
                    set: input.any(),
                    whole: input.is(),
                    hops: input.byte().into(),
                    runs: input.byte().into(),
                };
                assert_eq!(SequentialHeader::parse(&header.bytes()), Some(header));
                let body = input.bytes();
                if let Some((content, pages)) = message::parse(&header, body, PAGE) {
                    step(&mut node, sequential::Event::Message(header, content), Some(pages));
                }
            }
        }
    }
}

fn sequential_seeds() -> Seeds {
    let all = SequentialOp::ALL;
    let start = || Output::default().raw(&[7]).any(u64::MAX).raw(&[4, 1]);
    let message = |script: Output, op: u8, node: u64, page: u64, set: u64, body: &[u8]| {
        let script = script.raw(&[op, 1]).any(node).any(page).any(set);
        script.raw(&[u8::from(!body.is_empty()), 0, 0]).bytes(body)
    };
    let page = [&0u64.to_le_bytes()[..], &[3; PAGE]].concat();
    let each = (0..all.len() as u8).map(|op| {
        let script = start().raw(&[0xe0]).any(1).raw(&[0xc0]).any(100).raw(&[0xc0]).any(45);
        let script = message(script, op, 2, 100, 4, &page);
        message(message(script, op, 2, 45, 1, &[]), op, 0, 1, 2, &page).0
    });
    numbered(each)
}

pub const RECORDING: Target = Target {
    name: "recording",
    reads: "recordings of a node, as `nagaya sim --replay` reads them",
    run: |bytes| match replay(bytes) {
        Ok(_) | Err(Differs::Head | Differs::Broken(_)) => {}
        Err(Differs::Impossible(step, _) | Differs::Step(step, _)) => {
            assert!(step < bytes.len() as u64, "step {step}");
            assert!(Recording::of(bytes).is_ok());
        }
    },
    seeds: recording_seeds,
};

fn recording_seeds() -> Seeds {
    let options = |rides| scope::Options {
        nodes: NODES,
        me: ME,
        tasks: 1,
        migrate: true,
        alone: true,
        rides,
        pages_max: 4,
    };
    let header = |op, scope| Header { op, from: 0, to: ME, lock: 4, scope, epoch: 0, rides: 0 };
    let recording = |options: scope::Options| {
        let events = [
            scope::Event::Allocate { pages: 8, homes: Homes::At(0) },
            scope::Event::Read(3),
            scope::Event::Message(header(Op::GetPageGrant, 3), Content::Page, Vec::new()),
            scope::Event::Acquire(0, 4),
            scope::Event::Message(header(Op::AcquireGrant, 0), Content::Runs(vec![]), vec![]),
            scope::Event::Write(3),
            scope::Event::Release(0, 4),
        ];
        let (mut node, mut recorder) = (scope::Node::new(options), Recorder::new(&options));
        let mut bytes = recorder.take();
        for (now, event) in events.into_iter().enumerate() {
            let mut actions = Vec::new();
            recorder.event(now as u64, &event);
            let result = node.step(event, now as u64, &mut actions);
            recorder.outcome(&actions, &result);
            bytes.extend(recorder.take());
        }
        bytes
    };
    numbered(Policy::ALL.into_iter().map(|rides| recording(options(rides))))
}
