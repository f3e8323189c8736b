//! Messages between agents: those of the coherence protocol, calls for the origin, threads that
//! start and end, and changes of the memory map.

use serde::{Deserialize, Serialize};

use crate::clock_offsets::Times;
use crate::request::Request;
use crate::shared::Overlay;

/// The header of a message.
pub type Frame = coherence::sequential::frame::Frame<Message>;

/// A message that is not the coherence protocol's. Those that name a `change` are steps of a change
/// of the memory map, which each node acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// To the origin: make a thread's system call. Body: the context of the child, if the call
    /// makes one.
    Call { thread: u32, number: u64, arguments: [u64; 6] },
    /// From the origin: the result of a call.
    Result { thread: u32, result: i64 },
    /// From the origin: start or resume this thread. Body: its context.
    StartThread { thread: u32, tid: i32, clear_tid: u64, robust: u64 },
    /// To the origin: resume this thread on another node. Body: its context.
    Move { thread: u32, node: u32, clear_tid: u64, robust: u64 },
    /// From the origin: make this thread move.
    MoveThread { thread: u32, node: u32 },
    /// From the origin: report the number of runnable threads from now on.
    CountRunnable,
    /// To the origin: that number, as [`Load`](crate::balance::Load) defines it.
    Load { busy: u32 },
    /// From the origin: report long waits for other nodes from now on.
    WatchWaits,
    /// To the origin: threads wait long.
    LongWaits,
    /// To the origin: this thread makes many calls and computes little.
    CallsOften { thread: u32 },
    /// From the origin: send the processor time and waits of all threads.
    QueryUsage,
    /// To the origin: those, as in [`Spent`](crate::packing::Spent).
    Usage { at: u64, running: u64, waited: u64, stops: u64, delayed: u64, runnable: u32 },
    /// From the origin: move one of your threads to this node.
    GiveThread { node: u32 },
    /// From the origin: deliver a signal to a thread. Body: the signal.
    Signal { thread: u32 },
    /// To the origin: a thread has exited.
    Exited { thread: u32, status: i32 },
    /// From the origin: these pages show a file from `offset` on, read-only; after `bytes` they are
    /// zeros. Body: the file's [`Name`](crate::texts::Name).
    Text { first: u64, pages: u64, offset: u64, bytes: u64 },
    /// From the origin: set the protection of pages.
    Protect { change: u64, first: u64, pages: u64, protection: u32 },
    /// From the origin: close pages for a reset; set their protection, if one is given.
    Close { change: u64, first: u64, pages: u64, protection: Option<u32> },
    /// From the origin: reset pages to zeros, with a new owner; set their protection, if one is
    /// given. `unmapped`: nothing is mapped there any more.
    Reset {
        change: u64,
        first: u64,
        pages: u64,
        owner: u32,
        protection: Option<u32>,
        unmapped: bool,
    },
    /// From the origin: these pages, which no node holds, show another mapping than the segment.
    Overlay { change: u64, first: u64, pages: u64, kind: Overlay },
    /// From the origin: all nodes have made the change. Threads may use the pages.
    Open { first: u64, pages: u64 },
    /// To the origin: the step is done; of a close, no message about the pages is under way.
    Acknowledge { change: u64 },
    /// To the origin: a thread's request to the futex queues.
    Ask { thread: u32, question: Question },
    /// From the origin: the answer to that.
    Answer { thread: u32, answer: i64 },
    /// From the origin: wake this thread, which waits in a futex queue.
    Woken { thread: u32 },
    /// From the origin: the node may have copies of these pages of a file, which no process
    /// writes.
    Lease { first: u64, pages: u64 },
    /// To the origin: send copies of these pages.
    FetchCopies { first: u64, pages: u64 },
    /// From the origin: those. Body: the pages.
    Copies { first: u64, pages: u64 },
    /// From the origin: drop your copies of these pages, and have none from now on.
    Recall { lease: u64, first: u64, pages: u64 },
    /// To the origin: they are dropped.
    Dropped { lease: u64 },
    /// From the origin: send the pages that were ever used, as far as you know.
    QueryTouched,
    /// To the origin: those, and perhaps others. Body: ranges of pages.
    Touched,
    /// From the origin: count events for the report from now on.
    StartCounting,
    /// From the origin: the limit on the memory of pages.
    Limit { bytes: u64 },
    /// From the origin: send the counts.
    QueryCounts,
    /// To the origin: those. Body: [`Counts`](crate::report::Counts).
    Counts,
    /// To the origin: the connection to this node is lost. Body: the reason.
    Lost { node: u32 },
    /// The program ends with this status. Body: the reason, to the origin.
    Exit { status: i32 },
    /// To the origin: the node has begun.
    Begun,
    /// To the origin: read your clocks.
    QueryTime,
    /// From the origin: those.
    Time { times: Times },
    /// A sign of life.
    Alive,
}

