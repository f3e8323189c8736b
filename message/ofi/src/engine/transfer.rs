//! Large messages: copied straight from the sender's buffer into the receiver's, without the
//! domain's lock. Of the largest, sender and receiver copy pieces at the same time.

use std::sync::atomic::Ordering::Relaxed;

use control::Identity;
use control::hold::Hold;
use rustix::io::Errno;
use sync::pieces::{self, Pieces, Shares};

use crate::abi;
use crate::engine::completion::Completion;
use crate::engine::copy::{self, Way};
use crate::engine::port::{Head, Peer};
use crate::engine::space::Here;
use crate::protocol::cache;
use crate::protocol::parts::{Part, Parts};
use crate::protocol::place::Place;
use crate::protocol::posted::Claimed;
use crate::protocol::record::{self, Record};
use crate::protocol::wire::Offer;

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

/// The body of a message that nobody has asked for.
#[derive(Debug)]
pub enum Body {
    /// It came by the ring.
    Bytes(Box<[u8]>),
    /// It lies in its sender's memory.
    Offer(Source),
}

/// A message that has found its receive.
#[derive(Debug)]
pub struct Transfer {
    pub source: Source,
    pub to: Parts,
    /// What is told when it is done.
    pub completion: Completion,
    pub wanted: bool,
    /// The sender has claimed the receive, and copies.
    pub placed: Option<Placed>,
}

/// A receive of ours that a sender has claimed.
#[derive(Debug, Clone, Copy)]
pub struct Placed {
    pub place: Place,
    /// How far it is.
    pub pieces: &'static Pieces,
}

/// A message of which the sender has still to copy a piece; he is held meanwhile.
#[derive(Debug)]
pub struct Unfinished {
    transfer: Transfer,
    shares: Shares<'static>,
    bytes: u64,
    held: Hold,
}

/// What came of a transfer.
#[derive(Debug)]
pub enum Outcome {
    /// It is done, or has failed: as the completion says.
    Done(Transfer),
    /// It will be done when the sender has copied his last piece.
    Unfinished(Unfinished),
}

impl Source {
    /// Where the sender has something of this type. `None` if it cannot be there.
    fn place<T>(&self, here: &Here, at: u64) -> Option<*const T> {
        let segment = here.task.control.layout().segment(self.whom.id)?;
        let end = at.checked_add(size_of::<T>() as u64)?;
        let is_there = at >= segment.start() && end <= segment.end();
        (is_there && at.is_multiple_of(align_of::<T>() as u64)).then_some(at as *const T)
    }

    /// The sender's record, and his port. The caller holds him.
    fn record<'a>(&self, here: &Here, held: &'a Hold) -> Option<(&'a Record, &'a Head)> {
        // SAFETY: the sender keeps it until we have closed it.
        let record: &Record = unsafe { &*self.place(here, self.offer.at)? };
        Some((record, self.port(here, held, record.port)?))
    }

    /// The sender's port. The caller holds him.
    fn port<'a>(&self, here: &Here, _held: &'a Hold, at: u64) -> Option<&'a Head> {
        // SAFETY: ports are never freed.
        Some(unsafe { &*self.place(here, at)? })
    }

    /// Gives the message back to its sender. The caller holds him.
    fn close(&self, record: &Record, port: &Head, error: i32) {
        record.error.store(error as u32, Relaxed);
        if record.close() {
            self.put_back(record, port);
        } else {
            port.ring_bell();
        }
    }

    /// Puts the record onto the sender's stack.
    fn put_back(&self, record: &Record, port: &Head) {
        record::push(&port.stack.0, &record.next, self.offer.at);
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
    pub fn run(self, here: &Here) -> Outcome {
        if let Some(placed) = self.placed {
            let shares = placed.shares(self.completion.length);
            return self.run_placed(here, shares);
        }
        let source = self.source;
        let bytes = self.completion.length;
        let Some(held) = here.hold(source.whom) else {
            return self.ended(abi::ECONNRESET);
        };
        let Some((record, port)) = source.record(here, &held) else {
            return self.ended(abi::EIO);
        };
        // It is given back when all is copied.
        cache::will_write(record);
        let from = match source.in_parts {
            true => record.parts,
            false => Parts::one(source.offer.address, source.offer.length),
        };
        let is_far = here.is_far(source.whom.id);
        let is_whole = from.list().len() == 1 && self.to.list().len() == 1;
        let is_long = (pieces::BYTES_MIN..=pieces::BYTES_MAX).contains(&bytes);
        if is_long && is_whole && !is_far {
            record.share(self.to.address(), bytes);
            source.put_back(record, port);
            // SAFETY: the sender is held, and keeps his record until we have closed it.
            let shares = unsafe { &*std::ptr::from_ref(&record.pieces) }.of(0, bytes);
            // Together with the sender.
            let (to, from) = (self.to.address(), source.offer.address);
            copy_pieces(here, (source.whom, is_far), Way::Pull, shares, None, to, from);
            return Unfinished { transfer: self, shares, bytes, held }.leave(here);
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
        self.ended(error)
    }

    /// Copies a message together with its sender, who has claimed the receive. He sees by the
    /// pieces when all is copied.
    fn run_placed(self, here: &Here, shares: Shares<'static>) -> Outcome {
        let source = self.source;
        let bytes = self.completion.length;
        let Some(held) = here.hold(source.whom) else {
            // Who has copied all may go.
            return self.ended(shares.finished().unwrap_or(abi::ECONNRESET));
        };
        let Some(port) = source.port(here, &held, source.offer.at) else {
            return self.ended(abi::EIO);
        };
        let whose = (source.whom, here.is_far(source.whom.id));
        let (to, from) = (self.to.address(), source.offer.address);
        if copy_pieces(here, whose, Way::Pull, shares, None, to, from) {
            port.ring_bell();
        }
        Unfinished { transfer: self, shares, bytes, held }.leave(here)
    }

    /// Nobody is to be told but the program: an errno, or 0.
    fn ended(mut self, error: i32) -> Outcome {
        if error != 0 {
            self.completion.error = error;
        }
        Outcome::Done(self)
    }
}

impl Placed {
    fn shares(&self, bytes: u64) -> Shares<'static> {
        self.pieces.of(self.place.tag(), bytes)
    }
}

