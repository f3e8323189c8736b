//! The states of a page on one node: the transition for each event, and its actions.
//!
//! [`TABLE`] is the complete [transition table](crate::transition). [`Node`](super::Node) looks
//! transitions up in it.

use serde::{Deserialize, Serialize};

use crate::transition;

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
    /// Home elsewhere; requested before a task needs it.
    Prefetching,
    /// Home elsewhere; a copy arrived as a ride or prefetch, and no task has used it.
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
pub enum PageEvent {
    /// A task faulted on a read.
    Read,
    /// A task faulted on a write.
    Write,
    /// The page is requested before a task needs it.
    Prefetch,
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
    SendRide,
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
pub enum PageAction {
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

/// A transition of a page.
pub type Rule = transition::Rule<State, PageEvent, PageAction>;

const fn rule(state: State, event: PageEvent, next: State, actions: &'static [PageAction]) -> Rule {
    Rule { state, event, next, actions, cell: (state as usize, event as usize) }
}

/// All transitions.
const RULES: &[Rule] = {
    use PageAction as A;
    use PageEvent as E;
    use State as S;
    &[
        rule(S::Invalid, E::Read, S::Fetching, &[A::Ask]),
        rule(S::Invalid, E::Write, S::FetchingToWrite, &[A::Ask]),
        rule(S::Invalid, E::Prefetch, S::Prefetching, &[A::Ask]),
        rule(S::Invalid, E::Ride, S::Ridden, &[A::Fill]),
        rule(S::Invalid, E::Notice, S::Invalid, &[]),
        rule(S::Invalid, E::Flush, S::Invalid, &[]),
        //
        rule(S::Fetching, E::Read, S::Fetching, &[]),
        rule(S::Fetching, E::Write, S::FetchingToWrite, &[]),
        rule(S::Fetching, E::Arrive, S::Clean, &[A::Fill, A::MapRead]),
        rule(S::Fetching, E::Notice, S::Stale, &[]),
        rule(S::Fetching, E::Flush, S::Fetching, &[]),
        //
        rule(S::FetchingToWrite, E::Read, S::FetchingToWrite, &[]),
        rule(S::FetchingToWrite, E::Write, S::FetchingToWrite, &[]),
        rule(S::FetchingToWrite, E::Arrive, S::Dirty, &[A::Fill, A::Twin, A::MapWrite, A::Record]),
        rule(S::FetchingToWrite, E::Notice, S::Stale, &[]),
        rule(S::FetchingToWrite, E::Flush, S::FetchingToWrite, &[]),
        //
        rule(S::Stale, E::Read, S::Stale, &[]),
        rule(S::Stale, E::Write, S::Stale, &[]),
        rule(S::Stale, E::Arrive, S::Fetching, &[A::Ask]),
        rule(S::Stale, E::Notice, S::Stale, &[]),
        rule(S::Stale, E::Flush, S::Stale, &[]),
        //
        rule(S::Prefetching, E::Read, S::Fetching, &[]),
        rule(S::Prefetching, E::Write, S::FetchingToWrite, &[]),
        rule(S::Prefetching, E::Arrive, S::Ridden, &[A::Fill]),
        rule(S::Prefetching, E::Notice, S::Stale, &[]),
        rule(S::Prefetching, E::Flush, S::Prefetching, &[]),
        //
        rule(S::Ridden, E::Read, S::Clean, &[A::MapRead]),
        rule(S::Ridden, E::Write, S::Dirty, &[A::Twin, A::MapWrite, A::Record]),
        rule(S::Ridden, E::Notice, S::Invalid, &[A::Unmap]),
        rule(S::Ridden, E::Flush, S::Ridden, &[]),
        //
        rule(S::Clean, E::Read, S::Clean, &[A::MapRead]),
        rule(S::Clean, E::Write, S::Dirty, &[A::Twin, A::MapWrite, A::Record]),
        rule(S::Clean, E::Notice, S::Invalid, &[A::Unmap]),
        rule(S::Clean, E::Flush, S::Clean, &[]),
        // The previous home has passed the barrier and changes the page before this node passes it.
        rule(S::Clean, E::Change, S::Clean, &[A::Change]),
        rule(S::Clean, E::Gain, S::Home, &[]),
        //
        rule(S::Kept, E::Read, S::Kept, &[A::MapRead]),
        rule(S::Kept, E::Write, S::Dirty, &[A::MapWrite, A::Record]),
        rule(S::Kept, E::Notice, S::Invalid, &[A::Diff, A::Unmap]),
        rule(S::Kept, E::Flush, S::Clean, &[A::Diff]),
        //
        rule(S::Dirty, E::Read, S::Dirty, &[A::Wake]),
        rule(S::Dirty, E::Write, S::Dirty, &[A::Wake]),
        rule(S::Dirty, E::Notice, S::Invalid, &[A::Protect, A::Diff, A::Unmap]),
        rule(S::Dirty, E::Open, S::Kept, &[A::Protect]),
        rule(S::Dirty, E::Flush, S::Clean, &[A::Protect, A::Diff]),
        //
        rule(S::Alone, E::Read, S::Alone, &[A::MapWrite]),
        rule(S::Alone, E::Write, S::Alone, &[A::MapWrite]),
        rule(S::Alone, E::Notice, S::Alone, &[]),
        rule(S::Alone, E::Ask, S::Home, &[A::Protect, A::Answer]),
        rule(S::Alone, E::SendRide, S::Home, &[A::Protect]),
        //
        rule(S::Home, E::Read, S::Home, &[A::MapRead]),
        rule(S::Home, E::Write, S::HomeDirty, &[A::MapWrite, A::Record]),
        rule(S::Home, E::Notice, S::Home, &[]),
        rule(S::Home, E::Flush, S::Home, &[]),
        rule(S::Home, E::Ask, S::Home, &[A::Answer]),
        rule(S::Home, E::SendRide, S::Home, &[]),
        rule(S::Home, E::Change, S::Home, &[A::Change]),
        rule(S::Home, E::Settle, S::Alone, &[]),
        rule(S::Home, E::Lose, S::Clean, &[]),
        //
        rule(S::HomeDirty, E::Read, S::HomeDirty, &[A::Wake]),
        rule(S::HomeDirty, E::Write, S::HomeDirty, &[A::Wake]),
        rule(S::HomeDirty, E::Notice, S::HomeDirty, &[]),
        rule(S::HomeDirty, E::Open, S::Home, &[A::Protect]),
        rule(S::HomeDirty, E::Flush, S::HomeDirty, &[]),
        rule(S::HomeDirty, E::Ask, S::HomeDirty, &[A::Answer]),
        rule(S::HomeDirty, E::SendRide, S::HomeDirty, &[]),
        rule(S::HomeDirty, E::Change, S::HomeDirty, &[A::Change]),
        rule(S::HomeDirty, E::Settle, S::Alone, &[]),
    ]
};

/// Number of states.
pub const STATES: usize = State::HomeDirty as usize + 1;
/// Number of events.
pub const EVENTS: usize = PageEvent::Lose as usize + 1;

/// The rules by state and event.
pub static TABLE: transition::Table<State, PageEvent, PageAction, STATES, EVENTS> =
    transition::Table::new(RULES, &[State::Invalid, State::Alone], &[]);

impl State {
    /// Returns the rule for an event in this state, or `None` if the event cannot happen.
    pub fn rule(self, event: PageEvent) -> Option<&'static Rule> {
        TABLE.rule(self as usize, event as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_reached_and_every_event_has_a_rule() {
        assert_eq!(TABLE.unused(), (Vec::new(), Vec::new()));
    }
}
