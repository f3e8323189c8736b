//! The states of a page on one node: the transition for each event, and its actions.
//!
//! [`TABLE`] is the complete [transition table](crate::transition). [`Node`](super::Node) looks
//! transitions up in it.
//!
//! `None`, `ReadOnly`, `ReadOwner` and `ReadWrite` are the paper's states. A node is the page's
//! owner (the paper's page manager) in `ReadOwner`, `ReadWrite`, `Gathering` and `PrefetchedOwner`.

use serde::{Deserialize, Serialize};

use crate::transition;

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
    PrefetchingRead,
    /// No copy; requested as a prefetch along with a page that is requested for writing.
    PrefetchingWrite,
    /// A prefetched copy that no task has used yet.
    Prefetched,
    /// The owner of a prefetched page that no task has used yet. No other node has a copy.
    PrefetchedOwner,
}

/// An event that concerns a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PageEvent {
    /// A task faulted on a read.
    Read,
    /// A task faulted on a write.
    Write,
    /// A task faulted on a write, and no other node has a copy.
    Claim,
    /// The page is requested as a prefetch along with a page that is requested for reading.
    PrefetchRead,
    /// The page is requested as a prefetch along with a page that is requested for writing.
    PrefetchWrite,
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
    NotSent,
    /// Another node requests read access.
    AskRead,
    /// Another node requests write access.
    AskWrite,
    /// Another node requests any access to a page that no task has used.
    AskNew,
    /// A copy is sent as a prefetch.
    SendRead,
    /// The page and its ownership are sent as a prefetch.
    SendWrite,
    /// A page that no task has used is sent as a prefetch, with its ownership.
    SendNew,
    /// An invalidation: another node will write the page.
    Invalidate,
    /// The copy is evicted.
    Drop,
    /// The home declined the request: see [`Node::declined`](super::Node::declined).
    Declined,
}

