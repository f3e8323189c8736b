//! What agents say to each other: the protocol's messages, calls for the origin, threads that begin
//! and end, and what is done to the memory everywhere. Bodies: of `Begin`, `Move` and a
//! `Call` that makes a thread or child the context, of `Signal` the signal, of `End` the line that
//! says why, of `Text` the file, of `Copies` the pages, of `HasUsed` ranges of pages, of `Counted`
//! a [`Counts`](crate::report::Counts).

use crate::clocks::Times;
use serde::{Deserialize, Serialize};

/// What a message is.
pub type Frame = coherence::sequential::frame::Frame<Word>;

/// Which mapping shows pages instead of the segment's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Laid {
    /// A shared mapping: other processes may write it. It stands at the origin.
    Shared,
    /// An empty file, since the pages of a private file mapping lie beyond the end of its file.
    Beyond,
}

/// What is not the protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// To the origin: a thread's system call.
    Call { thread: u32, number: u64, arguments: [u64; 6] },
    /// From the origin: its result.
    Result { thread: u32, result: i64 },
    /// From the origin: this thread begins with you, or comes from elsewhere.
    Begin { thread: u32, tid: i32, clear_tid: u64, robust: u64 },
    /// To the origin: it goes on on another node.
    Move { thread: u32, node: u32, clear_tid: u64, robust: u64 },
    /// From the origin: it is to do so.
    Go { thread: u32, node: u32 },
    /// From the origin: say from now on how busy you are.
    Count,
    /// To the origin: as [`Load`](crate::balance::Load) has it.
    Busy { busy: u32 },
    /// From the origin: say from now on when your threads wait much for other nodes.
    Watch,
    /// To the origin: they do.
    Waits,
    /// To the origin: this thread calls more than it computes.
    Homes { thread: u32 },
    /// From the origin: what have your threads done until now?
    Spend,
    /// To the origin: as [`Spent`](crate::packing::Spent) has it.
    Spent { at: u64, running: u64, waited: u64, stops: u64, runnable: u32 },
    /// From the origin: one of your threads is to go to this node.
    Shed { node: u32 },
    /// From the origin: it has a signal.
    Signal { thread: u32 },
    /// To the origin: it has ended.
    Gone { thread: u32, status: i32 },
    /// From the origin: these pages are a part of a file for reading, whose name is the body:
    /// `bytes` of it from `offset` on, and zeros.
    Text { first: u64, pages: u64, offset: u64, bytes: u64 },
    /// From the origin, one of the changes of the memory map: this may be done with so many
    /// pages.
    Protect { change: u64, first: u64, pages: u64, protection: u32 },
    /// From the origin: they will begin anew; and this may be done with them, if that changes.
    Close { change: u64, first: u64, pages: u64, protection: Option<u32> },
    /// From the origin: they are zeros, and this node's; nothing is mapped there any more, if they
    /// are `unmapped`.
    Renew {
        change: u64,
        first: u64,
        pages: u64,
        owner: u32,
        protection: Option<u32>,
        unmapped: bool,
    },
    /// From the origin, one of the changes: another mapping than the segment's is to show these
    /// pages, of which nobody has anything.
    Lay { change: u64, first: u64, pages: u64, kind: Laid },
    /// From the origin: all have done that.
    Open { first: u64, pages: u64 },
    /// To the origin: that is done, or of what was closed nothing is under way.
    Done { change: u64 },
    /// To the origin: a thread's question to the futex service.
    Ask { thread: u32, question: Question },
    /// From the origin: the answer to that.
    Answer { thread: u32, answer: i64 },
    /// From the origin: the thread, which waits at a word, is woken.
    Woken { thread: u32 },
    /// From the origin: you may have copies of these pages of a file, which nobody writes.
    Lease { first: u64, pages: u64 },
    /// To the origin: such copies are wanted.
    WantCopies { first: u64, pages: u64 },
    /// From the origin: these are in the body.
    Copies { first: u64, pages: u64 },
    /// From the origin: drop your copies of these pages, and have none from now on.
    Recall { lease: u64, first: u64, pages: u64 },
    /// To the origin: that is done.
    Dropped { lease: u64 },
    /// From the origin: which pages have been used, so far as you know?
    Used,
    /// To the origin: these, and perhaps others.
    HasUsed,
    /// From the origin: what happens is to be counted from now on.
    See,
    /// From the origin: so much memory may pages take.
    Limit { bytes: u64 },
    /// From the origin: what was counted is wanted.
    Report,
    /// To the origin: this was.
    Counted,
    /// To the origin: the connection to this node is lost. The body is the reason.
    Lost { node: u32 },
    /// The program ends with this status.
    End { status: i32 },
    /// To the origin: what do your clocks say?
    WhatTime,
    /// From the origin: this.
    Time { times: Times },
    /// Still here.
    Alive,
}

/// What the futex service is asked: see [`Request`](crate::desk::Request).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// To stand in line.
    Enqueue { word: u64, bits: u32 },
    /// Not to stand there any more.
    Cancel,
    /// To wake.
    Wake { word: u64, count: u32, bits: u32 },
    /// To wake, and move.
    Requeue { word: u64, count: u32, to: u64, moved: u32 },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_come_as_they_were_sent() {
        let question = Question::Requeue { word: u64::MAX, count: 1, to: 4, moved: u32::MAX };
        for word in [
            Word::Call { thread: 7, number: 202, arguments: [u64::MAX; 6] },
            Word::Ask { thread: 1, question },
            Word::Gone { thread: 3, status: -1 },
            Word::Renew {
                change: 1 << 60,
                first: 7,
                pages: 1 << 50,
                owner: 63,
                protection: Some(7),
                unmapped: true,
            },
            Word::Alive,
        ] {
            let bytes = Frame::Word(word).bytes();
            assert!(bytes.len() <= net::wire::USER_HEADER_BYTES_MAX);
            assert_eq!(Frame::parse(&bytes), Some(Frame::Word(word)));
            assert_eq!(Frame::parse(&[&bytes[..], &[0]].concat()), None);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = Frame::parse(&bytes);
        }
    }
}
