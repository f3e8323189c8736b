//! Messages between agents: those of the protocol, those about mapped memory, and those about
//! tasks. The body of `LookupReply` has one bit for each page of the block; the body of `Print` is
//! the text.

use serde::{Deserialize, Serialize};

/// A message of the protocol, or of the agents.
pub type Frame = coherence::sequential::frame::Frame<Message>;

/// A message of the agents' own. Pages are counted from segment 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// To the page's home: asks which pages of its block are mapped. The body is the protocol's
    /// request for the page, or empty. The home drops the request if the page is not mapped.
    Lookup { page: u64 },
    /// The answer. `chunk` is the block's place in the pool, if there is one.
    LookupReply { block: u64, chunk: u64 },
    /// From the home: these pages will be reset. They are to be closed.
    Close { change: u64, first: u64, pages: u64 },
    /// From the home: closed pages are zero-filled, and the home owns them.
    Reset { change: u64, first: u64, pages: u64 },
    /// From the home: all of these pages are mapped. Lookups may have found some unmapped.
    Mapped { change: u64, first: u64, pages: u64 },
    /// From the home: all machines have reset these pages, which are open again.
    Open { first: u64, pages: u64 },
    /// To the home: acknowledges the present step of a change. `Close` is acknowledged when no
    /// request for the pages is pending.
    Acknowledge { change: u64 },
    /// From the task's machine: this generation of the task has started, or has ended.
    Task { id: u32, generation: u64, lives: bool },
    /// To the task's machine: the task that has ended is not visible here any more.
    Forgotten { id: u32 },
    /// Something has happened in the space.
    Event,
    /// To the home of a futex: wake its waiters.
    Wake { address: u64 },
    /// To the first machine: a task has written this to its standard output (1) or error (2).
    Print { stream: u8 },
    /// From the first machine: send this signal to your tasks.
    Signal { signal: i32 },
    /// To the first machine: the sender's tasks have ended.
    Finish { status: i32 },
    /// To the first machine: a task has failed with this status. All others are to be killed.
    Fail { status: i32 },
    /// From the first machine: kill your tasks.
    Kill,
    /// To the first machine: the sender has lost the connection to this machine.
    Lost { machine: u32 },
    /// From the first machine: the job is over.
    End,
    /// The sender is alive.
    Alive,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_are_parsed_as_they_were_sent() {
        for message in [
            Message::Lookup { page: u64::MAX },
            Message::Close { change: u64::MAX, first: 1 << 60, pages: 1 << 50 },
            Message::Task { id: u32::MAX, generation: u64::MAX, lives: true },
            Message::Fail { status: -1 },
            Message::Alive,
        ] {
            let bytes = Frame::Word(message).bytes();
            assert!(bytes.len() <= net::wire::USER_HEADER_BYTES_MAX);
            assert_eq!(Frame::parse(&bytes), Some(Frame::Word(message)));
            assert_eq!(Frame::parse(&[&bytes[..], &[0]].concat()), None);
        }
    }

    proptest! {
        #[test]
        fn no_input_makes_the_parser_panic(bytes: Vec<u8>) {
            let _ = Frame::parse(&bytes);
        }
    }
}
