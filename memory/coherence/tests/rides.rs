//! Acceptance of rides, message by message.

use coherence::content::Content;
use coherence::message::{Header, Op, Page};
use coherence::ride::{By, Carrier, Fate, Policy, Ride};
use coherence::scope::homes::Homes;
use coherence::scope::page::State;
use coherence::scope::{Action, Event, Node, Options};

const NODES: u32 = 4;
const READER: u32 = 0;
/// The reader's parent in the barrier tree.
const PARENT: u32 = 1;
/// The manager of lock [`LOCK`], and the home of the page.
const MANAGER: u32 = 2;
const LOCK: u32 = MANAGER;
const PAGE: Page = 5;

fn says(node: &mut Node, header: Header, content: Content, rides: Vec<Ride>) -> Vec<Action> {
    let mut actions = Vec::new();
    node.step(Event::Message(header, content, rides), 0, &mut actions).expect("a valid event");
    actions
}

fn header(op: Op, from: u32, epoch: u64) -> Header {
    Header { op, from, to: READER, lock: LOCK, scope: 0, epoch, rides: 0 }
}

/// Returns a reader that has passed a barrier and requested the lock. The grant carries the page
/// and comes from a manager that has passed this number of barriers.
fn reader_after_grant(manager_epoch: u64) -> Node {
    let mut node = Node::new(Options {
        nodes: NODES,
        me: READER,
        tasks: 1,
        migrate: false,
        alone: true,
        rides: Policy::Ainori3,
        pages_max: 4,
    });
    for event in [Event::Allocate { pages: 10, homes: Homes::At(MANAGER) }, Event::Barrier(0)] {
        node.step(event, 0, &mut Vec::new()).expect("no message");
    }
    let none = || Content::Runs(Vec::new());
    says(&mut node, Header { lock: 0, ..header(Op::BarrierGrant, PARENT, 0) }, none(), Vec::new());
    assert_eq!(node.epoch(), 1);
    node.step(Event::Acquire(0, LOCK), 0, &mut Vec::new()).expect("no message");
    let ride = Ride { page: PAGE, by: By::Written, fate: Fate::Aboard };
    let grant = Header { rides: 1, ..header(Op::AcquireGrant, MANAGER, manager_epoch) };
    let actions = says(&mut node, grant, none(), vec![ride]);
    assert!(actions.contains(&Action::Grant(0)), "the lock is granted");
    node
}

/// Found by a random walk (seed 177). A barrier's grant goes down a tree, so a lock's manager can
/// be behind the requester. When the manager passes the barrier, it assumes that no node has copies
/// of its pages, and writes them without notices.
#[test]
fn a_lock_s_grant_of_a_node_that_has_not_passed_our_last_barrier_brings_nothing() {
    let node = reader_after_grant(0);
    assert_eq!(node.state(PAGE), Some(State::Invalid));
    let counts = node.statistics().rides[Carrier::Lock as usize][By::Written as usize];
    assert_eq!((counts.used, counts.wasted), (0, 1));
    assert_eq!(node.page_statistics(PAGE).expect("an existing page").rides_wasted, 1);
}

#[test]
fn a_lock_s_grant_of_a_node_that_has_passed_it_brings_a_page() {
    let mut node = reader_after_grant(1);
    assert_eq!(node.state(PAGE), Some(State::Ridden));
    node.step(Event::Read(PAGE), 0, &mut Vec::new()).expect("no message");
    assert_eq!(node.state(PAGE), Some(State::Clean));
    assert_eq!(node.page_statistics(PAGE).expect("an existing page").rides_used, 1);
}
