//! The states of a page on one node: the transition for each event, and its actions.
//!
//! [`RULES`] is the complete transition table, as data. [`Node`](super::Node) looks transitions up
//! in it, and the diagram in the documentation is generated from it. An event without a rule cannot
//! happen.
//!
//! `None`, `ReadOnly`, `ReadOwner` and `ReadWrite` are the paper's states. A node is the page's
//! owner (the paper's page manager) in `ReadOwner`, `ReadWrite`, `Gathering` and `AheadOwner`.

use serde::{Deserialize, Serialize};

/// The state of a page on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// No copy.
    None,
    /// A copy; another node is the owner.
    ReadOnly,
    /// The owner; other nodes may have copies.
    ReadOwner,
    /// The owner; no other node has a copy.
    ReadWrite,
    /// No copy; read access is requested.
    Reading,
    /// No copy; write access is requested.
    Writing,
    /// A copy; write access is requested.
    Upgrading,
    /// The owner; some nodes have not acknowledged the invalidation of their copies.
    Gathering,
    /// No copy; requested as a prefetch along with a page that is requested for reading.
    HopingToRead,
    /// No copy; requested as a prefetch along with a page that is requested for writing.
    HopingToWrite,
    /// A prefetched copy that no task has used yet.
    Ahead,
    /// The owner of a prefetched page that no task has used yet. No other node has a copy.
    AheadOwner,
}

/// An event that concerns a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Happens {
    /// A task faulted on a read.
    Read,
    /// A task faulted on a write.
    Write,
    /// A task faulted on a write, and no other node has a copy.
    Claim,
    /// The page is requested as a prefetch along with a page that is requested for reading.
    HopeToRead,
    /// The page is requested as a prefetch along with a page that is requested for writing.
    HopeToWrite,
    /// The requested copy arrived.
    Copy,
    /// The requested ownership arrived; other nodes still have copies.
    Own,
    /// The requested ownership arrived; no other node has a copy.
    OwnAlone,
    /// All copies of other nodes are gone.
    Gathered,
    /// The prefetched page arrived.
    Ride,
    /// The prefetched page arrived, and its first use is to be observed.
    Mark,
    /// The page was prefetched for reading, and ownership arrived, because its owner had never used
    /// it.
    RideOwn,
    /// As `RideOwn`, and its first use is to be observed.
    MarkOwn,
    /// The prefetched page was not sent.
    Stay,
    /// Another node requests read access.
    AskRead,
    /// Another node requests write access.
    AskWrite,
    /// Another node requests any access to a page that no task has used.
    AskNew,
    /// A copy is sent as a prefetch.
    LendRead,
    /// The page and its ownership are sent as a prefetch.
    LendWrite,
    /// A page that no task has used is sent as a prefetch, with its ownership.
    LendNew,
    /// An invalidation: another node will write the page.
    Invalidate,
    /// The copy is evicted.
    Drop,
}

/// An action of a rule. A rule's actions are carried out in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Do {
    /// Send a request to the last known owner.
    Ask,
    /// Fill the page with the bytes that arrived.
    Fill,
    /// Allow tasks to read the page.
    MapRead,
    /// Allow tasks to write the page.
    MapWrite,
    /// Revoke write access.
    Protect,
    /// Revoke all access. The contents are obsolete.
    Unmap,
    /// Let stopped tasks retry.
    Wake,
    /// Send a copy to the requester.
    GrantRead,
    /// Send the page and its ownership to the requester, and invalidations to nodes with copies.
    GrantWrite,
    /// Send the page, which holds zeros, and its ownership to the requester.
    GrantNew,
    /// Send invalidations to nodes with copies.
    Invalidate,
    /// Acknowledge the invalidation to the node that will write the page.
    Acknowledge,
    /// Forward the request to the last known owner.
    Forward,
    /// Queue the request here.
    Queue,
}

/// A transition: event `on` in `state` leads to `next` and causes `actions`.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The state before.
    pub state: State,
    /// The event.
    pub on: Happens,
    /// The state after.
    pub next: State,
    /// The actions.
    pub actions: &'static [Do],
}

const fn rule(state: State, on: Happens, next: State, actions: &'static [Do]) -> Rule {
    Rule { state, on, next, actions }
}

