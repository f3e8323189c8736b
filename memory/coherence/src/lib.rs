//! Protocols that keep copies of pages on several nodes consistent. They are pure state machines
//! and perform no I/O.
//!
//! Each node runs one state machine. [`scope::Node::step`] and [`sequential::Node::step`] take an
//! event, such as a page fault, a lock request or a message. They append actions to a list. The
//! state machines have no clock, no thread and no system calls.
//!
//! A *driver* runs them. The crates `node` and `dsm` are the drivers over real memory and a real
//! network. The simulator is a driver in virtual time, and `tests/` has a model checker.
//!
//! [`scope`] is home-based scope consistency, for programs with locks and barriers. [`sequential`]
//! is sequential consistency, for all other programs.
//!
//! | module | topic |
//! |---|---|
//! | [`message`], [`content`] | the messages of scope consistency: headers and bodies |
//! | [`transition`] | the table of a page's transitions, and its diagram |
//! | [`refusal`] | messages that violate a protocol |
//! | [`run`] | the encoding of page lists |
//! | [`diff`] | the encoding of changes of a page |
//! | [`record`] | the log of a node's steps, for replay |
//! | [`ride`] | prediction of the pages that nodes will use next |
//! | [`sparse`] | the table of page states |
//! | [`random`] | random programs that test both protocols |
//!
//! # What a driver must guarantee
//! - Messages between two nodes arrive whole and in the order sent, until one of the two is lost.
//!   Messages between different pairs of nodes may arrive in any order.
//! - Actions are carried out in order. When the list is done, all of them have taken effect, except
//!   that sends may still be in progress.
//! - Each page has two views. The protocol controls access to the application's view. The other
//!   view never faults; the driver uses it to fill pages, to make twins and to compute diffs.

pub mod content;
pub mod diff;
pub mod message;
pub mod random;
pub mod record;
pub mod refusal;
pub mod ride;
pub mod run;
pub mod scope;
pub mod sequential;
pub mod sparse;
pub mod transition;
