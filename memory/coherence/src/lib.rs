//! Protocols that keep the copies of pages on several nodes consistent: pure, sans I/O.
//!
//! A node's part of a protocol is a state machine: [`scope::Node::step`] and
//! [`sequential::Node::step`] take an event (a task faulted, a task wants a lock, a message
//! came) and append what is to be done to a list of actions. It has no clock, no thread and makes
//! no system call; who drives it does: the crate `dsm` over real memory and a real network, the
//! simulator in virtual time, and the model checker in `tests/`.
//!
//! [`scope`] is home-based scope consistency, for programs with locks and barriers;
//! [`sequential`] is sequential consistency, for all others. [`message`]
//! is what nodes say to each other in the former, [`run`] how lists of pages are written in them,
//! [`diff`] what was changed in a page, and [`record`] how a node's steps are written down.
//! [`ride`] is what a node foresees of others, and sends them unasked. [`sparse`] holds what a node
//! knows of pages; [`story`] makes random programs to check all of it with.
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
