//! Which protocol keeps pages consistent: what nodes are told, and what they say, in either.
//!
//! With sequential consistency a node has both: its pages are kept by
//! [`coherence::sequential`], and locks, barriers and condition variables, which one process over
//! many machines makes of futexes, by [`coherence::scope`], that then has no pages.

use coherence::content::Content;
use coherence::message::{Header, NodeId};
use coherence::ride::Ride;
use coherence::{scope, sequential};

/// What programs may rely on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// What was written in a scope is seen in it.
    #[default]
    Scope,
    /// Every read sees the last write.
    Sequential,
}

impl Consistency {
    /// All of them.
    pub const ALL: [Consistency; 2] = [Consistency::Scope, Consistency::Sequential];

    /// As the command line calls it.
    pub fn name(self) -> &'static str {
        match self {
            Consistency::Scope => "scope",
            Consistency::Sequential => "sequential",
        }
    }
}

/// What a node is told.
#[derive(Debug)]
pub(crate) enum Told {
    Scope(scope::Event),
    Sequential(sequential::Event),
}

impl Told {
    /// As traces call it.
    pub fn name(&self) -> &'static str {
        match self {
            Told::Scope(scope::Event::Message(header, ..)) => header.op.name(),
            Told::Sequential(sequential::Event::Message(header, _)) => header.op.name(),
            Told::Scope(scope::Event::Read(_)) => "read fault",
            Told::Sequential(sequential::Event::Read(_)) => "read fault",
            Told::Scope(scope::Event::Write(_)) => "write fault",
            Told::Sequential(sequential::Event::Write(_)) => "write fault",
            _ => "call",
        }
    }

    pub fn is_message(&self) -> bool {
        matches!(
            self,
            Told::Scope(scope::Event::Message(..))
                | Told::Sequential(sequential::Event::Message(..))
        )
    }

    pub fn is_fault(&self) -> bool {
        use scope::Event::{Read, Write};
        use sequential::Event as E;
        matches!(self, Told::Scope(Read(_) | Write(_)) | Told::Sequential(E::Read(_) | E::Write(_)))
    }
}

/// What a node says to another.
#[derive(Debug)]
pub(crate) enum Letter {
    Scope(Header, Content, Vec<Ride>),
    Sequential(sequential::message::Header, sequential::message::Content),
}

impl Letter {
    pub fn from(&self) -> NodeId {
        match self {
            Letter::Scope(header, ..) => header.from,
            Letter::Sequential(header, _) => header.from,
        }
    }

    pub fn to(&self) -> NodeId {
        match self {
            Letter::Scope(header, ..) => header.to,
            Letter::Sequential(header, _) => header.to,
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Letter::Scope(header, ..) => header.op.name(),
            Letter::Sequential(header, _) => header.op.name(),
        }
    }

    /// It arrives, and its copy that is kept has no content any more.
    pub fn arrives(&mut self) -> Told {
        match self {
            Letter::Scope(header, content, rides) => {
                let content = std::mem::replace(content, Content::Empty);
                Told::Scope(scope::Event::Message(*header, content, std::mem::take(rides)))
            }
            Letter::Sequential(header, content) => {
                Told::Sequential(sequential::Event::Message(*header, std::mem::take(content)))
            }
        }
    }
}
