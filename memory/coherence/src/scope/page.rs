//! The states of a page on one node: the transition for each event, and its actions.
//!
//! [`RULES`] is the complete transition table, as data. [`Node`](super::Node) looks transitions up
//! in it, and the diagram in the documentation is generated from it. An event without a rule cannot
//! happen.

use serde::{Deserialize, Serialize};

/// The state of a page on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// Home elsewhere; no copy here.
    Invalid,
    /// Home elsewhere; requested.
    Fetching,
    /// Home elsewhere; requested for writing.
    FetchingToWrite,
    /// Home elsewhere; requested, but the copy in flight is obsolete already.
    Stale,
    /// Home elsewhere; a copy arrived as a ride, and no task has used it.
    Ridden,
    /// Home elsewhere; the copy is readable.
    Clean,
    /// Home elsewhere; the copy was written before the newest scope was opened. It is readable and
    /// has a twin.
    Kept,
    /// Home elsewhere; the copy is writable and has a twin.
    Dirty,
    /// Home here, and no other node has a copy: writable without write notices.
    Alone,
    /// Home here, and other nodes may have copies: readable.
    Home,
    /// Home here, and other nodes may have copies: written since the newest scope was opened.
    HomeDirty,
}

/// An event that concerns a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Happens {
    /// A task faulted on a read.
    Read,
    /// A task faulted on a write.
    Write,
    /// The requested page arrived from its home.
    Arrive,
    /// The page arrived as a ride on another message.
    Ride,
    /// A write notice: another node wrote the page in a scope that is opened here.
    Notice,
    /// A scope is opened: later writes belong to it.
    Open,
    /// A scope in which the page was written is closed.
    Flush,
    /// Another node requests the page.
    Ask,
    /// The page is sent to another node as a ride.
    Lend,
    /// Another node's diff arrived.
    Change,
    /// At a barrier: no other node has a copy any more.
    Settle,
    /// At a barrier: the home moves here, because only this node wrote the page.
    Gain,
    /// At a barrier: the home moves to the only node that wrote the page.
    Lose,
}

