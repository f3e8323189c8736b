//! Large messages: copied from the sender's buffer into the receiver's, without the domain's lock.
//! Sender and receiver copy pieces of the largest messages at the same time.

use std::sync::atomic::Ordering::Relaxed;

use control::Identity;
use rustix::io::Errno;
use sync::pieces::{self, Pieces, Shares};
use sync::wait::Backoff;

use crate::abi;
use crate::engine::completion::Completion;
use crate::engine::copy::{self, Direction};
use crate::engine::port::{Head, Peer};
use crate::engine::remote::HeldTask;
use crate::engine::space::Here;
use crate::protocol::cache;
use crate::protocol::parts::{Part, Parts};
use crate::protocol::posted::Claimed;
use crate::protocol::record::{self, Record};
use crate::protocol::slot_use::SlotUse;
use crate::protocol::wire::Rts;

/// A message in its sender's memory.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// The sender.
    pub task: Identity,
    /// The sender's request to send.
    pub rts: Rts,
    /// The buffer has several parts, which the record lists.
    pub in_parts: bool,
}

/// The body of an unexpected message.
#[derive(Debug)]
pub enum Body {
    /// An eager message, copied out of the ring.
    Bytes(Box<[u8]>),
    /// A rendezvous message: the bytes are in the sender's memory.
    Remote(Source),
}

/// A rendezvous message that has its receive.
#[derive(Debug)]
pub struct Transfer {
    pub source: Source,
    pub to: Parts,
    /// The completion of the receive.
    pub completion: Completion,
    pub wanted: bool,
    /// The slot that the sender has claimed, if it copies, too.
    pub claimed: Option<ClaimedReceive>,
}

/// A published receive of this endpoint that a sender has claimed.
#[derive(Debug, Clone, Copy)]
pub struct ClaimedReceive {
    pub slot_use: SlotUse,
    /// The progress of the copy.
    pub pieces: &'static Pieces,
}

/// A message of which the sender still copies a piece. The sender is held meanwhile.
#[derive(Debug)]
pub struct Unfinished {
    transfer: Transfer,
    shares: Shares<'static>,
    bytes: u64,
    held: HeldTask,
}

/// The result of a transfer.
#[derive(Debug)]
pub enum Outcome {
    /// The transfer is complete. Its completion has the error, if it failed.
    Done(Transfer),
    /// The transfer completes when the sender has copied its last piece.
    Unfinished(Unfinished),
}

impl Source {
    /// Returns the sender's record and port. `None`: the addresses are wrong.
    fn record<'a>(&self, here: &Here, held: &'a HeldTask) -> Option<(&'a Record, &'a Head)> {
        debug_assert_eq!(held.task(), self.task);
        let record: &Record = held.object(here, self.rts.at)?;
        Some((record, held.object(here, record.port)?))
    }

    /// Returns the message to its sender.
    fn close(&self, here: &Here, held: &HeldTask, record: &Record, port: &Head, error: i32) {
        record.error.store(error as u32, Relaxed);
        if record.close() {
            self.put_back(here, held, record, port);
        } else {
            port.ring_doorbell(here, held);
        }
    }

    /// Pushes the record onto the stack of the sender's port.
    fn put_back(&self, here: &Here, held: &HeldTask, record: &Record, port: &Head) {
        record::push(&port.stack.0, &record.next, self.rts.at);
        port.ring_doorbell(here, held);
    }

    /// Drops the message: for its sender it is complete.
    pub fn refuse(&self, here: &Here) {
        if let Some(held) = here.hold(self.task)
            && let Some((record, port)) = self.record(here, &held)
        {
            self.close(here, &held, record, port, 0);
        }
    }
}

impl Transfer {
    /// Copies the message, as far as the buffer has room.
    pub fn run(self, here: &Here) -> Outcome {
        if let Some(claimed) = self.claimed {
            let shares = claimed.shares(self.completion.length);
            return self.run_claimed(here, shares);
        }
        let source = self.source;
        let bytes = self.completion.length;
        let Some(held) = here.hold(source.task) else {
            return self.ended(abi::ECONNRESET);
        };
        let Some((record, port)) = source.record(here, &held) else {
            return self.ended(abi::EIO);
        };
        // The record is written when all is copied.
        cache::will_write(record);
        let from = match source.in_parts {
            true => record.parts,
            false => Parts::one(source.rts.address, source.rts.length),
        };
        let is_far = here.is_far(source.task.id);
        let is_whole = from.list().len() == 1 && self.to.list().len() == 1;
        let is_long = (pieces::BYTES_MIN..=pieces::BYTES_MAX).contains(&bytes);
        if is_long && is_whole && !is_far {
            record.share(self.to.address(), bytes);
            source.put_back(here, &held, record, port);
            // SAFETY: the sender keeps the record until `Source::close`, which runs after the last
            // use of the shares. `held` moves into `Unfinished`, so the memory stays mapped.
            let shares = unsafe { pieces_of(record) }.of(0, bytes);
            let (to, from) = (self.to.address(), source.rts.address);
            copy_pieces(here, (source.task, is_far), Direction::Pull, shares, None, to, from);
            return Unfinished { transfer: self, shares, bytes, held }.leave(here);
        }
        let (to, to_count) = copy::cut(self.to.list(), bytes);
        let (from, from_count) = copy::cut(from.list(), bytes);
        let copied = copy::copy(
            here,
            source.task,
            is_far,
            Direction::Pull,
            &to[..to_count],
            &from[..from_count],
            bytes,
        );
        let error = copied.err().map_or(0, Errno::raw_os_error);
        source.close(here, &held, record, port, error);
        self.ended(error)
    }