/// All transitions.
pub const RULES: &[Rule] = {
    use Happens as H;
    use State as S;
    &[
        rule(S::None, H::Read, S::Reading, &[Do::Ask]),
        rule(S::None, H::Write, S::Writing, &[Do::Ask]),
        rule(S::None, H::HopeToRead, S::HopingToRead, &[]),
        rule(S::None, H::HopeToWrite, S::HopingToWrite, &[]),
        rule(S::None, H::AskRead, S::None, &[Do::Forward]),
        rule(S::None, H::AskWrite, S::None, &[Do::Forward]),
        // The copy was evicted here, and the owner does not know it.
        rule(S::None, H::Invalidate, S::None, &[Do::Acknowledge]),
        //
        rule(S::ReadOnly, H::Read, S::ReadOnly, &[Do::MapRead]),
        rule(S::ReadOnly, H::Write, S::Upgrading, &[Do::Ask]),
        rule(S::ReadOnly, H::AskRead, S::ReadOnly, &[Do::Forward]),
        rule(S::ReadOnly, H::AskWrite, S::ReadOnly, &[Do::Forward]),
        rule(S::ReadOnly, H::Invalidate, S::None, &[Do::Unmap, Do::Acknowledge]),
        rule(S::ReadOnly, H::Drop, S::None, &[Do::Unmap]),
        //
        rule(S::ReadOwner, H::Read, S::ReadOwner, &[Do::MapRead]),
        rule(S::ReadOwner, H::Write, S::Gathering, &[Do::Invalidate]),
        rule(S::ReadOwner, H::Claim, S::ReadWrite, &[Do::MapWrite]),
        rule(S::ReadOwner, H::AskRead, S::ReadOwner, &[Do::GrantRead]),
        rule(S::ReadOwner, H::AskWrite, S::None, &[Do::GrantWrite, Do::Unmap]),
        rule(S::ReadOwner, H::LendRead, S::ReadOwner, &[]),
        rule(S::ReadOwner, H::LendWrite, S::None, &[]),
        //
        rule(S::ReadWrite, H::Read, S::ReadWrite, &[Do::MapWrite]),
        rule(S::ReadWrite, H::Write, S::ReadWrite, &[Do::MapWrite]),
        rule(S::ReadWrite, H::AskRead, S::ReadOwner, &[Do::Protect, Do::GrantRead]),
        rule(S::ReadWrite, H::AskWrite, S::None, &[Do::Protect, Do::GrantWrite, Do::Unmap]),
        rule(S::ReadWrite, H::AskNew, S::None, &[Do::GrantNew]),
        rule(S::ReadWrite, H::LendRead, S::ReadOwner, &[Do::Protect]),
        rule(S::ReadWrite, H::LendWrite, S::None, &[Do::Protect]),
        rule(S::ReadWrite, H::LendNew, S::None, &[]),
        //
        rule(S::Reading, H::Read, S::Reading, &[]),
        rule(S::Reading, H::Write, S::Reading, &[]),
        rule(S::Reading, H::Copy, S::ReadOnly, &[Do::Fill, Do::MapRead]),
        rule(S::Reading, H::OwnAlone, S::ReadWrite, &[Do::Fill, Do::MapWrite]),
        rule(S::Reading, H::AskRead, S::Reading, &[Do::Forward]),
        rule(S::Reading, H::AskWrite, S::Reading, &[Do::Forward]),
        rule(S::Reading, H::Invalidate, S::Reading, &[Do::Acknowledge]),
        //
        rule(S::Writing, H::Read, S::Writing, &[]),
        rule(S::Writing, H::Write, S::Writing, &[]),
        rule(S::Writing, H::Own, S::Gathering, &[Do::Fill]),
        rule(S::Writing, H::OwnAlone, S::ReadWrite, &[Do::Fill, Do::MapWrite]),
        rule(S::Writing, H::AskRead, S::Writing, &[Do::Queue]),
        rule(S::Writing, H::AskWrite, S::Writing, &[Do::Queue]),
        rule(S::Writing, H::Invalidate, S::Writing, &[Do::Acknowledge]),
        //
        rule(S::Upgrading, H::Read, S::Upgrading, &[Do::MapRead]),
        rule(S::Upgrading, H::Write, S::Upgrading, &[]),
        rule(S::Upgrading, H::Own, S::Gathering, &[]),
        rule(S::Upgrading, H::OwnAlone, S::ReadWrite, &[Do::MapWrite]),
        rule(S::Upgrading, H::AskRead, S::Upgrading, &[Do::Queue]),
        rule(S::Upgrading, H::AskWrite, S::Upgrading, &[Do::Queue]),
        rule(S::Upgrading, H::Invalidate, S::Writing, &[Do::Unmap, Do::Acknowledge]),
        // Remaining copies of other nodes equal this one, and no node can write.
        rule(S::Gathering, H::Read, S::Gathering, &[Do::MapRead]),
        rule(S::Gathering, H::Write, S::Gathering, &[]),
        rule(S::Gathering, H::Gathered, S::ReadWrite, &[Do::MapWrite]),
        rule(S::Gathering, H::AskRead, S::Gathering, &[Do::Queue]),
        rule(S::Gathering, H::AskWrite, S::Gathering, &[Do::Queue]),
        //
        rule(S::HopingToRead, H::Read, S::HopingToRead, &[]),
        rule(S::HopingToRead, H::Write, S::HopingToRead, &[]),
        rule(S::HopingToRead, H::Ride, S::ReadOnly, &[Do::Fill, Do::MapRead]),
        rule(S::HopingToRead, H::Mark, S::Ahead, &[Do::Fill]),
        rule(S::HopingToRead, H::RideOwn, S::ReadWrite, &[Do::Fill, Do::MapWrite]),
        rule(S::HopingToRead, H::MarkOwn, S::AheadOwner, &[Do::Fill]),
        rule(S::HopingToRead, H::Stay, S::None, &[Do::Wake]),
        rule(S::HopingToRead, H::AskRead, S::HopingToRead, &[Do::Forward]),
        rule(S::HopingToRead, H::AskWrite, S::HopingToRead, &[Do::Forward]),
        rule(S::HopingToRead, H::Invalidate, S::HopingToRead, &[Do::Acknowledge]),
        //
        rule(S::HopingToWrite, H::Read, S::HopingToWrite, &[]),
        rule(S::HopingToWrite, H::Write, S::HopingToWrite, &[]),
        rule(S::HopingToWrite, H::Ride, S::ReadWrite, &[Do::Fill, Do::MapWrite]),
        rule(S::HopingToWrite, H::Mark, S::AheadOwner, &[Do::Fill]),
        rule(S::HopingToWrite, H::Stay, S::None, &[Do::Wake]),
        rule(S::HopingToWrite, H::AskRead, S::HopingToWrite, &[Do::Forward]),
        rule(S::HopingToWrite, H::AskWrite, S::HopingToWrite, &[Do::Forward]),
        rule(S::HopingToWrite, H::Invalidate, S::HopingToWrite, &[Do::Acknowledge]),
        //
        rule(S::Ahead, H::Read, S::ReadOnly, &[Do::MapRead]),
        rule(S::Ahead, H::Write, S::Upgrading, &[Do::Ask]),
        rule(S::Ahead, H::AskRead, S::Ahead, &[Do::Forward]),
        rule(S::Ahead, H::AskWrite, S::Ahead, &[Do::Forward]),
        rule(S::Ahead, H::Invalidate, S::None, &[Do::Unmap, Do::Acknowledge]),
        rule(S::Ahead, H::Drop, S::None, &[Do::Unmap]),
        //
        rule(S::AheadOwner, H::Read, S::ReadWrite, &[Do::MapWrite]),
        rule(S::AheadOwner, H::Write, S::ReadWrite, &[Do::MapWrite]),
        rule(S::AheadOwner, H::AskRead, S::ReadOwner, &[Do::GrantRead]),
        rule(S::AheadOwner, H::AskWrite, S::None, &[Do::GrantWrite, Do::Unmap]),
        rule(S::AheadOwner, H::LendRead, S::ReadOwner, &[]),
        rule(S::AheadOwner, H::LendWrite, S::None, &[]),
    ]
};

