//! OpenSHMEM between nodes, without I/O.
//!
//! Each node has an agent, which serves the requests of PEs of other nodes on the memory of its own
//! PEs. A PE has a connection to the agent of each other node that it reaches, and the messages of
//! a connection arrive in the order in which they were sent.
//!
//! | module | topic |
//! |---|---|
//! | [`message`] | requests and replies, and the checks of their fields |
//! | [`flow`] | the order and the completion of the operations of one connection |
//! | [`card`] | the facts that all PEs exchange at the start, and the nodes that follow from them |

pub mod card;
pub mod flow;
pub mod message;
