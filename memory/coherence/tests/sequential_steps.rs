//! Single steps of a node under sequential consistency: its messages, and its reports of lost
//! nodes.

use coherence::message::{NodeId, Page};
use coherence::ride::Policy;
use coherence::run::{NOBODY, Run};
use coherence::sequential::message::{Body, Header, Op};
use coherence::sequential::page::State;
use coherence::sequential::{Action, Event, Node, Options};

/// Returns one of four nodes, with a thousand pages. Node 0 owns them initially, and they hold
/// data.
fn node(me: NodeId) -> Node {
    let (pages_max, copies_max) = (16, u64::MAX);
    let options =
        Options { nodes: 4, me, pages_max, copies_max, rides: Policy::Auto, migratory: 4, rest: 0 };
    let mut node = Node::new(options);
    step(&mut node, Event::Allocate { pages: 1000, owner: 0, everywhere: false });
    step(&mut node, Event::Loaded(0..1000));
    node
}

fn step(node: &mut Node, event: Event) -> Vec<Action> {
    let mut actions = Vec::new();
    node.step(event, 0, &mut actions).expect("a valid event");
    actions
}

fn header(op: Op, from: NodeId, to: NodeId, page: Page) -> Header {
    Header { op, from, to, node: 0, page, set: 0, whole: false, hops: 0, runs: 0 }
}

/// Returns the request of `asker` to node 0.
fn asks(node: &mut Node, op: Op, asker: NodeId, page: Page) -> Vec<Action> {
    let header = Header { node: asker, ..header(op, asker, 0, page) };
    step(node, Event::Message(header, Vec::new()))
}

fn run(first: Page, pages: u64) -> Run {
    Run { first, pages, writer: NOBODY }
}

#[test]
fn a_page_is_requested_from_the_giver_of_its_copy() {
    let mut reader = node(1);
    step(&mut reader, Event::Read(7));
    assert_eq!(reader.owner(7), Some(0));
    let grant = Header { whole: true, ..header(Op::GrantRead, 3, 1, 7) };
    let actions = step(&mut reader, Event::Message(grant, Vec::new()));
    assert_eq!(actions, [Action::Fill(7, 0), Action::MapRead(7)]);
    let actions = step(&mut reader, Event::Write(7));
    let [Action::Send(Header { op: Op::AskWrite, to: 3, whole: true, .. }, _)] = actions[..] else {
        panic!("{actions:?}");
    };
}

#[test]
fn a_holder_of_a_copy_gets_the_page_without_its_bytes() {
    let mut owner = node(0);
    for reader in [1, 2] {
        asks(&mut owner, Op::AskRead, reader, 5);
    }
    let header = Header { node: 2, whole: true, ..header(Op::AskWrite, 2, 0, 5) };
    let actions = step(&mut owner, Event::Message(header, Vec::new()));
    let [Action::Send(invalidate, _), Action::Send(grant, body), Action::Unmap(5)] = &actions[..]
    else {
        panic!("{actions:?}");
    };
    assert_eq!((invalidate.op, invalidate.to, invalidate.node), (Op::Invalidate, 1, 2));
    assert_eq!((grant.op, grant.to, grant.set, grant.whole), (Op::GrantWrite, 2, 1 << 1, false));
    assert_eq!(*body, Body::Pages { asked: None, rides: Vec::new() });
}

#[test]
fn a_declined_request_is_forgotten_and_can_be_made_again() {
    for (fault, op) in [(Event::Read(7), Op::AskRead), (Event::Write(7), Op::AskWrite)] {
        let mut asker = node(1);
        assert!(!asker.can_be_declined(7), "it was not requested");
        let asked = step(&mut asker, fault.clone());
        assert!(asker.can_be_declined(7) && !asker.is_quiet(&(7..8)));
        let mut actions = Vec::new();
        asker.declined(7, 0, 0, &mut actions);
        assert_eq!(actions, []);
        assert!(asker.is_idle() && !asker.can_be_declined(7));
        assert_eq!((asker.state(7), asker.owner(7)), (Some(State::None), Some(0)));
        let again = step(&mut asker, fault);
        assert_eq!(again, asked);
        let [Action::Send(header, _)] = &again[..] else { panic!("{again:?}") };
        assert_eq!((header.op, header.to), (op, 0));
    }
}

#[test]
fn prefetches_end_with_a_declined_request() {
    let mut asker = node(1);
    asker.suggest(vec![8, 9]);
    let asked = step(&mut asker, Event::Read(7));
    let [Action::Send(header, _)] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(header.runs, 1);
    // A task waits for page 9.
    assert_eq!(step(&mut asker, Event::Read(9)), []);
    let mut actions = Vec::new();
    asker.declined(7, 0, 0, &mut actions);
    assert_eq!(actions, [Action::Wake(9)]);
    assert!(asker.is_idle());
}

