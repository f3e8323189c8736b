//! The life of a page on one node: which state follows on which event, and what is to be done.
//!
//! [`RULES`] is all of it, as data: [`Node`](super::Node) only looks up, the diagram in the
//! documentation is written from it, and a pair that it does not name cannot happen.
//!
//! `None`, `ReadOnly`, `ReadOwner` and `ReadWrite` are the paper's states. A node is the page's
//! owner (the paper's page manager) in `ReadOwner` and `ReadWrite`, and in `Gathering` and
//! `AheadOwner`.

use serde::{Deserialize, Serialize};

/// What a node has of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// Nothing.
    None,
    /// A copy; another is the owner.
    ReadOnly,
    /// The page; others may have copies.
    ReadOwner,
    /// The page; nobody else has a copy.
    ReadWrite,
    /// Nothing; a copy is asked for.
    Reading,
    /// Nothing; the page is asked for.
    Writing,
    /// A copy; the page is asked for.
    Upgrading,
    /// The page; not all others have said yet that their copies are gone.
    Gathering,
    /// Nothing; a copy may come along with another page's.
    HopingToRead,
    /// Nothing; the page may come along with another.
    HopingToWrite,
    /// A copy that came along, and that no task has used yet.
    Ahead,
    /// The page; it came along, and no task has used it yet. Nobody else has a copy.
    AheadOwner,
}

/// What happens to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Happens {
    /// A task reads it and cannot.
    Read,
    /// A task writes it and cannot.
    Write,
    /// A task writes it and cannot, and nobody else has a copy.
    Claim,
    /// Another page is asked for to be read, and this one will be wanted, too.
    HopeToRead,
    /// Another page is asked for to be written, and this one will be wanted, too.
    HopeToWrite,
    /// The copy comes that was asked for.
    Copy,
    /// The page comes that was asked for; others still have copies.
    Own,
    /// The page comes that was asked for; nobody else has a copy.
    OwnAlone,
    /// All others' copies are gone.
    Gathered,
    /// It came along with another page.
    Ride,
    /// It came along with another page; its first use is to be noticed.
    Mark,
    /// It came along with another page, and is ours: asked to read, its owner had never used it.
    RideOwn,
    /// The same; its first use is to be noticed.
    MarkOwn,
    /// It did not come along.
    Stay,
    /// Another node asks for a copy.
    AskRead,
    /// Another node asks for the page.
    AskWrite,
    /// Another node asks for a copy or for the page, which nobody has used yet.
    AskNew,
    /// A copy goes along with another page.
    LendRead,
    /// The page goes along with another.
    LendWrite,
    /// The page, which nobody has used yet, goes along with another.
    LendNew,
    /// Another node has asked for the page and will write it.
    Invalidate,
    /// There is too little memory for copies.
    Drop,
}

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Do {
    /// Ask who was the owner last, so far as we know.
    Ask,
    /// Fill it with what came.
    Fill,
    /// Let tasks read it.
    MapRead,
    /// Let tasks write it.
    MapWrite,
    /// Let tasks only read it.
    Protect,
    /// Let tasks do nothing with it. What stands there is of no use any more.
    Unmap,
    /// Let tasks that could not go on try again.
    Wake,
    /// Give a copy to who asks.
    GrantRead,
    /// Give the page to who asks, and tell those who have copies.
    GrantWrite,
    /// Give the page, which holds zeros, to who asks.
    GrantNew,
    /// Tell those who have copies.
    Invalidate,
    /// Tell who will write the page that our copy is gone.
    Acknowledge,
    /// Tell who was the owner last, so far as we know, that somebody asks.
    Forward,
    /// Who asks waits here.
    Queue,
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
        rule(S::None, H::Read, S::Reading, &[Do::Ask]),
        rule(S::None, H::Write, S::Writing, &[Do::Ask]),
        rule(S::None, H::HopeToRead, S::HopingToRead, &[]),
        rule(S::None, H::HopeToWrite, S::HopingToWrite, &[]),
        rule(S::None, H::AskRead, S::None, &[Do::Forward]),
        rule(S::None, H::AskWrite, S::None, &[Do::Forward]),
        // Its copy was dropped, and the owner does not know.
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
        // What others still have is what we have, and nobody can write it.
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
    /// The page is ours, and what others ask for can be given at once.
    pub fn owns(self) -> bool {
        matches!(self, State::ReadOwner | State::ReadWrite | State::AheadOwner)
    }

    /// A copy of another's page is here.
    pub fn is_copy(self) -> bool {
        matches!(self, State::ReadOnly | State::Upgrading | State::Ahead)
    }

    /// What stands in the page is the page, or a copy of it.
    pub fn has_bytes(self) -> bool {
        self.owns() || self.is_copy() || self == State::Gathering
    }

    /// Something is asked for, or hoped for, that has not come yet.
    pub fn waits(self) -> bool {
        use State::{HopingToRead, HopingToWrite, Reading, Upgrading, Writing};
        matches!(self, Reading | Writing | Upgrading | HopingToRead | HopingToWrite)
    }
}

/// As many states as there are.
pub const STATES: usize = State::AheadOwner as usize + 1;
/// As many events as there are.
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

/// What the rules say, if it can happen.
pub fn rule_of(state: State, on: Happens) -> Option<Rule> {
    TABLE[state as usize][on as usize]
}

/// The rules as a state diagram in Mermaid's language. Events that change nothing and ask for
/// nothing, and requests that are only passed on or wait, are left out.
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
