//! Large messages: copied straight from the sender's buffer into the receiver's, without the
//! domain's lock. Of the largest, sender and receiver copy pieces at the same time.

use pvas::hold::{Hold, Identity};
use rustix::io::Errno;

use crate::abi;
use crate::copy::{self, Way};
use crate::matching::{Part, Parts};
use crate::port::{Head, Peer};
use crate::record::{self, Record};
use crate::space::Here;
use crate::state::Completion;
use crate::wire::Offer;

/// From how many bytes on both sides copy.
const SHARED_MIN: u64 = 2 * record::PIECE;

/// Where a message lies in its sender's memory.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// Who has sent it.
    pub whom: Identity,
    /// What he has said of it.
    pub offer: Offer,
    /// His record says where the parts are.
    pub in_parts: bool,
}

/// A message that has found its receive.
#[derive(Debug)]
pub struct Transfer {
    pub source: Source,
    pub to: Parts,
    /// What is told when it is done.
    pub completion: Completion,
    pub wanted: bool,
}

/// A message of which the sender has still to copy a piece; he is held meanwhile.
#[derive(Debug)]
pub struct Unfinished {
    transfer: Transfer,
    record: *const Record,
    bytes: u64,
    held: Hold,
}

// SAFETY: the record is the held sender's.
unsafe impl Send for Unfinished {}

/// What came of a transfer.
#[derive(Debug)]
pub enum Outcome {
    /// It is done, or has failed: as the completion says.
    Done(Transfer),
    /// It will be done when the sender has copied his last piece.
    Unfinished(Unfinished),
}

impl Source {
    /// The sender's record, and his port. The caller holds him. `None` if it cannot be there.
    fn record<'a>(&self, here: &Here, _held: &'a Hold) -> Option<(&'a Record, &'a Head)> {
        let segment = here.task.control.layout().segment(self.whom.id)?;
        let has = |at: u64, bytes: usize| {
            let end = at.checked_add(bytes as u64);
            at.is_multiple_of(align_of::<Record>() as u64)
                && at >= segment.start()
                && end.is_some_and(|end| end <= segment.end())
        };
        if !has(self.offer.record, size_of::<Record>()) {
            return None;
        }
        // SAFETY: the sender keeps it until we have closed it.
        let record = unsafe { &*(self.offer.record as *const Record) };
        if !has(record.port, size_of::<Head>()) {
            return None;
        }
        // SAFETY: ports are never freed.
        Some((record, unsafe { &*(record.port as *const Head) }))
    }

    /// Gives the message back to its sender. The caller holds him.
    fn close(&self, record: &Record, port: &Head, error: i32) {
        record.error.store(error as u32, std::sync::atomic::Ordering::Relaxed);
        if record.close() {
            self.put_back(record, port);
        } else {
            port.ring_bell();
        }
    }

    /// Puts the record onto the sender's stack.
    fn put_back(&self, record: &Record, port: &Head) {
        record::push(&port.stack.0, &record.next, self.offer.record);
        port.ring_bell();
    }

    /// The message is not wanted: its sender is done with it.
    pub fn refuse(&self, here: &Here) {
        if let Some(held) = here.hold(self.whom)
            && let Some((record, port)) = self.record(here, &held)
        {
            self.close(record, port, 0);
        }
    }
}