/// The number of a change that needs no acknowledgement.
pub const UNACKNOWLEDGED: u64 = 0;

impl Message {
    /// Returns this message about the memory map, for a node that has no thread and no page. It
    /// needs that before its first thread, and nobody waits for its acknowledgement. Nothing, if
    /// this is another message.
    pub fn unacknowledged(mut self) -> Option<Self> {
        match &mut self {
            Self::Protect { change, .. }
            | Self::Close { change, .. }
            | Self::Reset { change, .. }
            | Self::Overlay { change, .. } => *change = UNACKNOWLEDGED,
            Self::Open { .. } | Self::Text { .. } | Self::Lease { .. } => {}
            _ => return None,
        }
        Some(self)
    }
}

/// A request to the futex queues: see [`Request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// As [`Request::Enqueue`].
    Enqueue { word: u64, bits: u32 },
    /// As [`Request::Cancel`].
    Cancel,
    /// As [`Request::Wake`].
    Wake { word: u64, count: u32, bits: u32 },
    /// As [`Request::Requeue`].
    Requeue { word: u64, count: u32, to: u64, moved: u32 },
}

impl Question {
    /// Returns the question that a thread's request is, if it is one.
    pub fn of(request: Request) -> Option<Self> {
        Some(match request {
            Request::Enqueue { word, bits } => Self::Enqueue { word, bits },
            Request::Cancel => Self::Cancel,
            Request::Wake { word, count, bits } => Self::Wake { word, count, bits },
            Request::Requeue { word, count, to, moved } => Self::Requeue { word, count, to, moved },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_are_received_as_they_were_sent() {
        let question = Question::Requeue { word: u64::MAX, count: 1, to: 4, moved: u32::MAX };
        for message in [
            Message::Call { thread: 7, number: 202, arguments: [u64::MAX; 6] },
            Message::Ask { thread: 1, question },
            Message::Exited { thread: 3, status: -1 },
            Message::Reset {
                change: 1 << 60,
                first: 7,
                pages: 1 << 50,
                owner: 63,
                protection: Some(7),
                unmapped: true,
            },
            Message::Begun,
            Message::Alive,
        ] {
            let bytes = Frame::Word(message).bytes();
            assert!(bytes.len() <= net::wire::USER_HEADER_BYTES_MAX);
            assert_eq!(Frame::parse(&bytes), Some(Frame::Word(message)));
            assert_eq!(Frame::parse(&[&bytes[..], &[0]].concat()), None);
        }
    }

    #[test]
    fn only_messages_about_the_memory_map_may_come_late() {
        let with = |change| Message::Protect { change, first: 1, pages: 2, protection: 3 };
        assert_eq!(with(7).unacknowledged(), Some(with(UNACKNOWLEDGED)));
        let open = Message::Open { first: 1, pages: 2 };
        assert_eq!(open.unacknowledged(), Some(open));
        let exchange = Message::QueryTouched;
        assert_eq!(exchange.unacknowledged(), None);
        assert_eq!(Message::Exit { status: 0 }.unacknowledged(), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = Frame::parse(&bytes);
        }
    }
}
