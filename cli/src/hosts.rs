//! Nodes of a job on this host and others: processes that are told what they are to do by whoever
//! starts them, and of each other.

pub mod start;
mod way;
