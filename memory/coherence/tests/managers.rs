//! Locks and condition variables at their managers and nodes, message by message: the order of
//! grants, the time that a node keeps a lock, and the completeness of write notices.

use coherence::content::Content;
use coherence::message::{Header, Lock, NodeId, Op};
use coherence::ride::Policy;
use coherence::run::{NOBODY, Run};
use coherence::scope::event::Body;
use coherence::scope::homes::Homes;

use coherence::scope::{Action, Event, HANDOVERS, Node, Options};

/// A lock of manager 0, like all multiples of [`NODES`].
const LOCK: Lock = 0;
const NODES: u32 = 4;

fn node(me: NodeId, tasks: u32) -> Node {
    let mut node = Node::new(Options {
        nodes: NODES,
        me,
        tasks,
        migrate: false,
        alone: false,
        rides: Policy::Normal,
        pages_max: 1,
    });
    step(&mut node, Event::Allocate { pages: 1000, homes: Homes::At(3) });
    node
}

fn step(node: &mut Node, event: Event) -> Vec<Action> {
    let mut actions = Vec::new();
    node.step(event, 0, &mut actions).expect("a valid event");
    actions
}

fn says(node: &mut Node, from: NodeId, op: Op, scope: u64, content: Content) -> Vec<Action> {
    let to = node.options().me;
    let header = Header { op, from, to, lock: LOCK, scope, epoch: 0, rides: 0 };
    step(node, Event::Message(header, content, Vec::new()))
}

fn page(page: u64) -> Run {
    Run { first: page, pages: 1, writer: NOBODY }
}

/// Returns the receiver, number and pages of each message with this operation.
fn said(actions: &[Action], wanted: Op) -> Vec<(NodeId, u64, Vec<u64>)> {
    let said = actions.iter().filter_map(|action| match action {
        Action::Send(header, Body::Runs(runs), _) if header.op == wanted => {
            Some((header.to, header.scope, runs.iter().flat_map(Run::range).collect()))
        }
        _ => None,
    });
    said.collect()
}

#[test]
fn a_lock_goes_to_the_first_requester() {
    let mut manager = node(0, 1);
    let order = [2, 3, 1];
    let first = says(&mut manager, order[0], Op::Acquire, 0, Content::Empty);
    assert_eq!(said(&first, Op::AcquireGrant), [(2, 0, vec![])]);
    for asker in &order[1..] {
        let actions = says(&mut manager, *asker, Op::Acquire, 0, Content::Empty);
        assert_eq!(said(&actions, Op::AcquireGrant), [], "the lock is held");
    }
    for (holder, next) in order.into_iter().zip(&order[1..]) {
        let actions = says(&mut manager, holder, Op::Release, 0, Content::Runs(vec![]));
        assert_eq!(said(&actions, Op::AcquireGrant)[0].0, *next);
    }
}

#[test]
fn a_late_requester_gets_all_write_notices_of_the_lock() {
    let mut manager = node(0, 1);
    const RELEASES: u64 = 300;
    for release in 0..RELEASES {
        says(&mut manager, 1, Op::Acquire, release, Content::Empty);
        says(&mut manager, 1, Op::Release, 0, Content::Runs(vec![page(2 * release)]));
    }
    let actions = says(&mut manager, 2, Op::Acquire, 0, Content::Empty);
    let all: Vec<u64> = (0..RELEASES).map(|release| 2 * release).collect();
    assert_eq!(said(&actions, Op::AcquireGrant), [(2, RELEASES, all)]);
    says(&mut manager, 2, Op::Release, 0, Content::Runs(vec![]));
    // A node that lacks only the last release gets only its pages.
    let actions = says(&mut manager, 3, Op::Acquire, RELEASES - 1, Content::Empty);
    assert_eq!(said(&actions, Op::AcquireGrant)[0].2, [2 * (RELEASES - 1)]);
}

#[test]
fn tasks_of_a_node_that_want_a_lock_all_the_time_let_others_have_it() {
    let mut holder = node(1, 2);
    step(&mut holder, Event::Acquire(0, LOCK));
    says(&mut holder, 0, Op::AcquireGrant, 0, Content::Runs(vec![]));
    let mut handed = 0;
    loop {
        let (has, wants) = (handed % 2, (handed + 1) % 2);
        step(&mut holder, Event::Acquire(wants, LOCK));
        let actions = step(&mut holder, Event::Release(has, LOCK));
        if !said(&actions, Op::Release).is_empty() {
            break;
        }
        assert_eq!(actions, [Action::Grant(wants)], "without a message");
        handed += 1;
        assert!(handed <= HANDOVERS, "other nodes wait");
    }
    assert_eq!(handed, HANDOVERS);
}

#[test]
fn all_waiters_of_a_condition_variable_wake_when_it_is_set() {
    let mut manager = node(0, 1);
    for waiter in [1, 2, 3] {
        let actions = says(&mut manager, waiter, Op::Wait, 0, Content::Empty);
        assert_eq!(said(&actions, Op::WaitGrant), []);
    }
    let actions = says(&mut manager, 2, Op::Set, 0, Content::Runs(vec![page(5)]));
    let told: Vec<_> = said(&actions, Op::WaitGrant);
    assert_eq!(told, [1, 2, 3].map(|waiter| (waiter, 0, vec![5])));
}

#[test]
fn a_condition_variable_passes_on_earlier_write_notices() {
    let mut middle = node(1, 1);
    step(&mut middle, Event::Wait(0, LOCK));
    says(&mut middle, 0, Op::WaitGrant, 0, Content::Runs(vec![page(7)]));
    let actions = step(&mut middle, Event::Set(0, 2 * NODES));
    assert_eq!(said(&actions, Op::Set), [(0, 0, vec![7])]);
}
