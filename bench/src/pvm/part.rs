//! The parts of the PVM benchmark.

use clap::ValueEnum;

/// A part of the run: one measuring program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Part {
    /// Ping-pong of two tasks
    Messages,
    /// Debian's unmodified NPpvm
    #[value(name = "netpipe")]
    NetPipe,
    /// One-way streams of messages
    Stream,
    /// Group operations such as barrier and broadcast; rings and pairs
    Groups,
    /// Spawn to first message; death to notification
    Spawn,
    /// Ping-pong between two hosts
    Hosts,
}

impl Part {
    /// Returns its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Part::Messages => "messages",
            Part::NetPipe => "NetPIPE",
            Part::Stream => "streams",
            Part::Groups => "groups",
            Part::Spawn => "spawn",
            Part::Hosts => "two hosts",
        }
    }
}
