//! Requests between daemons. A request that concerns one host is an [`Errand`] for it, be it
//! this host or another. Each errand gets one reply.

use pvm::tid::Tid;
use pvm::wire::{Answer, Parcel};
use serde::{Deserialize, Serialize};

use crate::spawn::Start;

/// A request to one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Errand {
    /// List its tasks: all, or the one with this tid.
    Tasks(Option<Tid>),
    /// Check that this task exists.
    Status(Tid),
    /// Return the time of day.
    Clock,
    /// Send a signal to this task.
    Signal(Tid, i32),
    /// Return the fabric address of this task.
    Address(Tid),
    /// Start tasks.
    Start(Start),
    /// Process a message of this task, a plug-in.
    PlugIn(Tid, i32, Parcel),
}

/// Reply to an errand: an answer, or an error code of PVM.
pub type Reply = Result<Answer, i32>;

/// The sender of an errand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The sending host.
    pub host: u16,
    /// The sender's number for the errand.
    pub serial: u32,
}
