//! What a node is told, and what it wants done.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::message::{Body, Content, Header, Op};
use crate::message::{NodeId, Page};
use crate::ride::Policy;
use crate::run::Run;

/// What happens to a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Event {
    /// There are more pages. All nodes are told the same, in the same order, before anybody
    /// asks for one of them.
    Allocate {
        /// So many.
        pages: u64,
        /// Whose they are at first.
        owner: NodeId,
        /// All nodes have the same there already (a file's text), and may read it.
        everywhere: bool,
    },
    /// These pages of ours hold something that no task has written, such as a program's image:
    /// before anybody asks for one of them. Others hold zeros at first.
    Loaded(Range<Page>),
    /// These pages will begin anew: nothing of them is fetched ahead any more. See
    /// [Pages that begin anew](super#pages-that-begin-anew).
    Close(Range<Page>),
    /// They begin anew, as after [`Allocate`](Self::Allocate).
    Renew {
        /// Which.
        pages: Range<Page>,
        /// Whose they are at first.
        owner: NodeId,
        /// All nodes have the same there already.
        everywhere: bool,
    },
    /// All nodes have been told that they begin anew.
    Open(Range<Page>),
    /// A task cannot read a page.
    Read(Page),
    /// A task cannot write a page.
    Write(Page),
    /// The tasks that were let go on with the page have used it, or had time to. Only after
    /// [`Action::Hold`].
    Touched(Page),
    /// Another node says something.
    Message(Header, Content),
    /// A node is lost; no message of it will come any more.
    Lost(NodeId),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// Fill the page with one of the pages that came with the message: that of this
    /// [place](super::message::Pages::get).
    Fill(Page, usize),
    /// Tasks may read it, and go on that could not.
    MapRead(Page),
    /// Tasks may write it, and go on that could not.
    MapWrite(Page),
    /// Tasks may only read it.
    Protect(Page),
    /// Tasks may do nothing with it. What stands there is of no use any more.
    Unmap(Page),
    /// Tasks that could not go on with the page try again.
    Wake(Page),
    /// Others wait for the page, which tasks here were let go on with: say [`Event::Touched`]
    /// when those have used it, or had time to. It may be long ago.
    Hold(Page),
    /// Say this to another node.
    Send(Header, Body),
    /// The node is lost, and these pages with it, so far as we know: the program has to end.
    Lost(NodeId, Vec<Run>),
    /// Tasks that could not go on with the page never will, since a node is lost.
    Gone(Page),
}

/// What drivers say for [`Options::migratory`].
pub const MIGRATORY_MAX: u8 = 16;

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

/// What all nodes must agree on, and which this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Options {
    /// How many nodes: at most [`NODES_MAX`](super::nodes::NODES_MAX).
    pub nodes: u32,
    /// Which is this.
    pub me: NodeId,
    /// Pages that one message brings, at most: the one that was asked for, and rides; at most
    /// [`PAGES_MAX`](super::message::PAGES_MAX).
    pub pages_max: u32,
    /// Copies of others' pages that are kept, at most (but for those that tasks are just let go
    /// on with); older ones are dropped first.
    pub copies_max: u64,
    /// Who says which pages will be wanted next.
    pub rides: Policy,
    /// A page that nodes read and then write, one after the other, goes so often at most as a
    /// whole to who asks for a copy, before it is looked again whether that is so; 0: never.
    pub migratory: u8,
    /// A page that a task here could not use less than that ago goes along with no other; after
    /// that it is taken to have been used. In the unit of the driver's clock: some tens of
    /// microseconds.
    pub rest: u64,
}
