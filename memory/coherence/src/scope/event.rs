//! What a node is told, and what it wants done.

use serde::{Deserialize, Serialize};

use super::homes::Homes;
use crate::message::{Content, Header, Lock, NodeId, Op, Page};
use crate::run::Run;

/// A task of a node: its index there.
pub type Task = u32;

/// What happens to a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Event {
    /// Shared memory grows. All nodes do the same, in the same order.
    Allocate {
        /// By so many pages.
        pages: u64,
        /// Which live there.
        homes: Homes,
    },
    /// A task cannot read a page.
    Read(Page),
    /// A task cannot write a page.
    Write(Page),
    /// A task wants a lock.
    Acquire(Task, Lock),
    /// A task gives it back.
    Release(Task, Lock),
    /// A task has reached a barrier.
    Barrier(Task),
    /// A task waits for all others, and wants no consistency.
    Meet(Task),
    /// A task sets a condition variable.
    Set(Task, Lock),
    /// A task resets it.
    Reset(Task, Lock),
    /// A task waits until it is set.
    Wait(Task, Lock),
    /// Another node says something.
    Message(Header, Content),
    /// Options change. All nodes do the same, between the same barriers.
    Configure {
        /// See [`Options::migrate`].
        migrate: bool,
        /// See [`Options::alone`].
        alone: bool,
    },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// Fill the page with the body of the message that came.
    Fill(Page),
    /// Copy the page, to see later what was written.
    Twin(Page),
    /// Tasks may read it, and go on that could not.
    MapRead(Page),
    /// Tasks may write it, and go on that could not.
    MapWrite(Page),
    /// Tasks may only read it.
    Protect(Page),
    /// Tasks may do nothing with it. The copy is of no use any more.
    Unmap(Page),
    /// Tasks that could not go on with the page try again.
    Wake(Page),
    /// Put what differs between the page and its twin with what is for this node; drop the
    /// twin.
    Diff(Page, NodeId),
    /// Change pages as the body of the message that came says.
    Change,
    /// Say this to another node.
    Send(Header, Body),
    /// The task goes on.
    Grant(Task),
    /// The task did what makes no sense, which changed nothing.
    Misuse(Task, Misuse),
}

/// A message's body.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Body {
    /// None.
    Empty,
    /// This page's bytes.
    Page(Page),
    /// What was put with what is for the node.
    Diffs,
    /// These.
    Runs(Vec<Run>),
}

/// What a task must not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Misuse {
    /// It wants a lock that it has.
    HasIt(Lock),
    /// It gives back a lock that it has not.
    HasItNot(Lock),
    /// It goes to a barrier, and holds this lock.
    Holds(Lock),
}

/// A message makes no sense: its sender is mad, or bad. Nothing is lost by forgetting it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refused {
    /// Who said it.
    pub from: NodeId,
    /// What.
    pub op: Op,
    /// What is wrong with it.
    pub why: &'static str,
}

impl Refused {
    /// The message of this header.
    pub(super) fn of(header: &Header, why: &'static str) -> Self {
        Self { from: header.from, op: header.op, why }
    }
}

/// What all nodes must agree on, and how large this one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Options {
    /// How many nodes.
    pub nodes: u32,
    /// Which is this.
    pub me: NodeId,
    /// Its tasks.
    pub tasks: u32,
    /// A page that only one node wrote moves there at the barrier (JIAJIA's HMIG).
    pub migrate: bool,
    /// A page of ours that nobody else has is written without notice (JIAJIA's ADWD).
    pub alone: bool,
}
