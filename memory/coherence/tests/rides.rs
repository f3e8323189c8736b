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

/// Returns a reader with the `auto` policy that has needed pages 10 to 16 of the manager, and has
/// requested page 20 two barriers later. Returns also the pages that this request names.
fn reader_of_groups() -> (Node, Vec<Page>) {
    let mut node = Node::new(Options {
        nodes: NODES,
        me: READER,
        tasks: 1,
        migrate: false,
        alone: true,
        rides: Policy::Auto,
        pages_max: 4,
    });
    let allocate = Event::Allocate { pages: 100, homes: Homes::At(MANAGER) };
    node.step(allocate, 0, &mut Vec::new()).expect("no message");
    for page in 10..17 {
        assert_eq!(reads(&mut node, page), [], "page {page} is requested alone");
        let grant = Header { lock: 0, scope: page, ..header(Op::GetPageGrant, MANAGER, 0) };
        says(&mut node, grant, Content::Page, Vec::new());
    }
    for epoch in 0..2 {
        node.step(Event::Barrier(0), 0, &mut Vec::new()).expect("no message");
        let grant = Header { lock: 0, ..header(Op::BarrierGrant, PARENT, epoch) };
        says(&mut node, grant, Content::Runs(Vec::new()), Vec::new());
    }
    let wanted = reads(&mut node, 20);
    (node, wanted)
}

/// Reads a page. Returns the pages that its request names in addition.
fn reads(node: &mut Node, page: Page) -> Vec<Page> {
    let mut actions = Vec::new();
    node.step(Event::Read(page), 0, &mut actions).expect("no message");
    let records = |action| match action {
        Action::Send(header, _, rides) if header.op == Op::GetPage => rides,
        _ => Vec::new(),
    };
    let records = actions.into_iter().flat_map(records);
    records.filter(|ride| ride.fate == Fate::Wanted).map(|ride| ride.page).collect()
}

/// A task that faults on a page that may come along waits. If the page does not come, the task
/// retries, and the page is requested.
#[test]
fn a_page_that_was_asked_for_along_is_not_requested_again() {
    let (mut node, wanted) = reader_of_groups();
    assert_eq!(wanted, [21, 22]);
    for page in [21, 22] {
        let mut actions = Vec::new();
        node.step(Event::Read(page), 0, &mut actions).expect("no message");
        assert_eq!((node.state(page), actions), (Some(State::Invalid), vec![]));
    }
    let grant = Header { lock: 0, scope: 20, ..header(Op::GetPageGrant, MANAGER, node.epoch()) };
    let ride = Ride { page: 21, by: By::Wanted, fate: Fate::Aboard };
    let actions = says(&mut node, Header { rides: 1, ..grant }, Content::Page, vec![ride]);
    assert!(actions.contains(&Action::Wake(21)) && actions.contains(&Action::Wake(22)));
    assert_eq!((node.state(21), node.state(22)), (Some(State::Ridden), Some(State::Invalid)));
    reads(&mut node, 22);
    assert_eq!(node.state(22), Some(State::Fetching));
}

/// The home sends the pages that a request names, also if the request waits for a barrier.
#[test]
fn a_home_sends_the_pages_that_a_request_asks_for_along() {
    let options = Options {
        nodes: NODES,
        me: READER,
        tasks: 1,
        migrate: false,
        alone: true,
        rides: Policy::Auto,
        pages_max: 4,
    };
    let wanted = [7, 50, 8, 9, 6].map(|page| Ride { page, by: By::Wanted, fate: Fate::Wanted });
    for epoch in [0, 1] {
        let mut node = Node::new(options);
        let allocate = Event::Allocate { pages: 10, homes: Homes::At(READER) };
        node.step(allocate, 0, &mut Vec::new()).expect("no message");
        let asks = Header { lock: 0, scope: PAGE, rides: 5, ..header(Op::GetPage, PARENT, epoch) };
        let mut actions = says(&mut node, asks, Content::Empty, wanted.to_vec());
        if epoch == 1 {
            node.step(Event::Barrier(0), 0, &mut actions).expect("no message");
            let grant = Header { lock: 0, ..header(Op::BarrierGrant, PARENT, 0) };
            actions = says(&mut node, grant, Content::Runs(Vec::new()), Vec::new());
        }
        let granted = actions.into_iter().find_map(|action| match action {
            Action::Send(header, _, rides) if header.op == Op::GetPageGrant => Some(rides),
            _ => None,
        });
        let pages: Vec<Page> = granted.expect("a grant").iter().map(|ride| ride.page).collect();
        // Page 50 does not exist, and a message has four pages.
        assert_eq!(pages, [7, 8, 9], "epoch {epoch}");
    }
}