/// An action of a rule. A rule's actions are carried out in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Do {
    /// Request the page from its home.
    Ask,
    /// Fill the page with the bytes that arrived.
    Fill,
    /// Make a twin: a copy of the page before it is written.
    Twin,
    /// Allow tasks to read the page.
    MapRead,
    /// Allow tasks to write the page.
    MapWrite,
    /// Revoke write access.
    Protect,
    /// Revoke all access.
    Unmap,
    /// Record the page as written in all open scopes.
    Record,
    /// Send the differences from the twin to the home, and drop the twin.
    Diff,
    /// Send the page to the requester.
    Answer,
    /// Apply the other node's diff.
    Change,
    /// Let stopped tasks retry.
    Wake,
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
        rule(S::Invalid, H::Read, S::Fetching, &[Do::Ask]),
        rule(S::Invalid, H::Write, S::FetchingToWrite, &[Do::Ask]),
        rule(S::Invalid, H::Ride, S::Ridden, &[Do::Fill]),
        rule(S::Invalid, H::Notice, S::Invalid, &[]),
        rule(S::Invalid, H::Flush, S::Invalid, &[]),
        //
        rule(S::Fetching, H::Read, S::Fetching, &[]),
        rule(S::Fetching, H::Write, S::FetchingToWrite, &[]),
        rule(S::Fetching, H::Arrive, S::Clean, &[Do::Fill, Do::MapRead]),
        rule(S::Fetching, H::Notice, S::Stale, &[]),
        rule(S::Fetching, H::Flush, S::Fetching, &[]),
        //
        rule(S::FetchingToWrite, H::Read, S::FetchingToWrite, &[]),
        rule(S::FetchingToWrite, H::Write, S::FetchingToWrite, &[]),
        rule(
            S::FetchingToWrite,
            H::Arrive,
            S::Dirty,
            &[Do::Fill, Do::Twin, Do::MapWrite, Do::Record],
        ),
        rule(S::FetchingToWrite, H::Notice, S::Stale, &[]),
        rule(S::FetchingToWrite, H::Flush, S::FetchingToWrite, &[]),
        //
        rule(S::Stale, H::Read, S::Stale, &[]),
        rule(S::Stale, H::Write, S::Stale, &[]),
        rule(S::Stale, H::Arrive, S::Fetching, &[Do::Ask]),
        rule(S::Stale, H::Notice, S::Stale, &[]),
        rule(S::Stale, H::Flush, S::Stale, &[]),
        //
        rule(S::Ridden, H::Read, S::Clean, &[Do::MapRead]),
        rule(S::Ridden, H::Write, S::Dirty, &[Do::Twin, Do::MapWrite, Do::Record]),
        rule(S::Ridden, H::Notice, S::Invalid, &[Do::Unmap]),
        rule(S::Ridden, H::Flush, S::Ridden, &[]),
        //
        rule(S::Clean, H::Read, S::Clean, &[Do::MapRead]),
        rule(S::Clean, H::Write, S::Dirty, &[Do::Twin, Do::MapWrite, Do::Record]),
        rule(S::Clean, H::Notice, S::Invalid, &[Do::Unmap]),
        rule(S::Clean, H::Flush, S::Clean, &[]),
        // The previous home has passed the barrier and changes the page before this node passes it.
        rule(S::Clean, H::Change, S::Clean, &[Do::Change]),
        rule(S::Clean, H::Gain, S::Home, &[]),
        //
        rule(S::Kept, H::Read, S::Kept, &[Do::MapRead]),
        rule(S::Kept, H::Write, S::Dirty, &[Do::MapWrite, Do::Record]),
        rule(S::Kept, H::Notice, S::Invalid, &[Do::Diff, Do::Unmap]),
        rule(S::Kept, H::Flush, S::Clean, &[Do::Diff]),
        //
        rule(S::Dirty, H::Read, S::Dirty, &[Do::Wake]),
        rule(S::Dirty, H::Write, S::Dirty, &[Do::Wake]),
        rule(S::Dirty, H::Notice, S::Invalid, &[Do::Protect, Do::Diff, Do::Unmap]),
        rule(S::Dirty, H::Open, S::Kept, &[Do::Protect]),
        rule(S::Dirty, H::Flush, S::Clean, &[Do::Protect, Do::Diff]),
        //
        rule(S::Alone, H::Read, S::Alone, &[Do::MapWrite]),
        rule(S::Alone, H::Write, S::Alone, &[Do::MapWrite]),
        rule(S::Alone, H::Notice, S::Alone, &[]),
        rule(S::Alone, H::Ask, S::Home, &[Do::Protect, Do::Answer]),
        rule(S::Alone, H::Lend, S::Home, &[Do::Protect]),
        //
        rule(S::Home, H::Read, S::Home, &[Do::MapRead]),
        rule(S::Home, H::Write, S::HomeDirty, &[Do::MapWrite, Do::Record]),
        rule(S::Home, H::Notice, S::Home, &[]),
        rule(S::Home, H::Flush, S::Home, &[]),
        rule(S::Home, H::Ask, S::Home, &[Do::Answer]),
        rule(S::Home, H::Lend, S::Home, &[]),
        rule(S::Home, H::Change, S::Home, &[Do::Change]),
        rule(S::Home, H::Settle, S::Alone, &[]),
        rule(S::Home, H::Lose, S::Clean, &[]),
        //
        rule(S::HomeDirty, H::Read, S::HomeDirty, &[Do::Wake]),
        rule(S::HomeDirty, H::Write, S::HomeDirty, &[Do::Wake]),
        rule(S::HomeDirty, H::Notice, S::HomeDirty, &[]),
        rule(S::HomeDirty, H::Open, S::Home, &[Do::Protect]),
        rule(S::HomeDirty, H::Flush, S::HomeDirty, &[]),
        rule(S::HomeDirty, H::Ask, S::HomeDirty, &[Do::Answer]),
        rule(S::HomeDirty, H::Lend, S::HomeDirty, &[]),
        rule(S::HomeDirty, H::Change, S::HomeDirty, &[Do::Change]),
        rule(S::HomeDirty, H::Settle, S::Alone, &[]),
    ]
};

/// Number of states.
pub const STATES: usize = State::HomeDirty as usize + 1;
/// Number of events.
pub const EVENTS: usize = Happens::Lose as usize + 1;

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

/// Returns the rules as a Mermaid state diagram. It omits rules that neither change the state nor
/// have actions.
pub fn diagram() -> String {
    use std::fmt::Write;
    let mut text = String::from("stateDiagram-v2\n    [*] --> Invalid\n    [*] --> Alone\n");
    for rule in RULES.iter().filter(|rule| rule.next != rule.state || !rule.actions.is_empty()) {
        let actions: Vec<_> = rule.actions.iter().map(|action| format!("{action:?}")).collect();
        let actions =
            if actions.is_empty() { String::new() } else { format!(" / {}", actions.join(", ")) };
        writeln!(text, "    {:?} --> {:?}: {:?}{actions}", rule.state, rule.next, rule.on)
            .expect("into a string");
    }
    text
}
