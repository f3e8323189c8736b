//! Sequential consistency: every read returns the last write, on whatever node it was.
//!
//! A page is written by one node while no other node has a copy, or read by any number of nodes.
//! Its owner is the node that wrote it last (the page manager of Kokaji et al., *Sharing address
//! spaces using distributed shared memory*).
//!
//! A node requests a page from its last known owner. That node knows its successor and forwards the
//! request (Li, Hudak, *Memory coherence in shared virtual memory systems*, 1989: dynamic
//! distributed managers).
//!
//! A node that requests write access becomes the next owner. All nodes that forward its request
//! send later requests to it, where they wait in turn. So the waiting nodes form a distributed
//! queue, in which each node knows its successor (Naimi, Trehel, Arnold, 1996). In the paper, a
//! request during a transition is rejected and must be repeated. Here it waits: every request is
//! sent once, and no node starves.
//!
//! The owner knows the nodes that have copies. When the page moves, the old owner sends them
//! invalidations, and they acknowledge to the new owner. It may write when all have acknowledged.
//! The invalidation uses the same connection as the copy before it, so a copy never arrives after
//! its invalidation.
//!
//! [`page`] has the states of a page, [`message`] the messages. A driver uses [`node`], with the
//! events and actions of [`event`] and the messages of [`frame`]. `step` handles events, and
//! `pages` applies the rules of pages. `ahead` selects the pages that are prefetched along with
//! others. `decline` handles requests that a driver refuses. `evict` limits the number of copies.
//! `migratory` detects pages whose ownership should move on a read.
//!
//! # What a driver must guarantee, besides the rules of the [crate]
//! - **Actions are carried out in order, each before the next.** The bytes of a page are read when
//!   its `Send` is carried out. That is after `Protect`, which must have stopped all writers when
//!   it returns, and before `Unmap`.
//! - `MapRead` and `MapWrite` grant access and resume tasks that are stopped at the page. A task
//!   that still lacks access faults again: the page may have left, or the access may be read-only.
//!   Faults may come late, twice, or for access that is granted by now.
//! - Pages that arrived together are filled first and then mapped in ascending order. Neighbours in
//!   the list that are neighbours in memory may be handled together.
//! - Initially no page is mapped, not even on its owner. Pages hold zeros unless [`Event::Loaded`]
//!   names them: a page that no task has used is sent as zeros.
//! - The driver answers `Hold(page)` with [`Event::Touched`], even if the page has left. It answers
//!   when all tasks that were resumed for the page have continued, or some microseconds after they
//!   were resumed. If the page was mapped long ago, it answers at once. Without the answer the next
//!   node waits forever. If the answer comes too early, nodes can take a page from each other
//!   forever, without using it.
//! - When a node is lost, every other node gets [`Event::Lost`] after all messages of the lost
//!   node. The program must then end. `Gone` names pages whose tasks wait in vain; no other task
//!   hangs.
//! - Pages that all nodes read, such as the text of a program, are allocated with `everywhere`.
//!
//! # Reset of pages
//! If a program unmaps memory and maps it again, all nodes forget their state of these pages. One
//! node then owns the new contents (zeros):
//! 1. Every node gets [`Event::Close`]. From then on it keeps its tasks away from the pages and
//!    reports no fault there. The step is complete when [`Node::is_quiet`] returns true, which then
//!    remains true.
//! 2. When the step is complete on all nodes, no message about the pages is in flight. Every node
//!    drops its copies and gets [`Event::Renew`].
//! 3. When all nodes have done so, they get [`Event::Open`], and tasks may access the pages.

mod ahead;
mod copies;
mod decline;
pub mod event;
mod evict;
pub mod frame;
pub mod message;
mod migratory;
pub mod node;
pub mod nodes;
pub mod page;
mod pages;
mod prefetches;
pub mod statistics;
mod step;
mod table;

pub use event::{Action, Event, MIGRATORY_MAX, Options};
pub use node::Node;
