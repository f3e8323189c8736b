//! Inputs and outputs of the daemon's state machine, [`Daemon`](crate::daemon::Daemon).

use pvm::slots::Count;
use pvm::tid::Tid;
use pvm::wire::{Frame, Welcome};
use serde::{Deserialize, Serialize};

use crate::errand::{Errand, Reply};
use crate::groups::{Closing, SlotChange};
use crate::invitation::{Acceptance, Invitation};
use crate::machine::{Change, Machine};
use crate::order;
use crate::program::{NotStarted, Program};
use crate::starting::{DaemonSpec, Started};
use crate::task_message::TaskMessage;
use crate::tasks::{Link, Usage};

/// The time of day, since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Seconds.
    pub seconds: i64,
    /// Microseconds.
    pub microseconds: i32,
}

/// An input of the state machine.
#[derive(Debug)]
pub enum Event {
    /// A frame arrived from the process with this PID.
    Frame(Link, u32, Frame),
    /// The connection ended, or was closed after a protocol violation.
    Closed(Link),
    /// A program was started as this task, with this PID, or failed to start.
    TaskStarted(Tid, Result<u32, NotStarted>),
    /// The task's program wrote output.
    Output(Tid, Vec<u8>),
    /// No process can write to the task's output any more.
    OutputEnd(Tid),
    /// The task's process ended.
    Ended(Tid),
    /// The program that the daemon had started for the task ended, with this usage.
    Reaped(Tid, Usage),
    /// A daemon message arrived from a host.
    Peer(u16, PeerMessage),
    /// A message for a task of this host arrived from another host.
    TaskMessage(u16, TaskMessage),
    /// The connection to a host is lost.
    PeerLost(u16),
    /// A group's slot was closed ([`SlotChange::Close`]), with this count.
    Counted(Closing, Count),
    /// A tick passed. A host that is silent for `hosting::TICKS` ticks counts as lost.
    Tick,
    /// Tasks can connect.
    Begin,
    /// The user ends the virtual machine, or only this host if it is a guest.
    Terminate,
    /// The fabric is open, with our address on it, or failed to open, with the reason.
    Fabric(Result<Vec<u8>, String>),
    /// A daemon was started on another host, or failed to start.
    Started(Started),
    /// A launcher started daemons on other hosts, numbered from 2. These are their answers.
    Launched(Vec<Acceptance>),
}

/// An output of the state machine. The loop executes actions in the order returned.
#[derive(Debug)]
pub enum Action {
    /// Answer a process that enrolls: it is a task now, or an error code.
    Welcome(Link, Result<Box<Welcome>, i32>),
    /// Deliver the message into the task's receive buffer.
    Deliver(Tid, TaskMessage),
    /// Send the message to the destination task's host.
    Forward(Tid, TaskMessage),
    /// Drop the message and release its exposed buffer.
    Drop(TaskMessage),
    /// Stop delivery to the task.
    Forget(Tid),
    /// Close the connection.
    Close(Link),
    /// Start a program.
    StartTask(Box<Program>),
    /// Send a task's process a signal.
    Signal(Tid, i32),
    /// Send a daemon message to a host.
    Send(u16, Box<PeerMessage>),
    /// Change a group's slot in this host's window.
    Slot(u16, SlotChange),
    /// Open the fabric as this host, with this secret.
    OpenFabric(u16, [u8; 32]),
    /// Start a daemon on another host, and invite it.
    Start(Box<(DaemonSpec, Invitation)>),
    /// Have this task, a hoster, start daemons on other hosts, and invite them when they call.
    /// The hoster's answer will carry the wait ID.
    StartBy(Tid, i32, Vec<(DaemonSpec, Invitation)>),
    /// The hoster does not start this host's daemon. The host joins only if it has already
    /// called.
    GiveUp(u16),
    /// Connect to this host at this fabric address.
    Connect(u16, Vec<u8>),
    /// Close the connection to this host.
    Disconnect(u16),
    /// Write a line into the log.
    Log(String),
    /// Write a line of a task's output into the log.
    LogOutput(String),
    /// Terminate, and end all tasks but this one. The virtual machine is halted, or has expelled
    /// this host.
    Halt(Option<Tid>),
}

/// Messages between daemons.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum PeerMessage {
    /// Message of the total order of changes.
    Order(order::Message<Change, Machine>),
    /// Request for an errand; the reply carries the same number.
    Errand(u32, Errand),
    /// Reply to an errand.
    Reply(u32, Reply),
    /// Heartbeat.
    Alive,
    /// The sender has joined, and has the state of the virtual machine.
    Ready,
    /// The virtual machine ends.
    Halt,
    /// The task is full: too many bytes wait for it, so the receiver must stop sending to it.
    Full(Tid),
    /// The task has room again.
    Room(Tid),
}
