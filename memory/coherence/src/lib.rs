//! Protocols that keep the copies of pages on several nodes consistent: pure, sans I/O.
//!
//! A node's part of a protocol is a state machine: [`scope::Node::step`] and
//! [`sequential::Node::step`] take an event (a task faulted, a task requests a lock, a message
//! arrived) and append actions to a list. They have no clock and no thread, and make no system
//! call. Drivers do: the crates `node` and `dsm` over real memory and a real network, the
//! simulator in virtual time, and the model checker in `tests/`.
//!
//! [`scope`] is home-based scope consistency, for programs with locks and barriers;
//! [`sequential`] is sequential consistency, for all others. [`message`]
//! defines the messages of the former, [`run`] the encoding of page lists, [`diff`] the changes of
//! a page, and [`record`] the log of a node's steps. [`ride`] predicts the pages that other nodes
//! will use, which are sent unasked. [`sparse`] is the table of page states; [`story`] makes random
//! programs that check both protocols.
//!
//! # What a driver owes
//! - Between two nodes messages arrive whole, in the order sent, until one of the two is lost.
//!   Between different pairs any order is possible.
//! - Actions are carried out in order. All but those that send are done when the step's
//!   list is.
//! - Two views of every page: that of the application, whose access the protocol sets, and
//!   one that never faults, which fills, twins and diffs are made through.

pub mod diff;
pub mod message;
pub mod record;
pub mod ride;
pub mod run;
pub mod scope;
pub mod sequential;
pub mod sparse;
pub mod story;
