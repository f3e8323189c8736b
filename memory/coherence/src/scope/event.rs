//! What a node is told, and what it wants done.

use serde::{Deserialize, Serialize};

use super::homes::Homes;
use crate::message::{Content, Header, Lock, NodeId, Op, Page};
use crate::ride::{self, Policy, Ride};
use crate::run::{self, Run};

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
    /// Another node says something, and this of rides.
    Message(Header, Content, Vec<Ride>),
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
    /// Fill the page with one of the pages that the body of the message that came begins with:
    /// the one of this number, counted from 0.
    Fill(Page, usize),
    /// Keep the body of the message that came.
    Keep(Kept),
    /// Fill the page with one of the pages that such a body begins with: the one of this number.
    FillKept(Page, Kept, usize),
    /// Keep it no longer.
    Forget(Kept),
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
    /// Say this to another node. The pages of rides that are aboard follow the body's page, or
    /// precede its runs.
    Send(Header, Body, Vec<Ride>),
    /// The task goes on.
    Grant(Task),
    /// The task did what makes no sense, which changed nothing.
    Misuse(Task, Misuse),
}

/// A message that brought pages before the barrier after which they are of use: whose it is, and
/// which barrier's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Kept {
    /// Who sent it.
    pub from: NodeId,
    /// Barriers that this node had passed.
    pub epoch: u64,
}

/// A message's body.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Body {
    /// None.
    Empty,
    /// This page's bytes.
    Page(Page),
    /// The batch of diffs for the node.
    Diffs,
    /// These.
    Runs(Vec<Run>),
}

impl Body {
    /// As it is sent, with what is said of rides: `diffs` are what was put with what is for the
    /// node, and `page` appends a page's bytes.
    pub fn bytes(
        self,
        rides: &[Ride],
        diffs: Vec<u8>,
        mut page: impl FnMut(Page, &mut Vec<u8>),
    ) -> Vec<u8> {
        let mut bytes = diffs;
        if let Body::Page(asked) = self {
            page(asked, &mut bytes);
        }
        for ride in rides.iter().filter(|ride| ride.is_aboard()) {
            page(ride.page, &mut bytes);
        }
        if let Body::Runs(runs) = self {
            bytes.extend(run::encode(&runs));
        }
        ride::append(&mut bytes, rides);
        bytes
    }
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
    /// Which messages carry [rides](crate::ride).
    pub rides: Policy,
    /// Pages that one message carries, at most: the one that was asked for, and rides.
    pub pages_max: u32,
}
