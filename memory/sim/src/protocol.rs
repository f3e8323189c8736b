//! The two protocols behind one interface: the events of a node, and the messages between nodes.
//!
//! With sequential consistency a node runs both protocols. [`coherence::sequential`] keeps its
//! pages. [`coherence::scope`] then has no pages and provides locks, barriers and condition
//! variables. A real process over many machines builds these of futexes.

use coherence::content::Content;
use coherence::message::{Header, NodeId};
use coherence::ride::Ride;
use coherence::{scope, sequential};

/// The guarantee to programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// Scope consistency: a task that opens a scope sees all earlier writes in that scope.
    #[default]
    Scope,
    /// Sequential consistency: every read sees the last write.
    Sequential,
}

impl Consistency {
    /// All kinds of consistency.
    pub const ALL: [Consistency; 2] = [Consistency::Scope, Consistency::Sequential];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Consistency::Scope => "scope",
            Consistency::Sequential => "sequential",
        }
    }
}

/// An event of a node.
#[derive(Debug)]
pub(crate) enum NodeEvent {
    Scope(scope::Event),
    Sequential(sequential::Event),
}

impl NodeEvent {
    /// Returns the name in traces.
    pub fn name(&self) -> &'static str {
        match self {
            NodeEvent::Scope(scope::Event::Message(header, ..)) => header.op.name(),
            NodeEvent::Sequential(sequential::Event::Message(header, _)) => header.op.name(),
            NodeEvent::Scope(scope::Event::Read(_)) => "read fault",
            NodeEvent::Sequential(sequential::Event::Read(_)) => "read fault",
            NodeEvent::Scope(scope::Event::Write(_)) => "write fault",
            NodeEvent::Sequential(sequential::Event::Write(_)) => "write fault",
            _ => "call",
        }
    }

    /// Returns true if a message arrives.
    pub fn is_message(&self) -> bool {
        matches!(
            self,
            NodeEvent::Scope(scope::Event::Message(..))
                | NodeEvent::Sequential(sequential::Event::Message(..))
        )
    }

    /// Returns true if a task faults on a page.
    pub fn is_fault(&self) -> bool {
        use scope::Event::{Read, Write};
        use sequential::Event as E;
        matches!(
            self,
            NodeEvent::Scope(Read(_) | Write(_)) | NodeEvent::Sequential(E::Read(_) | E::Write(_))
        )
    }
}

/// A message of a protocol.
#[derive(Debug)]
pub(crate) enum Message {
    Scope(Header, Content, Vec<Ride>),
    Sequential(sequential::message::Header, sequential::message::Content),
}

impl Message {
    pub fn from(&self) -> NodeId {
        match self {
            Message::Scope(header, ..) => header.from,
            Message::Sequential(header, _) => header.from,
        }
    }

    pub fn to(&self) -> NodeId {
        match self {
            Message::Scope(header, ..) => header.to,
            Message::Sequential(header, _) => header.to,
        }
    }

    /// Returns the name of the operation.
    pub fn name(&self) -> &'static str {
        match self {
            Message::Scope(header, ..) => header.op.name(),
            Message::Sequential(header, _) => header.op.name(),
        }
    }

    /// Returns the event of its arrival. The message keeps its header but loses its content.
    pub fn take_event(&mut self) -> NodeEvent {
        match self {
            Message::Scope(header, content, rides) => {
                let content = std::mem::replace(content, Content::Empty);
                NodeEvent::Scope(scope::Event::Message(*header, content, std::mem::take(rides)))
            }
            Message::Sequential(header, content) => {
                let content = std::mem::take(content);
                NodeEvent::Sequential(sequential::Event::Message(*header, content))
            }
        }
    }
}

/// A message in flight.
#[derive(Debug)]
pub(crate) struct Packet {
    pub message: Message,
    /// The bytes of the body, if the program has contents.
    pub body: Vec<u8>,
    /// Size of header and body in bytes.
    pub bytes: usize,
    /// The number of the message in the trace.
    pub number: u64,
}