/// An action of a rule. A rule's actions are carried out in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PageAction {
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
        rule(S::None, E::Read, S::Reading, &[A::Ask]),
        rule(S::None, E::Write, S::Writing, &[A::Ask]),
        rule(S::None, E::PrefetchRead, S::PrefetchingRead, &[]),
        rule(S::None, E::PrefetchWrite, S::PrefetchingWrite, &[]),
        rule(S::None, E::AskRead, S::None, &[A::Forward]),
        rule(S::None, E::AskWrite, S::None, &[A::Forward]),
        // The copy was evicted here, and the owner does not know it.
        rule(S::None, E::Invalidate, S::None, &[A::Acknowledge]),
        //
        rule(S::ReadOnly, E::Read, S::ReadOnly, &[A::MapRead]),
        rule(S::ReadOnly, E::Write, S::Upgrading, &[A::Ask]),
        rule(S::ReadOnly, E::AskRead, S::ReadOnly, &[A::Forward]),
        rule(S::ReadOnly, E::AskWrite, S::ReadOnly, &[A::Forward]),
        rule(S::ReadOnly, E::Invalidate, S::None, &[A::Unmap, A::Acknowledge]),
        rule(S::ReadOnly, E::Drop, S::None, &[A::Unmap]),
        //
        rule(S::ReadOwner, E::Read, S::ReadOwner, &[A::MapRead]),
        rule(S::ReadOwner, E::Write, S::Gathering, &[A::Invalidate]),
        rule(S::ReadOwner, E::Claim, S::ReadWrite, &[A::MapWrite]),
        rule(S::ReadOwner, E::AskRead, S::ReadOwner, &[A::GrantRead]),
        rule(S::ReadOwner, E::AskWrite, S::None, &[A::GrantWrite, A::Unmap]),
        rule(S::ReadOwner, E::SendRead, S::ReadOwner, &[]),
        rule(S::ReadOwner, E::SendWrite, S::None, &[]),
        //
        rule(S::ReadWrite, E::Read, S::ReadWrite, &[A::MapWrite]),
        rule(S::ReadWrite, E::Write, S::ReadWrite, &[A::MapWrite]),
        rule(S::ReadWrite, E::AskRead, S::ReadOwner, &[A::Protect, A::GrantRead]),
        rule(S::ReadWrite, E::AskWrite, S::None, &[A::Protect, A::GrantWrite, A::Unmap]),
        rule(S::ReadWrite, E::AskNew, S::None, &[A::GrantNew]),
        rule(S::ReadWrite, E::SendRead, S::ReadOwner, &[A::Protect]),
        rule(S::ReadWrite, E::SendWrite, S::None, &[A::Protect]),
        rule(S::ReadWrite, E::SendNew, S::None, &[]),
        //
        rule(S::Reading, E::Read, S::Reading, &[]),
        rule(S::Reading, E::Write, S::Reading, &[]),
        rule(S::Reading, E::Copy, S::ReadOnly, &[A::Fill, A::MapRead]),
        rule(S::Reading, E::OwnAlone, S::ReadWrite, &[A::Fill, A::MapWrite]),
        rule(S::Reading, E::AskRead, S::Reading, &[A::Forward]),
        rule(S::Reading, E::AskWrite, S::Reading, &[A::Forward]),
        rule(S::Reading, E::Invalidate, S::Reading, &[A::Acknowledge]),
        rule(S::Reading, E::Declined, S::None, &[]),
        //
        rule(S::Writing, E::Read, S::Writing, &[]),
        rule(S::Writing, E::Write, S::Writing, &[]),
        rule(S::Writing, E::Own, S::Gathering, &[A::Fill]),
        rule(S::Writing, E::OwnAlone, S::ReadWrite, &[A::Fill, A::MapWrite]),
        rule(S::Writing, E::AskRead, S::Writing, &[A::Queue]),
        rule(S::Writing, E::AskWrite, S::Writing, &[A::Queue]),
        rule(S::Writing, E::Invalidate, S::Writing, &[A::Acknowledge]),
        rule(S::Writing, E::Declined, S::None, &[]),
        //
        rule(S::Upgrading, E::Read, S::Upgrading, &[A::MapRead]),
        rule(S::Upgrading, E::Write, S::Upgrading, &[]),
        rule(S::Upgrading, E::Own, S::Gathering, &[]),
        rule(S::Upgrading, E::OwnAlone, S::ReadWrite, &[A::MapWrite]),
        rule(S::Upgrading, E::AskRead, S::Upgrading, &[A::Queue]),
        rule(S::Upgrading, E::AskWrite, S::Upgrading, &[A::Queue]),
        rule(S::Upgrading, E::Invalidate, S::Writing, &[A::Unmap, A::Acknowledge]),
        // Remaining copies of other nodes equal this one, and no node can write.
        rule(S::Gathering, E::Read, S::Gathering, &[A::MapRead]),
        rule(S::Gathering, E::Write, S::Gathering, &[]),
        rule(S::Gathering, E::Gathered, S::ReadWrite, &[A::MapWrite]),
        rule(S::Gathering, E::AskRead, S::Gathering, &[A::Queue]),
        rule(S::Gathering, E::AskWrite, S::Gathering, &[A::Queue]),
        //
        rule(S::PrefetchingRead, E::Read, S::PrefetchingRead, &[]),
        rule(S::PrefetchingRead, E::Write, S::PrefetchingRead, &[]),
        rule(S::PrefetchingRead, E::Ride, S::ReadOnly, &[A::Fill, A::MapRead]),
        rule(S::PrefetchingRead, E::Mark, S::Prefetched, &[A::Fill]),
        rule(S::PrefetchingRead, E::RideOwn, S::ReadWrite, &[A::Fill, A::MapWrite]),
        rule(S::PrefetchingRead, E::MarkOwn, S::PrefetchedOwner, &[A::Fill]),
        rule(S::PrefetchingRead, E::NotSent, S::None, &[A::Wake]),
        rule(S::PrefetchingRead, E::AskRead, S::PrefetchingRead, &[A::Forward]),
        rule(S::PrefetchingRead, E::AskWrite, S::PrefetchingRead, &[A::Forward]),
        rule(S::PrefetchingRead, E::Invalidate, S::PrefetchingRead, &[A::Acknowledge]),
        //
        rule(S::PrefetchingWrite, E::Read, S::PrefetchingWrite, &[]),
        rule(S::PrefetchingWrite, E::Write, S::PrefetchingWrite, &[]),
        rule(S::PrefetchingWrite, E::Ride, S::ReadWrite, &[A::Fill, A::MapWrite]),
        rule(S::PrefetchingWrite, E::Mark, S::PrefetchedOwner, &[A::Fill]),
        rule(S::PrefetchingWrite, E::NotSent, S::None, &[A::Wake]),
        rule(S::PrefetchingWrite, E::AskRead, S::PrefetchingWrite, &[A::Forward]),
        rule(S::PrefetchingWrite, E::AskWrite, S::PrefetchingWrite, &[A::Forward]),
        rule(S::PrefetchingWrite, E::Invalidate, S::PrefetchingWrite, &[A::Acknowledge]),
        //
        rule(S::Prefetched, E::Read, S::ReadOnly, &[A::MapRead]),
        rule(S::Prefetched, E::Write, S::Upgrading, &[A::Ask]),
        rule(S::Prefetched, E::AskRead, S::Prefetched, &[A::Forward]),
        rule(S::Prefetched, E::AskWrite, S::Prefetched, &[A::Forward]),
        rule(S::Prefetched, E::Invalidate, S::None, &[A::Unmap, A::Acknowledge]),
        rule(S::Prefetched, E::Drop, S::None, &[A::Unmap]),
        //
        rule(S::PrefetchedOwner, E::Read, S::ReadWrite, &[A::MapWrite]),
        rule(S::PrefetchedOwner, E::Write, S::ReadWrite, &[A::MapWrite]),
        rule(S::PrefetchedOwner, E::AskRead, S::ReadOwner, &[A::GrantRead]),
        rule(S::PrefetchedOwner, E::AskWrite, S::None, &[A::GrantWrite, A::Unmap]),
        rule(S::PrefetchedOwner, E::SendRead, S::ReadOwner, &[]),
        rule(S::PrefetchedOwner, E::SendWrite, S::None, &[]),
    ]
};