impl Transfer {
    /// Copies the message, as much of it as there is room for.
    pub fn run(mut self, here: &Here) -> Outcome {
        let source = self.source;
        let Some(held) = here.hold(source.whom) else { return self.failed(abi::ECONNRESET) };
        let Some((record, port)) = source.record(here, &held) else {
            return self.failed(abi::EIO);
        };
        let from = match source.in_parts {
            true => record.parts,
            false => Parts::one(source.offer.address, source.offer.length),
        };
        let bytes = from.length().min(self.to.length());
        let is_far = here.is_far(source.whom.id);
        if bytes >= SHARED_MIN && !is_far && from.list().len() == 1 && self.to.list().len() == 1 {
            // Together with the sender.
            let to = self.to.address();
            record.share(to, bytes);
            source.put_back(record, port);
            pieces(here, source.whom, Way::Pull, record, to, source.offer.address, bytes);
            let record = std::ptr::from_ref(record);
            return Unfinished { transfer: self, record, bytes, held }.finish(here);
        }
        let (to, to_count) = copy::cut(self.to.list(), bytes);
        let (from, from_count) = copy::cut(from.list(), bytes);
        let copied = copy::copy(
            here,
            source.whom,
            is_far,
            Way::Pull,
            &to[..to_count],
            &from[..from_count],
            bytes,
        );
        let error = copied.err().map_or(0, Errno::raw_os_error);
        source.close(record, port, error);
        if error != 0 {
            self.completion.error = error;
        }
        Outcome::Done(self)
    }

    fn failed(mut self, error: i32) -> Outcome {
        self.completion.error = error;
        Outcome::Done(self)
    }
}

/// Copies pieces until there are no more. Whether one of ours was the last to be copied.
fn pieces(
    here: &Here,
    whom: Identity,
    way: Way,
    record: &Record,
    ours: u64,
    theirs: u64,
    bytes: u64,
) -> bool {
    let mut was_last = false;
    while let Some((begin, length)) = record.claim(bytes) {
        let at = |address: u64| [Part { address: address + begin, length }];
        if let Err(error) = copy::copy(here, whom, false, way, &at(ours), &at(theirs), length) {
            let error = error.raw_os_error() as u32;
            record.error.store(error, std::sync::atomic::Ordering::Relaxed);
        }
        was_last |= record.copied(bytes);
    }
    was_last
}

impl Unfinished {
    /// Whether looking again is worth it.
    pub fn is_ready(&self, here: &Here) -> bool {
        // SAFETY: the sender is held, and keeps his record until we have closed it.
        unsafe { &*self.record }.is_copied(self.bytes) || !here.is_living(self.transfer.source.whom)
    }

    /// Ends the transfer, if all is copied.
    pub fn finish(mut self, here: &Here) -> Outcome {
        if !self.is_ready(here) {
            return Outcome::Unfinished(self);
        }
        let source = self.transfer.source;
        let Some((record, port)) = source.record(here, &self.held) else {
            return self.transfer.failed(abi::EIO);
        };
        let mut error = record.error.load(std::sync::atomic::Ordering::Relaxed) as i32;
        if !record.is_copied(self.bytes) {
            // He was killed in the middle of a piece; his memory is still there.
            let to = [Part { address: self.transfer.to.address(), length: self.bytes }];
            let from = [Part { address: source.offer.address, length: self.bytes }];
            let copied = copy::copy(here, source.whom, false, Way::Pull, &to, &from, self.bytes);
            error = copied.err().map_or(0, Errno::raw_os_error);
        }
        source.close(record, port, error);
        if error != 0 {
            self.transfer.completion.error = error;
        }
        Outcome::Done(self.transfer)
    }
}

/// The sender's part of copying a message of his.
#[derive(Debug)]
pub struct Help {
    pub record: *const Record,
    pub peer: Peer,
}

impl Help {
    /// Copies pieces. The record stays ours until the receiver has closed it, and it is not taken
    /// off the stack before this returns.
    pub fn run(&self, here: &Here) {
        use std::sync::atomic::Ordering::Relaxed;
        let Some(_held) = here.hold(self.peer.whom) else { return };
        // SAFETY: as above.
        let record = unsafe { &*self.record };
        let (to, bytes) = (record.to.load(Relaxed), record.bytes.load(Relaxed));
        let from = record.parts.address();
        if pieces(here, self.peer.whom, Way::Push, record, from, to, bytes) {
            self.peer.ring_bell();
        }
    }
}
