//! The events that a node handles, and the actions that it requests from its driver.

use serde::{Deserialize, Serialize};

use super::homes::Homes;
use crate::content::Content;
use crate::message::{Header, Lock, NodeId, Page};
use crate::refusal::Refused;
use crate::ride::{self, Policy, Ride};
use crate::run::{self, Run};

/// The index of a task on its node.
pub type Task = u32;

/// An event of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Event {
    /// Shared memory grows. All nodes allocate the same pages in the same order.
    Allocate {
        /// Number of pages.
        pages: u64,
        /// The placement of their homes.
        homes: Homes,
    },
    /// A task faulted on a read.
    Read(Page),
    /// A task faulted on a write.
    Write(Page),
    /// A task acquires a lock.
    Acquire(Task, Lock),
    /// A task releases a lock.
    Release(Task, Lock),
    /// A task has reached a barrier.
    Barrier(Task),
    /// A task has reached a barrier without consistency.
    Meet(Task),
    /// A task sets a condition variable.
    Set(Task, Lock),
    /// A task resets a condition variable.
    Reset(Task, Lock),
    /// A task waits until a condition variable is set.
    Wait(Task, Lock),
    /// A message of another node arrived, with these ride records.
    Message(Header, Content, Vec<Ride>),
    /// Options change. All nodes change them between the same two barriers.
    Configure {
        /// See [`Options::migrate`].
        migrate: bool,
        /// See [`Options::alone`].
        alone: bool,
    },
}

/// An action that the driver must carry out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// Fill the page from the message that just arrived. The number is the index among the pages at
    /// the beginning of its body.
    Fill(Page, usize),
    /// Keep the body of the message that just arrived.
    Keep(Kept),
    /// Fill the page from a kept body. The number is the index among the pages at its beginning.
    FillKept(Page, Kept, usize),
    /// Discard a kept body.
    Forget(Kept),
    /// Make a twin of the page, for a later diff.
    Twin(Page),
    /// Allow tasks to read the page, and resume tasks that are stopped there.
    MapRead(Page),
    /// Allow tasks to write the page, and resume tasks that are stopped there.
    MapWrite(Page),
    /// Revoke write access.
    Protect(Page),
    /// Revoke all access. The contents are obsolete.
    Unmap(Page),
    /// Let tasks that are stopped at the page retry.
    Wake(Page),
    /// Append the diff between the page and its twin to the batch for this node, and drop the twin.
    Diff(Page, NodeId),
    /// Apply the diffs in the body of the message that just arrived.
    Change,
    /// Send a message. The pages of rides follow the requested page of the body, or precede its
    /// runs.
    Send(Header, Body, Vec<Ride>),
    /// Resume a task that waits for a lock, a barrier or a condition variable.
    Grant(Task),
    /// A task used the interface wrongly. The call had no effect.
    Misuse(Task, Misuse),
}

/// The identity of a kept message, which brought pages for use after a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Kept {
    /// The sender.
    pub from: NodeId,
    /// Number of barriers that the sender had passed.
    pub epoch: u64,
}

/// The body of a message to send.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Body {
    /// Empty.
    Empty,
    /// The bytes of this page.
    Page(Page),
    /// The batch of diffs for the receiver.
    Diffs,
    /// These runs.
    Runs(Vec<Run>),
}

impl Body {
    /// Encodes the body with its ride records. `diffs` is the batch of diffs for the receiver, and
    /// `page` appends the bytes of a page.
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

/// A wrong use of the interface by a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Misuse {
    /// The task acquires a lock that it holds or waits for.
    HasIt(Lock),
    /// The task releases a lock that it does not hold.
    HasItNot(Lock),
    /// The task reaches a barrier while it holds this lock.
    Holds(Lock),
}

/// Refuses the message with this header.
pub(super) fn refusal(header: &Header, why: &'static str) -> Refused {
    Refused::new(header.from, header.op.name(), why)
}

/// Options that all nodes must agree on, and the identity of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Options {
    /// Number of nodes.
    pub nodes: u32,
    /// Index of this node.
    pub me: NodeId,
    /// Number of tasks on this node.
    pub tasks: u32,
    /// True if the home of a page that only one node wrote moves there at the barrier (JIAJIA's
    /// HMIG).
    pub migrate: bool,
    /// True if a home writes a page without notices while no other node has a copy (JIAJIA's ADWD).
    pub alone: bool,
    /// The policy for [rides](crate::ride).
    pub rides: Policy,
    /// Maximum number of pages in a message: the requested page and rides.
    pub pages_max: u32,
}

/// Number of nodes above which a request is for fewer pages.
const FEW_NODES: u32 = 16;

impl Options {
    /// Returns the maximum number of pages of a request. Among many nodes, many read the same home
    /// at once, and all wait while a long message is sent to the first of them.
    pub(super) fn group_max(&self) -> usize {
        let most = self.pages_max as usize;
        if self.nodes > FEW_NODES { (most * 5 / 8).max(1) } else { most }
    }
}
