//! The agent's state of tasks: those of its node, and tasks of any node that have ended.

use coherence::scope::event::Task;

use crate::mailbox;

/// A task of this node.
#[derive(Default)]
pub struct TaskState {
    /// Messages that it has not received yet.
    pub mailbox: mailbox::Mailbox,
    /// The message that it received last, until its next request.
    pub message: Vec<u8>,
    /// It waits until all nodes are connected.
    pub joins: bool,
    /// It waits for all tasks to leave.
    pub leaves: bool,
    /// It has left.
    pub has_left: bool,
    /// It waits at a barrier.
    pub is_at_barrier: bool,
    /// The number of barriers that it has reached.
    pub barriers: u64,
    /// The number of its allocations.
    pub allocations: usize,
}

/// A message that a task wants to send. The task waits until it is sent.
pub struct PendingSend {
    /// The sender.
    pub task: Task,
    /// The rank of the receiver.
    pub to: u32,
    /// The tag of the message.
    pub tag: i32,
    /// The address of the text, in the sender's private memory.
    pub at: usize,
    /// The length of the text.
    pub bytes: usize,
}

/// A task that has ended without having left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedTask {
    /// Its rank.
    pub task: u32,
    /// The number of barriers that it had reached.
    pub barriers: u64,
}

/// The task that drives the agent until its request is answered.
pub struct DrivingTask {
    /// Its index in the node.
    pub task: u32,
    /// It sleeps without the agent's lock: the thread that answers it has to wake it.
    pub sleeps: bool,
    /// It has left events to the agent's thread: it may be in a signal handler.
    pub dozes: bool,
}
