//! Completions: the properties of an operation, and its result.

use crate::abi;
use crate::protocol::matching::{Head, Match};
use crate::protocol::wire::Kind;

/// The completion of an operation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Completion {
    pub context: usize,
    pub flags: u64,
    pub length: u64,
    pub buffer: u64,
    pub data: u64,
    pub tag: u64,
    /// The sender's source number, and the address vector to look it up in.
    pub source: Option<(u32, usize)>,
    /// 0, or an errno or an error number of libfabric's.
    pub error: i32,
    /// Number of bytes of the message that did not fit into the buffer.
    pub overflow: u64,
}

/// Returns the flag of a completion of this kind: `FI_MSG` etc.
pub fn kind_flag(kind: Kind) -> u64 {
    match kind {
        Kind::Plain => abi::MSG,
        Kind::Tagged => abi::TAGGED,
        Kind::Written => abi::RMA,
        Kind::Changed => abi::ATOMIC,
    }
}

/// Returns the completion of a received message.
pub fn completion(kind: Kind, head: &Head, taken: &Match, vector: Option<usize>) -> Completion {
    let room = taken.buffer.length();
    let length = head.length.min(room);
    let is_cut = head.length > room;
    let flag = |is: bool, flag: u64| if is { flag } else { 0 };
    Completion {
        context: taken.context,
        flags: abi::RECV
            | kind_flag(kind)
            | flag(head.data.is_some(), abi::REMOTE_CQ_DATA)
            | flag(taken.multiple && taken.last, abi::MULTI_RECV),
        length,
        buffer: taken.buffer.address(),
        data: head.data.unwrap_or(0),
        tag: head.tag,
        source: vector.map(|vector| (head.source, vector)),
        error: if is_cut { abi::ETRUNC } else { 0 },
        overflow: head.length - length,
    }
}
