//! What happens to a daemon, and what it then does: all that [`Daemon`](crate::daemon::Daemon)
//! has to do with the world.

use pvm::slots::Count;
use pvm::tid::Tid;
use pvm::wire::{Frame, Welcome};
use serde::{Deserialize, Serialize};

use crate::errand::{Errand, Reply};
use crate::groups::{Closing, SlotChange};
use crate::invitation::{Acceptance, Invitation};
use crate::load::Load;
use crate::machine::{Change, Machine};
use crate::order;
use crate::program::NotStarted;
use crate::spawn::Program;
use crate::start::{Recipe, Started};
use crate::tasks::Link;

/// The time of day, since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Seconds.
    pub seconds: i64,
    /// Microseconds.
    pub microseconds: i32,
}

/// What a program leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Its wait status.
    pub status: i32,
    /// The time that it has used itself: seconds and microseconds.
    pub user: (i32, i32),
    /// The same of the system's for it.
    pub system: (i32, i32),
}

/// What happens.
#[derive(Debug)]
pub enum Event {
    /// A frame has come from the process with this PID.
    Frame(Link, u32, Frame),
    /// The connection has ended, or was unworthy.
    Closed(Link),
    /// A program was started as this task, with this PID, or was not.
    TaskStarted(Tid, Result<u32, NotStarted>),
    /// This task's program has written something.
    Output(Tid, Vec<u8>),
    /// It can write no more.
    OutputEnd(Tid),
    /// This task's process has ended.
    Ended(Tid),
    /// So has the program that the daemon had started for it, in this way.
    Reaped(Tid, Usage),
    /// A host has sent this.
    Peer(u16, PeerLetter),
    /// A host has sent a message for a task of ours.
    Load(u16, Load),
    /// The connection to a host is lost.
    PeerLost(u16),
    /// A group's slot was closed ([`SlotChange::Close`]).
    Counted(Closing, Count),
    /// A part of the time is over after which a silent host is lost: one of
    /// `hosts::TICKS`.
    Tick,
    /// Tasks can connect.
    Begin,
    /// The user wants an end: of the virtual machine, or of a guest alone.
    Terminate,
    /// The fabric is open: our address there; or why it is not.
    Fabric(Result<Vec<u8>, String>),
    /// A daemon has been started on another host, or has not.
    Started(Started),
    /// A launcher has started daemons on other hosts, numbered from 2: what they say.
    Launched(Vec<Acceptance>),
}

/// What is to be done, in this order.
#[derive(Debug)]
pub enum Action {
    /// Tell who wants to enroll that it is a task, or why not.
    Welcome(Link, Result<Box<Welcome>, i32>),
    /// Put this into the task's receive buffer.
    Deliver(Tid, Load),
    /// Send this to the host of the task that it goes to.
    PassOn(Tid, Load),
    /// Give back what was lent with it.
    Drop(Load),
    /// Nothing more is delivered to the task.
    Forget(Tid),
    /// Close the connection.
    Close(Link),
    /// Start a program.
    StartTask(Box<Program>),
    /// Send a task's process a signal.
    Signal(Tid, i32),
    /// Send this to a host.
    Send(u16, Box<PeerLetter>),
    /// Change a group's slot in this host's window.
    Slot(u16, SlotChange),
    /// Open the fabric, as this host, with this secret.
    OpenFabric(u16, [u8; 32]),
    /// Start a daemon on another host, and invite it.
    Start(Box<(Recipe, Invitation)>),
    /// Have this task start daemons on other hosts, and invite them when they call. Its answer
    /// will have the wait ID.
    StartBy(Tid, i32, Vec<(Recipe, Invitation)>),
    /// The task does not start this host's daemon; it can only have called already.
    GiveUp(u16),
    /// Connect to this host, which is found there.
    Connect(u16, Vec<u8>),
    /// Be done with this host.
    Disconnect(u16),
    /// Write a line into the log.
    Log(String),
    /// Write a line of a task's output into the log.
    LogOutput(String),
    /// End, with all tasks but one: the virtual machine is halted, or goes on without this
    /// host.
    Halt(Option<Tid>),
}

/// What daemons say to each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum PeerLetter {
    /// Of the total order of changes.
    Order(order::Letter<Change, Machine>),
    /// To do something, and by which number the reply is known.
    Errand(u32, Errand),
    /// What came of it.
    Reply(u32, Reply),
    /// The sender lives.
    Alive,
    /// The sender has joined, and knows the virtual machine.
    Ready,
    /// The virtual machine ends.
    Halt,
    /// This task has not taken so much of what came for it that nobody should send more to it.
    Full(Tid),
    /// It has.
    Room(Tid),
}