    /// Copies a message together with the sender that has claimed the receive. The sender reads in
    /// the pieces when all is copied.
    fn run_claimed(self, here: &Here, shares: Shares<'static>) -> Outcome {
        let source = self.source;
        let bytes = self.completion.length;
        let Some(held) = here.hold(source.task) else {
            // A sender may end after it has copied the whole message.
            return self.ended(shares.finished().unwrap_or(abi::ECONNRESET));
        };
        let Some(port) = held.object::<Head>(here, source.rts.at) else {
            return self.ended(abi::EIO);
        };
        let owner = (source.task, here.is_far(source.task.id));
        let (to, from) = (self.to.address(), source.rts.address);
        if copy_pieces(here, owner, Direction::Pull, shares, None, to, from) {
            port.ring_doorbell(here, &held);
        }
        Unfinished { transfer: self, shares, bytes, held }.leave(here)
    }

    /// Completes the transfer with an errno, or 0.
    fn ended(mut self, error: i32) -> Outcome {
        if error != 0 {
            self.completion.error = error;
        }
        Outcome::Done(self)
    }
}

impl ClaimedReceive {
    fn shares(&self, bytes: u64) -> Shares<'static> {
        self.pieces.of(self.slot_use.tag(), bytes)
    }
}

/// Returns the pieces of a record for longer than its borrow.
///
/// # Safety
/// The record is neither freed nor used for another message while the caller uses the pieces.
unsafe fn pieces_of(record: &Record) -> &'static Pieces {
    // SAFETY: the caller keeps the record, by this function's contract. Pieces are atomics.
    unsafe { &*std::ptr::from_ref(&record.pieces) }
}

/// Copies pieces until none is left; first the claimed one, if there is one. Returns true if a
/// piece copied here was the last of the message to be copied.
fn copy_pieces(
    here: &Here,
    (task, is_far): (Identity, bool),
    direction: Direction,
    shares: Shares<'_>,
    claimed: Option<(u64, u64)>,
    ours: u64,
    theirs: u64,
) -> bool {
    shares.copy(claimed, |begin, length| {
        let at = |address: u64| [Part { address: address + begin, length }];
        copy::copy(here, task, is_far, direction, &at(ours), &at(theirs), length)
            .map_err(Errno::raw_os_error)
    })
}

impl Unfinished {
    /// Completes the transfer, or leaves it for later under a long hold. There are few words for
    /// short holds, and a thread that waits for one cannot complete transfers that use the others.
    fn leave(mut self, here: &Here) -> Outcome {
        let mut backoff = Backoff::default();
        while !self.is_ready(here) {
            if self.held.prolong(here) {
                return Outcome::Unfinished(self);
            }
            // The sender copies its last piece meanwhile.
            backoff.pause();
        }
        self.finish(here)
    }

    /// Returns true if `finish` can complete the transfer.
    pub fn is_ready(&self, here: &Here) -> bool {
        self.shares.finished().is_some() || !here.is_living(self.transfer.source.task)
    }

    /// Completes the transfer, if all is copied.
    pub fn finish(self, here: &Here) -> Outcome {
        if !self.is_ready(here) {
            return Outcome::Unfinished(self);
        }
        let source = self.transfer.source;
        let error = self.shares.finished().unwrap_or_else(|| {
            // The sender was killed while it copied a piece. Its memory is still mapped.
            let to = [Part { address: self.transfer.to.address(), length: self.bytes }];
            let from = [Part { address: source.rts.address, length: self.bytes }];
            let (is_far, direction) = (here.is_far(source.task.id), Direction::Pull);
            let copied = copy::copy(here, source.task, is_far, direction, &to, &from, self.bytes);
            copied.err().map_or(0, Errno::raw_os_error)
        });
        if self.transfer.claimed.is_none() {
            let Some((record, port)) = source.record(here, &self.held) else {
                return self.transfer.ended(abi::EIO);
            };
            source.close(here, &self.held, record, port, error);
        }
        self.transfer.ended(error)
    }
}

/// The sender's part in the copy of one of its messages.
#[derive(Debug)]
pub struct Help {
    peer: Peer,
    /// Address of the sender's buffer.
    from: u64,
    /// Address of the receiver's buffer.
    to: u64,
    /// The progress of the copy.
    pub shares: Shares<'static>,
    /// The first piece is the sender's from the beginning.
    is_first: bool,
}

impl Help {
    /// Helps with a message of this endpoint that its receiver shares.
    pub fn shared(record: &Record, peer: Peer) -> Self {
        let (to, bytes) = (record.to.load(Relaxed), record.bytes.load(Relaxed));
        // SAFETY: the endpoint keeps the record, in `pending`, while `is_helped` is set: until
        // `run` has returned. A closed endpoint leaks its records.
        let pieces = unsafe { pieces_of(record) };
        let from = record.parts.address();
        Self { peer, from, to, shares: pieces.of(0, bytes), is_first: false }
    }

    /// Helps with a message of this endpoint that has claimed its receive. The caller holds the
    /// receiver until the message is complete.
    pub fn claimed(claimed: &Claimed, peer: Peer, from: u64, bytes: u64) -> Self {
        let shares = peer.pieces(claimed.slot_use).of(claimed.slot_use.tag(), bytes);
        Self { peer, from, to: claimed.address, shares, is_first: true }
    }

    /// Copies pieces. If then all are copied, returns the errno of the copy, or 0.
    pub fn run(&self, here: &Here) -> Option<i32> {
        let _held = here.hold(self.peer.task)?;
        let owner = (self.peer.task, self.peer.is_far);
        let first = self.is_first.then(|| self.shares.first());
        if copy_pieces(here, owner, Direction::Push, self.shares, first, self.from, self.to) {
            self.peer.ring_doorbell();
        }
        self.shares.finished()
    }
}
