//! The life of a page on one node: which state follows on which event, and what is to be done.
//!
//! [`RULES`] is all of it, as data: [`Node`](super::Node) only looks up, the diagram in the
//! documentation is written from it, and a pair that it does not name cannot happen.

use serde::{Deserialize, Serialize};

/// What a node has of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// Another's, and nothing here.
    Invalid,
    /// Another's, and asked for.
    Fetching,
    /// Another's, and asked for, to write to it.
    FetchingToWrite,
    /// Another's, and asked for, but what comes is old already.
    Stale,
    /// Another's; a copy came by a ride, and no task has used it yet.
    Ridden,
    /// Another's; the copy can be read.
    Clean,
    /// Another's; the copy was written before the youngest scope was opened, and can be read.
    Kept,
    /// Another's; the copy can be written.
    Dirty,
    /// Ours, and nobody has a copy: written without notice.
    Alone,
    /// Ours, and others may have copies; can be read.
    Home,
    /// Ours, and others may have copies; written since the youngest scope was opened.
    HomeDirty,
}

/// What happens to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Happens {
    /// A task reads it and cannot.
    Read,
    /// A task writes it and cannot.
    Write,
    /// It comes from its home.
    Arrive,
    /// It comes along with another message.
    Ride,
    /// Another wrote it in a scope that is opened here.
    Notice,
    /// A scope is opened: what is written from now on is written in it.
    Open,
    /// A scope in which it was written is closed.
    Flush,
    /// Another node asks for it.
    Ask,
    /// It goes along with a message to another node.
    Lend,
    /// Another node's changes come.
    Change,
    /// At a barrier: no other node has a copy any more.
    Settle,
    /// At a barrier: it becomes ours, since nobody but us wrote it.
    Gain,
    /// At a barrier: it becomes another's, since nobody else wrote it.
    Lose,
}

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Do {
    /// Ask its home for it.
    Ask,
    /// Fill it with what came.
    Fill,
    /// Make a twin: a copy as it is before it is written.
    Twin,
    /// Let tasks read it.
    MapRead,
    /// Let tasks write it.
    MapWrite,
    /// Let tasks only read it.
    Protect,
    /// Let tasks do nothing with it.
    Unmap,
    /// It is written in all scopes that are open.
    Record,
    /// Send its home what differs from the twin, and drop the twin.
    Diff,
    /// Send it to who asks.
    Answer,
    /// Change it as the other says.
    Change,
    /// Let tasks that could not go on try again.
    Wake,
}

/// On `on` in `state`, do `actions`; `next` is the state from then on.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The state before.
    pub state: State,
    /// What happens.
    pub on: Happens,
    /// The state after.
    pub next: State,
    /// What is to be done.
    pub actions: &'static [Do],
}

const fn rule(state: State, on: Happens, next: State, actions: &'static [Do]) -> Rule {
    Rule { state, on, next, actions }
}

/// All that can happen.
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
        // Who lost the page to us has passed the barrier, and changes it before we have.
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

/// As many states as there are.
pub const STATES: usize = State::HomeDirty as usize + 1;
/// As many events as there are.
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

/// What the rules say, if it can happen.
pub fn rule_of(state: State, on: Happens) -> Option<Rule> {
    TABLE[state as usize][on as usize]
}

/// The rules as a state diagram in Mermaid's language. Events that change nothing and ask for
/// nothing are left out.
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