/// After three sequential faults, one message brings sixteen pages. One of them is the mark.
#[test]
fn pages_that_will_be_wanted_come_together() {
    let (mut reader, mut owner) = (node(1), node(0));
    let mut page = 0;
    let mut together = Vec::new();
    while page < 200 {
        let asked = step(&mut reader, Event::Read(page));
        if let [Action::Send(header, Body::Runs(prefetches))] = &asked[..] {
            let granted = step(&mut owner, Event::Message(*header, prefetches.clone()));
            let Some(Action::Send(grant, body)) = granted.last() else { panic!("{granted:?}") };
            let runs = body.runs().to_vec();
            together.push(1 + runs.iter().map(|run| run.pages).sum::<u64>());
            let came = step(&mut reader, Event::Message(*grant, runs));
            let mapped = came.iter().filter(|it| matches!(it, Action::MapRead(_))).count() as u64;
            assert_eq!(mapped, together[together.len() - 1].saturating_sub(1).max(1));
        }
        while reader.state(page) == Some(State::ReadOnly) {
            page += 1;
        }
    }
    assert!(together.iter().take(4).any(|pages| *pages > 1), "{together:?}");
    assert_eq!(together[together.len() - 1], 16, "{together:?}");
    assert!(together.len() < 30, "{together:?}");
}

/// A task writes unused memory sequentially. Grants carry the ownership of more and more pages, and
/// no bytes.
#[test]
fn the_reader_of_an_unused_page_may_write_it() {
    let options = |me| {
        let (pages_max, copies_max, rest) = (64, u64::MAX, 0);
        Options { nodes: 2, me, pages_max, copies_max, rides: Policy::Runs, migratory: 4, rest }
    };
    let [mut owner, mut reader] = [0, 1].map(|me| Node::new(options(me)));
    for node in [&mut owner, &mut reader] {
        step(node, Event::Allocate { pages: 1000, owner: 0, everywhere: false });
    }
    step(&mut owner, Event::Loaded(500..501));
    let (mut page, mut together) = (0, Vec::new());
    while page < 500 {
        let asked = step(&mut reader, Event::Read(page));
        if let [Action::Send(header, Body::Runs(prefetches))] = &asked[..] {
            let granted = step(&mut owner, Event::Message(*header, prefetches.clone()));
            let [Action::Send(grant, Body::New(runs))] = &granted[..] else {
                panic!("{granted:?}");
            };
            together.push(1 + runs.iter().map(|run| run.pages).sum::<u64>());
            let came = step(&mut reader, Event::Message(*grant, runs.clone()));
            assert!(came.contains(&Action::MapWrite(page)), "{came:?}");
        }
        while reader.state(page) == Some(State::ReadWrite) {
            page += 1;
        }
    }
    assert_eq!(together[..6], [1, 3, 6, 12, 24, 48], "{together:?}");
    assert_eq!(together[6], 64, "{together:?}");
    // Loaded pages are only copied.
    let asked = step(&mut reader, Event::Read(500));
    let [Action::Send(header, Body::Runs(prefetches))] = &asked[..] else { panic!("{asked:?}") };
    let granted = step(&mut owner, Event::Message(*header, prefetches.clone()));
    let Some(Action::Send(grant, Body::Pages { rides, .. })) = granted.last() else {
        panic!("{granted:?}");
    };
    assert_eq!((grant.op, rides.len()), (Op::GrantRead, 0));
}

/// Both nodes have read ten pages. A node that then writes them, upward or downward, does not wait
/// for each page.
#[test]
fn read_pages_become_writable_several_at_a_time() {
    for writer in [0, 1] {
        let options = |me| {
            let (pages_max, copies_max, rest) = (64, u64::MAX, 0);
            Options { nodes: 2, me, pages_max, copies_max, rides: Policy::Runs, migratory: 4, rest }
        };
        let mut nodes = [0, 1].map(|me| Node::new(options(me)));
        for node in &mut nodes {
            step(node, Event::Allocate { pages: 100, owner: 0, everywhere: false });
            step(node, Event::Loaded(0..100));
        }
        let mut stops = 0;
        for (page, write) in
            (20..30).map(|it| (it, false)).chain((20..30).rev().map(|it| (it, true)))
        {
            let me = if write { writer } else { 1 };
            let can = match nodes[me].state(page) {
                Some(State::ReadWrite) => true,
                Some(State::ReadOnly | State::ReadOwner) => !write,
                _ => false,
            };
            if can {
                continue;
            }
            stops += u32::from(write);
            let event = if write { Event::Write(page) } else { Event::Read(page) };
            let mut todo = vec![(me, event)];
            while let Some((me, event)) = todo.pop() {
                for action in step(&mut nodes[me], event) {
                    match action {
                        Action::Send(header, body) => {
                            let message = Event::Message(header, body.runs().to_vec());
                            todo.insert(0, (header.to as usize, message));
                        }
                        Action::Hold(page) => todo.insert(0, (me, Event::Touched(page))),
                        _ => {}
                    }
                }
            }
        }
        assert_eq!(stops, 4, "1, 2, 4 and the rest");
    }
}

