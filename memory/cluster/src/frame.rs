//! What agents say to each other: the protocol's messages, which memory is mapped where, and what
//! becomes of tasks. Bodies: of `Seen` a bit a page of the block, of `Print` the text.

use serde::{Deserialize, Serialize};

/// What a message is.
pub type Frame = coherence::sequential::frame::Frame<Word>;

/// What is not the protocol's. Pages are counted from segment 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// To whose segment it is: is this page mapped, and what else in its block?
    Look { page: u64 },
    /// The answer; in which chunk of the pool the block is, if there is a pool.
    Seen { block: u64, chunk: u64 },
    /// From whose segment it is: these pages will begin anew.
    Close { change: u64, first: u64, pages: u64 },
    /// From the same: they are zeros, and its.
    Renew { change: u64, first: u64, pages: u64 },
    /// From the same: they are mapped, of which some were not when you asked.
    Mapped { change: u64, first: u64, pages: u64 },
    /// From the same: all have done that.
    Open { first: u64, pages: u64 },
    /// To the same: that is done, or of what was closed nothing is under way.
    Done { change: u64 },
    /// From whose task it is: it lives, the so-manieth with its ID; or it has ended.
    Task { id: u32, generation: u64, lives: bool },
    /// To the same: nobody here finds the task that has ended any more.
    Forgotten { id: u32 },
    /// Something has happened in the space.
    Event,
    /// To whose segment it is: who sleeps at this futex is to be woken.
    Wake { address: u64 },
    /// To the first machine: a task has written this to its standard output (1) or error (2).
    Print { stream: u8 },
    /// For your tasks.
    Signal { signal: i32 },
    /// To the first machine: our tasks have ended.
    Finish { status: i32 },
    /// To the first machine: a task has failed with this status, and the others are to be killed.
    Fail { status: i32 },
    /// From the first machine: kill your tasks.
    Kill,
    /// To the first machine: this one is lost, as far as we see.
    Lost { machine: u32 },
    /// From the first machine: all is over.
    End,
    /// Still here.
    Alive,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_come_as_they_were_sent() {
        for word in [
            Word::Look { page: u64::MAX },
            Word::Close { change: u64::MAX, first: 1 << 60, pages: 1 << 50 },
            Word::Task { id: u32::MAX, generation: u64::MAX, lives: true },
            Word::Fail { status: -1 },
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
