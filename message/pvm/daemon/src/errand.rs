//! Requests: their senders, and the requests between daemons. A request that concerns one host
//! is an [`Errand`] for it, be it this host or another. Each errand gets one reply.

use pvm::tid::Tid;
use pvm::wire::{Answer, Parcel, Spawn};
use serde::{Deserialize, Serialize};

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

/// A request to start tasks on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The spawner's request.
    pub spawn: Spawn,
    /// Working directory, relative to the host's own; empty for that one.
    pub directory: String,
    /// The parent: a tid, or an error code.
    pub parent: i32,
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

/// A pending request of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Asker {
    /// The task that sent the request.
    pub tid: Tid,
    /// The task's number for the request.
    pub id: u32,
}
