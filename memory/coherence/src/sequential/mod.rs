//! Sequential consistency: every read sees the last write, wherever it was.
//!
//! A page is written by one node while no other has a copy, or read by any number. Its owner
//! (the page manager of Kokaji et al., *Sharing address spaces using distributed shared
//! memory*) is who wrote it last. Who wants a page asks whom it knows to have been its owner;
//! that node knows who came after it, and passes the request on (Li, Hudak, *Memory coherence
//! in shared virtual memory systems*, 1989: dynamic distributed managers). Who asks to write
//! becomes the owner: from the time of its request on all who passed that on send it later
//! ones, which wait there in turn; so those who wait for a page stand in line, spread over the
//! nodes, each knowing who is next (Naimi, Trehel, Arnold, 1996). The paper tells who asks in the
//! middle of a transition to try again; here it waits, has to ask only once, and nobody is
//! passed over for ever.
//!
//! The owner knows who has copies. When the page moves, its old owner tells them, and they
//! answer to the new one, which may write when all have. As the owner that gave the copy tells
//! it to go, over the same connection, a copy never comes after word that it is void.
//!
//! [`page`] has the states of a page, [`message`] the messages. A driver uses [`node`], with the
//! events and actions of [`event`] and the messages of [`frame`]. `ahead` selects the pages that
//! move along with others, `migratory` those that move with ownership at a read.
//!
//! # What a driver owes, besides what the [crate] says
//! - **Actions are carried out in their order, each before the next.** A page's bytes are read
//!   for a message when its turn comes: after `Protect`, which must have stopped all writers
//!   when it returns, and before `Unmap`.
//! - `MapRead` and `MapWrite` allow what they say and wake who is stopped at the page. A task
//!   that still cannot go on makes a new fault: what was asked for may have gone again, or
//!   suffices for reading only. Faults may come late, twice, or for what is allowed by now.
//! - Pages that came together are filled one after the other and then allowed in ascending order:
//!   what is next to each other in the list and in memory may be done at once.
//! - At first nothing is mapped, not even on the owner's node, and pages hold zeros but where
//!   [`Event::Loaded`] says otherwise: what no task has used is sent as zeros.
//! - `Hold(page)` is answered by [`Event::Touched`], whether the page is still here or not: when
//!   all tasks that were woken for the page have gone on, or some microseconds after they were;
//!   at once, if that is long ago. Without the answer who waits for the page would wait for
//!   ever; answered too early, nodes could take a page from each other for ever before anybody
//!   has used it.
//! - When a node is lost, each other is told by [`Event::Lost`] after all its messages. Then the
//!   program has to end; `Gone` names pages whose tasks wait in vain, and nothing else hangs.
//! - Of pages that are read all over (a file's text) say so when they are allocated.

//!
//! # Pages that begin anew
//! Where memory is unmapped and mapped again, in the middle of pages that there are, all nodes
//! forget what they have of them, and one owns what stands there then (zeros):
//! 1. Every node keeps its tasks from the pages (no fault at them is told any more) and is told
//!    [`Event::Close`]. It is finished when [`Node::is_quiet`] says so, which then remains.
//! 2. When all are, no message about the pages is on its way. Every node drops what it has of
//!    them, and is told [`Event::Renew`].
//! 3. When all are, [`Event::Open`], and tasks may go there.

mod ahead;
mod copies;
pub mod event;
pub mod frame;
pub mod message;
mod migratory;
pub mod node;
pub mod nodes;
pub mod page;
pub mod statistics;
mod table;

pub use event::{Action, Event, MIGRATORY_MAX, Options, Refused};
pub use node::Node;
