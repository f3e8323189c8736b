//! PVM's daemon.
pub mod order;
