//! The events that a node handles, and the actions that it requests from its driver.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::message::{Body, Content, Header};
use crate::message::{NodeId, Page};
use crate::refusal::Refused;
use crate::ride::Policy;
use crate::run::Run;

/// An event of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Event {
    /// Memory grows. All nodes allocate the same pages in the same order, before any node requests
    /// one of them.
    Allocate {
        /// Number of pages.
        pages: u64,
        /// The initial owner.
        owner: NodeId,
        /// True if all nodes have the same contents already, such as a file's text, and may read
        /// them.
        everywhere: bool,
    },
    /// These pages, which this node owns, hold data that no task has written, such as a program's
    /// image. Report this before any node requests them. All other pages hold zeros initially.
    Loaded(Range<Page>),
    /// A reset of these pages begins: nothing of them is prefetched any more. See [Reset of
    /// pages](super#reset-of-pages).
    Close(Range<Page>),
    /// These pages are reset to the state after [`Allocate`](Self::Allocate).
    Renew {
        /// The pages.
        pages: Range<Page>,
        /// The initial owner.
        owner: NodeId,
        /// True if all nodes have the same contents already.
        everywhere: bool,
    },
    /// All nodes have reset these pages.
    Open(Range<Page>),
    /// A task faulted on a read.
    Read(Page),
    /// A task faulted on a write.
    Write(Page),
    /// The tasks that were resumed at the page have used it, or had time to. Sent only after
    /// [`Action::Hold`].
    Touched(Page),
    /// A message of another node arrived.
    Message(Header, Content),
    /// A node is lost. No message of it will arrive any more.
    Lost(NodeId),
}

/// An action that the driver must carry out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// Fill the page with the page of this [index](super::message::Pages::get) in the message that
    /// just arrived.
    Fill(Page, usize),
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
    /// Other nodes wait for the page, at which tasks here were resumed. Report [`Event::Touched`]
    /// when these have used it or had time to. They may have been resumed long ago.
    Hold(Page),
    /// Send a message to another node.
    Send(Header, Body),
    /// A node is lost. These pages are lost with it, as far as this node knows. The program must
    /// end.
    Lost(NodeId, Vec<Run>),
    /// Tasks that are stopped at the page will never resume, because a node is lost.
    Gone(Page),
}

/// The value of [`Options::migratory`] that drivers use.
pub const MIGRATORY_MAX: u8 = 16;

/// Refuses the message with this header.
pub(super) fn refusal(header: &Header, why: &'static str) -> Refused {
    Refused::new(header.from, header.op.name(), why).with("page", header.page)
}

/// Options that all nodes must agree on, and the identity of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Options {
    /// Number of nodes: at most [`NODES_MAX`](super::nodes::NODES_MAX).
    pub nodes: u32,
    /// Index of this node.
    pub me: NodeId,
    /// Maximum number of pages in a message, the requested page and prefetched ones. At most
    /// [`PAGES_MAX`](super::message::PAGES_MAX).
    pub pages_max: u32,
    /// Maximum number of copies of other nodes' pages. The oldest are evicted first. Copies that
    /// tasks were just resumed with are kept beyond the limit.
    pub copies_max: u64,
    /// The policy that predicts pages to prefetch.
    pub rides: Policy,
    /// Maximum number of times that ownership of a migratory page moves on a read before a copy is
    /// sent as a test. 0 disables this optimization.
    pub migratory: u8,
    /// Minimum time after the last fault on a page before the page may be sent as a prefetch. After
    /// this time it counts as used. In the unit of the driver's clock: some tens of microseconds.
    pub rest: u64,
}