impl State {
    /// Returns true if this node owns the page and can grant requests at once.
    pub fn owns(self) -> bool {
        matches!(self, State::ReadOwner | State::ReadWrite | State::AheadOwner)
    }

    /// Returns true if this node has a copy of a page that another node owns.
    pub fn is_copy(self) -> bool {
        matches!(self, State::ReadOnly | State::Upgrading | State::Ahead)
    }

    /// Returns true if the bytes here are the current contents of the page.
    pub fn has_bytes(self) -> bool {
        self.owns() || self.is_copy() || self == State::Gathering
    }

    /// Returns true if a request or prefetch of the page is in flight.
    pub fn waits(self) -> bool {
        use State::{HopingToRead, HopingToWrite, Reading, Upgrading, Writing};
        matches!(self, Reading | Writing | Upgrading | HopingToRead | HopingToWrite)
    }
}

/// Number of states.
pub const STATES: usize = State::AheadOwner as usize + 1;
/// Number of events.
pub const EVENTS: usize = Happens::Drop as usize + 1;

/// The rules by state and event.
static TABLE: [[Option<Rule>; EVENTS]; STATES] = {
    let mut table = [[None; EVENTS]; STATES];
    let mut at = 0;
    while at < RULES.len() {
        let rule = RULES[at];
        let cell = &mut table[rule.state as usize][rule.on as usize];
        assert!(cell.is_none(), "two rules for one state and event");
        *cell = Some(rule);
        at += 1;
    }
    table
};

/// Returns the rule for an event in a state, or `None` if the event cannot happen.
pub fn rule_of(state: State, on: Happens) -> Option<Rule> {
    TABLE[state as usize][on as usize]
}

/// Returns the rules as a Mermaid state diagram. It omits rules that do not change the state and
/// have no action except `Forward` or `Queue`.
pub fn diagram() -> String {
    use std::fmt::Write;
    let mut text = String::from("stateDiagram-v2\n    [*] --> None\n    [*] --> ReadWrite\n");
    let stays = |rule: &&Rule| {
        rule.next == rule.state
            && rule.actions.iter().all(|action| matches!(action, Do::Forward | Do::Queue))
    };
    for rule in RULES.iter().filter(|rule| !stays(rule)) {
        let actions: Vec<_> = rule.actions.iter().map(|action| format!("{action:?}")).collect();
        let actions = match actions.is_empty() {
            true => String::new(),
            false => format!(" / {}", actions.join(", ")),
        };
        writeln!(text, "    {:?} --> {:?}: {:?}{actions}", rule.state, rule.next, rule.on)
            .expect("into a string");
    }
    text
}