/// Copies pieces until there are no more, first the one that is claimed, if one is. Whether one
/// of ours was the last to be copied.
fn copy_pieces(
    here: &Here,
    (whom, is_far): (Identity, bool),
    way: Way,
    shares: Shares<'_>,
    mut claimed: Option<(u64, u64)>,
    ours: u64,
    theirs: u64,
) -> bool {
    let mut was_last = false;
    while let Some((begin, length)) = claimed.take().or_else(|| shares.claim()) {
        let at = |address: u64| [Part { address: address + begin, length }];
        let copied = copy::copy(here, whom, is_far, way, &at(ours), &at(theirs), length);
        was_last |= shares.finish(copied.err().map(Errno::raw_os_error));
    }
    was_last
}

impl Unfinished {
    /// Ends the transfer, or leaves it for later: then not under one of the few holds for what is
    /// over soon. There may be many that are left, and who waits for one of those does not get to
    /// end them.
    fn leave(mut self, here: &Here) -> Outcome {
        while !self.is_ready(here) {
            let whom = self.transfer.source.whom;
            if let Ok(held) = here.task.hold_on(whom, control::hold::KEEP) {
                self.held = held;
                return Outcome::Unfinished(self);
            }
            // The sender copies his last piece without us.
            rustix::thread::sched_yield();
        }
        self.finish(here)
    }

    /// Whether looking again is worth it.
    pub fn is_ready(&self, here: &Here) -> bool {
        self.shares.finished().is_some() || !here.is_living(self.transfer.source.whom)
    }

    /// Ends the transfer, if all is copied.
    pub fn finish(self, here: &Here) -> Outcome {
        if !self.is_ready(here) {
            return Outcome::Unfinished(self);
        }
        let source = self.transfer.source;
        let error = self.shares.finished().unwrap_or_else(|| {
            // He was killed in the middle of a piece; his memory is still there.
            let to = [Part { address: self.transfer.to.address(), length: self.bytes }];
            let from = [Part { address: source.offer.address, length: self.bytes }];
            let is_far = here.is_far(source.whom.id);
            let way = Way::Pull;
            let copied = copy::copy(here, source.whom, is_far, way, &to, &from, self.bytes);
            copied.err().map_or(0, Errno::raw_os_error)
        });
        if self.transfer.placed.is_none() {
            let Some((record, port)) = source.record(here, &self.held) else {
                return self.transfer.ended(abi::EIO);
            };
            source.close(record, port, error);
        }
        self.transfer.ended(error)
    }
}

/// The sender's part of copying a message of his.
#[derive(Debug)]
pub struct Help {
    peer: Peer,
    /// Where from,
    from: u64,
    /// and where to, in the receiver's memory.
    to: u64,
    /// How far it is.
    pub shares: Shares<'static>,
    /// The first piece is ours from the beginning.
    is_first: bool,
}

impl Help {
    /// Helps with a message whose receiver shares it. The record stays ours until the receiver
    /// has closed it, and it is not taken off the stack before this has run.
    pub fn shared(record: &Record, peer: Peer) -> Self {
        let (to, bytes) = (record.to.load(Relaxed), record.bytes.load(Relaxed));
        // SAFETY: as above.
        let pieces = unsafe { &*std::ptr::from_ref(&record.pieces) };
        let from = record.parts.address();
        Self { peer, from, to, shares: pieces.of(0, bytes), is_first: false }
    }

    /// Helps with a message whose receive we have claimed. The caller holds the receiver.
    pub fn placed(claimed: &Claimed, peer: Peer, from: u64, bytes: u64) -> Self {
        // SAFETY: a port is never freed while its task is held; `run` holds it again.
        let pieces = unsafe { &*std::ptr::from_ref(peer.head().posted.pieces(claimed.place)) };
        let shares = pieces.of(claimed.place.tag(), bytes);
        Self { peer, from, to: claimed.address, shares, is_first: true }
    }

    /// Copies pieces. If all are copied then: what hindered it, or 0.
    pub fn run(&self, here: &Here) -> Option<i32> {
        let _held = here.hold(self.peer.whom)?;
        let whose = (self.peer.whom, self.peer.is_far);
        let first = self.is_first.then(|| self.shares.first());
        if copy_pieces(here, whose, Way::Push, self.shares, first, self.from, self.to) {
            self.peer.ring_bell();
        }
        self.shares.finished()
    }
}
