//! The engine over memory that only records what is done with it, and fails where it is told to.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use coherence::message::{NodeId, Page};
use coherence::ride::Policy;
use coherence::run::{self, NOBODY};
use coherence::sequential::message::{Body, Header, Op};
use coherence::sequential::{Action, Event, Node, Options};
use net::mesh::Received;
use node::driver::{Driver, Engine};
use node::memory::Memory;
use node::sequential::{Replica, Sequential};
use pager::{Access, Fault, PagerError};

const PAGE: usize = 64;

/// Records calls.
#[derive(Default)]
struct Recorder {
    calls: std::cell::RefCell<Vec<String>>,
    /// A page that cannot be read.
    broken: Option<Page>,
    maps_no_reads: bool,
}

impl Recorder {
    fn call(&self, what: &str, pages: Range<Page>) -> Result<(), PagerError> {
        self.calls.borrow_mut().push(format!("{what} {pages:?}"));
        Ok(())
    }
}

impl Memory for Recorder {
    fn descriptor(&self) -> BorrowedFd<'_> {
        unreachable!("nobody sleeps here")
    }

    fn faults(&mut self, _faults: &mut Vec<Fault>) -> Result<(), PagerError> {
        Ok(())
    }

    fn can_allow_read(&self) -> bool {
        !self.maps_no_reads
    }

    fn page_bytes(&self) -> usize {
        PAGE
    }

    fn allow(&mut self, pages: Range<Page>, access: Access) -> Result<(), PagerError> {
        if pages.is_empty() { Ok(()) } else { self.call(&format!("allow {access:?}"), pages) }
    }

    fn bring(
        &mut self,
        pages: Range<Page>,
        _bytes: Option<&[u8]>,
        access: Access,
    ) -> Result<(), PagerError> {
        self.call(&format!("bring {access:?}"), pages)
    }

    fn fill(&mut self, page: Page, _bytes: Option<&[u8]>) -> Result<(), PagerError> {
        self.call("fill", page..page + 1)
    }

    fn protect(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        self.call("protect", pages)
    }

    fn forbid(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        self.call("forbid", pages)
    }

    fn discard(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        self.call("discard", pages)
    }

    fn free(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        self.call("free", pages)
    }

    fn retry(&mut self, page: Page) -> Result<(), PagerError> {
        self.call("retry", page..page + 1)
    }

    fn append(&self, pages: Range<Page>, to: &mut Vec<u8>) -> Result<(), PagerError> {
        self.call("append", pages.clone())?;
        if self.broken.is_some_and(|page| pages.contains(&page)) {
            return Err(PagerError::Memory);
        }
        to.resize(to.len() + PAGE * (pages.end - pages.start) as usize, 1);
        Ok(())
    }
}

/// A user of the engine that has no network: to send pages would be a panic.
struct User {
    engine: Engine<Recorder>,
    pages: Sequential,
    failures: usize,
    sent: Vec<Header>,
}

/// Node `me` of two, with a hundred pages that are node 0's and hold something.
fn user(me: NodeId, memory: Recorder) -> User {
    let (pages_max, copies_max) = (16, u64::MAX);
    let node = Node::new(Options {
        nodes: 2,
        me,
        pages_max,
        copies_max,
        rides: Policy::Normal,
        migratory: 0,
        rest: 0,
    });
    let (failures, sent) = (0, Vec::new());
    let pages = Sequential::new(node);
    let mut user = User { engine: Engine::new(memory, None), pages, failures, sent };
    user.step(Event::Allocate { pages: 100, owner: 0, everywhere: false });
    if me == 0 {
        user.step(Event::Loaded(0..100));
    }
    user
}

impl User {
    fn calls(&self) -> Vec<String> {
        self.engine.memory.calls.take()
    }
}

impl Driver for User {
    type Memory = Recorder;