/// If the owner itself uses such memory, it maps more pages each time.
#[test]
fn first_uses_of_own_memory_rarely_stop_a_thread() {
    let (pages_max, copies_max) = (64, u64::MAX);
    let options = Options {
        nodes: 2,
        me: 0,
        pages_max,
        copies_max,
        rides: Policy::Runs,
        migratory: 4,
        rest: 0,
    };
    let mut owner = Node::new(options);
    step(&mut owner, Event::Allocate { pages: 1000, owner: 0, everywhere: false });
    step(&mut owner, Event::Loaded(9..10));
    let maps = |pages: std::ops::Range<Page>| pages.map(Action::MapWrite).collect::<Vec<_>>();
    for (page, ready) in [(3, 3..4), (4, 4..6), (6, 6..9)] {
        assert_eq!(step(&mut owner, Event::Read(page)), maps(ready));
    }
    step(&mut owner, Event::Close(21..30));
    assert_eq!(step(&mut owner, Event::Write(10)), maps(10..18));
    assert_eq!(step(&mut owner, Event::Write(18)), maps(18..21));
    // Scattered pages.
    for (page, ready) in [(128, 128..129), (140, 140..141), (130, 130..131), (131, 131..133)] {
        assert_eq!(step(&mut owner, Event::Write(page)), maps(ready));
    }
    // No node waits for the use of pages that were not requested.
    assert_eq!(asks(&mut owner, Op::AskRead, 1, 10), [Action::Hold(10)]);
    let granted = asks(&mut owner, Op::AskRead, 1, 11);
    assert_eq!(granted[0], Action::Protect(11));
}

#[test]
fn pages_lost_with_a_node_are_named() {
    let mut other = node(1);
    let grant = |page, from| Header { whole: true, ..header(Op::GrantRead, from, 1, page) };
    step(&mut other, Event::Read(10));
    step(&mut other, Event::Message(grant(10, 0), Vec::new()));
    step(&mut other, Event::Read(20));
    let actions = step(&mut other, Event::Lost(0));
    // This node has a copy of page 10.
    let gone = vec![run(0, 10), run(11, 989)];
    assert_eq!(actions, [Action::Lost(0, gone), Action::Gone(20)]);
    assert_eq!(step(&mut other, Event::Write(30)), [Action::Gone(30)]);
    assert_eq!(step(&mut other, Event::Read(10)), [Action::MapRead(10)]);
}

#[test]
fn a_node_that_is_lost_gets_no_page() {
    let mut owner = node(0);
    step(&mut owner, Event::Write(3));
    assert_eq!(asks(&mut owner, Op::AskWrite, 2, 3), [Action::Hold(3)]);
    assert_eq!(step(&mut owner, Event::Lost(2)), [Action::Lost(2, Vec::new())]);
    assert_eq!(step(&mut owner, Event::Touched(3)), []);
    assert_eq!(owner.state(3), Some(State::ReadWrite));
}

/// Two nodes read and write a page in turn. Soon one request per turn suffices.
#[test]
fn a_migratory_page_moves_to_its_reader() {
    let mut owner = node(0);
    let grant = |owner: &mut Node, op: Op| {
        let actions = asks(owner, op, 1, 5);
        let held = |action: &&Action| matches!(action, Action::Hold(_));
        let actions = match actions.iter().any(|action| held(&action)) {
            true => step(owner, Event::Touched(5)),
            false => actions,
        };
        let grants = actions.iter().find_map(|action| match action {
            Action::Send(header, _) => Some(header.op),
            _ => None,
        });
        grants.expect("a grant")
    };
    let comes_back = |owner: &mut Node| {
        step(owner, Event::Write(5));
        let grant = Header { whole: true, ..header(Op::GrantWrite, 1, 0, 5) };
        step(owner, Event::Message(grant, Vec::new()));
    };
    assert_eq!(grant(&mut owner, Op::AskRead), Op::GrantRead);
    let asked = Header { node: 1, whole: true, ..header(Op::AskWrite, 1, 0, 5) };
    step(&mut owner, Event::Message(asked, Vec::new()));
    assert_eq!(owner.state(5), Some(State::None));
    comes_back(&mut owner);
    assert_eq!(grant(&mut owner, Op::AskRead), Op::GrantWrite);
    assert_eq!((owner.state(5), owner.owner(5)), (Some(State::None), Some(1)));
    comes_back(&mut owner);
    // Sometimes the owner sends a copy as a test. The other node does not write it this time.
    assert_eq!(grant(&mut owner, Op::AskRead), Op::GrantRead);
    step(&mut owner, Event::Write(5));
    step(&mut owner, Event::Message(header(Op::Acknowledge, 1, 0, 5), Vec::new()));
    assert_eq!(grant(&mut owner, Op::AskRead), Op::GrantRead);
}