impl State {
    /// Returns true if this node owns the page and can grant requests at once.
    pub fn owns(self) -> bool {
        matches!(self, State::ReadOwner | State::ReadWrite | State::PrefetchedOwner)
    }

    /// Returns true if this node has a copy of a page that another node owns.
    pub fn is_copy(self) -> bool {
        matches!(self, State::ReadOnly | State::Upgrading | State::Prefetched)
    }

    /// Returns true if the bytes here are the current contents of the page.
    pub fn has_bytes(self) -> bool {
        self.owns() || self.is_copy() || self == State::Gathering
    }

    /// Returns true if a request or prefetch of the page is in flight.
    pub fn waits(self) -> bool {
        use State::{PrefetchingRead, PrefetchingWrite, Reading, Upgrading, Writing};
        matches!(self, Reading | Writing | Upgrading | PrefetchingRead | PrefetchingWrite)
    }
}

/// Number of states.
pub const STATES: usize = State::PrefetchedOwner as usize + 1;
/// Number of events.
pub const EVENTS: usize = PageEvent::Declined as usize + 1;

/// The rules by state and event.
pub static TABLE: transition::Table<State, PageEvent, PageAction, STATES, EVENTS> =
    transition::Table::new(
        RULES,
        &[State::None, State::ReadWrite],
        &[PageAction::Forward, PageAction::Queue],
    );

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