    fn engine(&self) -> &Engine<Recorder> {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine<Recorder> {
        &mut self.engine
    }

    fn received(&mut self, _message: Received) {}

    fn node_lost(&mut self, _node: NodeId, _why: &str) {}

    fn faulted(&mut self, fault: &Fault) {
        self.resolve(fault.page, fault.wants);
    }

    fn take_requests(&mut self) -> bool {
        false
    }

    fn tend(&mut self) -> bool {
        self.expire_holds()
    }

    fn failed(&mut self, _error: &dyn std::fmt::Display) {
        self.failures += 1;
    }
}

impl Replica for User {
    fn pages(&self) -> &Sequential {
        &self.pages
    }

    fn pages_mut(&mut self) -> &mut Sequential {
        &mut self.pages
    }

    fn violated(&mut self, from: NodeId, message: &str, why: Option<&str>) {
        panic!("{from}: {message}: {why:?}");
    }

    fn sends_itself(&mut self, header: &Header, _body: &Body) -> bool {
        self.sent.push(*header);
        true
    }
}

/// A read that fails and is followed by a good one was once sent as data.
#[test]
fn pages_are_not_sent_if_the_first_of_them_cannot_be_read() {
    let mut owner = user(0, Recorder { broken: Some(0), ..Recorder::default() });
    let rides = run::encode(&run::of([(2, NOBODY)]));
    let ask = Header {
        op: Op::AskRead,
        from: 1,
        to: 0,
        node: 1,
        page: 0,
        set: 0,
        whole: false,
        hops: 0,
        runs: 1,
    };
    owner.receive(1, ask, &rides);
    assert_eq!(owner.failures, 1);
    let calls = owner.calls();
    assert!(calls.contains(&"append 0..1".into()), "{calls:?}");
    assert!(!calls.contains(&"append 2..3".into()), "{calls:?}");
    assert_eq!(owner.engine.traffic.messages, 0);
}

#[test]
fn neighbours_take_one_call() {
    use Action::{MapRead, MapWrite, Protect, Unmap, Wake};
    let mut it = user(0, Recorder::default());
    let mut actions = [3, 4, 5].map(MapWrite).to_vec();
    actions.extend([MapRead(6), Protect(10), Protect(11), Unmap(7), Unmap(8), Unmap(20), Wake(1)]);
    it.carry_out(&mut actions, None).expect("nothing fails");
    let expected = [
        "allow Write 3..6",
        "allow Read 6..7",
        "protect 10..12",
        "forbid 7..9",
        "forbid 20..21",
        "retry 1..2",
    ];
    assert_eq!(it.calls(), expected);
}

#[test]
fn a_fault_at_a_closed_page_is_resolved_when_it_opens() {
    let mut it = user(1, Recorder::default());
    it.close_pages(0, 1, 3..5);
    it.resolve(4, Access::Read);
    assert_eq!(it.sent, []);
    assert_eq!(it.take_quiet(), [(0, 1)]);
    it.reset_pages(3..5, 0).expect("nothing fails");
    it.open_pages(&(3..5));
    assert_eq!(it.calls(), ["discard 3..5"]);
    it.resolve(4, Access::Read);
    assert!(matches!(it.sent[..], [Header { op: Op::AskRead, page: 4, .. }]), "{:?}", it.sent);
}

#[test]
fn reads_count_as_writes_where_pages_cannot_be_mapped_for_reading_only() {
    let mut it = user(1, Recorder { maps_no_reads: true, ..Recorder::default() });
    it.resolve(4, Access::Read);
    assert!(matches!(it.sent[..], [Header { op: Op::AskWrite, page: 4, .. }]), "{:?}", it.sent);
}

/// The engine returns memory of pages that left, but not of one that came back.
#[test]
fn memory_over_the_limit_is_that_of_pages_that_left() {
    let mut it = user(1, Recorder::default());
    it.pages.residency.limit_bytes = Some(1);
    it.carry_out(&mut [Action::Unmap(7), Action::Unmap(9)], None).expect("nothing fails");
    it.calls();
    let used = |memory: &Recorder| 10 - 5 * memory.calls.borrow().len() as u64;
    it.limit_memory(used).expect("nothing fails");
    assert_eq!(it.calls(), ["free 7..8", "free 9..10"]);
    assert_eq!(it.pages.residency.peak_bytes, 10);
}
