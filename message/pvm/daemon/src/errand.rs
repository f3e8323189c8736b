//! What daemons ask of each other, and of themselves: a request that concerns a host is an
//! [`Errand`] for it, whichever host that is. Each is answered once.

use pvm::tid::Tid;
use pvm::wire::{Answer, Parcel};
use serde::{Deserialize, Serialize};

use crate::spawn::Start;

/// What a host is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Errand {
    /// To list its tasks: all, or the one with this tid.
    Tasks(Option<Tid>),
    /// To say whether this task is there.
    Status(Tid),
    /// To tell the time.
    Clock,
    /// To send this task a signal.
    Signal(Tid, i32),
    /// To say where this task is on the fabric.
    Address(Tid),
    /// To start tasks.
    Start(Start),
    /// To do what this task, a plug-in, says.
    PlugIn(Tid, i32, Parcel),
}

/// What comes of one: an answer, or an error code of PVM.
pub type Reply = Result<Answer, i32>;

/// Who wants an errand done, and how it knows the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The host.
    pub host: u16,
    /// Its number for the errand.
    pub serial: u32,
}
