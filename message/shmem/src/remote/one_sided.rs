//! Puts and gets without the agent of the target's node: the network writes and reads the memory.
//!
//! The agent registers a part of a PE's memory when it is asked for the key, once. If that fails,
//! for example because of the limit of locked memory, all operations on the part are requests.
//!
//! These remain requests: small puts, puts with a signal and atomic operations. Waiting PEs must be
//! woken after them. Besides, atomic operations of a network device are not atomic for the
//! processors of the node, by which its own PEs perform theirs.

use std::ptr::NonNull;
use std::sync::MutexGuard;

use net::error::FabricError;
use net::event::{Peer, Sending};
use net::one_sided::Region;
use net::payload::Payload;
use shmem_wire::message::{Action, PART_BYTES, Place};

use crate::remote::link::{EARLY_MIN, FLUSH_MIN, Inner, Link, State, Use, locked};
use crate::settings;

/// A piece of an operation, in one part of the memory.
struct Piece {
    /// The start of the part.
    part: Place,
    /// Bytes from there.
    offset: u64,
    bytes: usize,
}

impl Piece {
    /// The piece after the first `done` bytes of a range.
    fn of(start: Place, bytes: usize, done: usize) -> Self {
        let at = start.offset + done as u64;
        let offset = at % PART_BYTES;
        let part = Place { offset: at - offset, ..start };
        let left = (bytes - done) as u64;
        Self { part, offset, bytes: left.min(PART_BYTES - offset) as usize }
    }
}

impl Link {
    /// Writes to the memory of a PE of a node. Returns the number of bytes that it has written; the
    /// rest must be a request. If it does not wait, the payload is needed until the operation is
    /// [settled](Self::settle_all).
    ///
    /// # Safety
    /// `from` has `bytes` bytes, until they are no longer needed.
    pub unsafe fn write(
        &self,
        f: &str,
        (node, pe): (usize, usize),
        to: Place,
        (from, bytes): (*const u8, usize),
        waits: bool,
    ) -> usize {
        if bytes < EARLY_MIN {
            return 0;
        }
        let mut done = 0;
        while done < bytes {
            let piece = Piece::of(to, bytes, done);
            let (mut inner, Some(region)) = self.region(f, node, pe, piece.part) else { break };
            let (may_be_early, last) = {
                let flow = &locked(&self.flows)[node];
                (flow.may_be_early(), flow.last())
            };
            if !may_be_early {
                if bytes < FLUSH_MIN {
                    break;
                }
                drop(inner);
                self.complete(f, node, last);
                continue;
            }
            // SAFETY: the caller guarantees the bytes until they are no longer needed.
            let payload = unsafe { Payload::borrowed(from.add(done), piece.bytes) };
            let started = inner.fabric.write(&region, piece.offset, payload);
            locked(&self.flows)[node].write();
            self.started(f, inner, node, started, waits);
            done += piece.bytes;
        }
        done
    }

    /// Reads memory of a PE of a node. Returns the number of bytes that it has read; the rest must
    /// be a request. If it does not wait, the data are there when the operation is
    /// [settled](Self::settle_all).
    ///
    /// # Safety
    /// `to` has `bytes` bytes, which nobody else uses until the data are there.
    pub unsafe fn read(
        &self,
        f: &str,
        (node, pe): (usize, usize),
        from: Place,
        (to, bytes): (*mut u8, usize),
        waits: bool,
    ) -> usize {
        let mut done = 0;
        while done < bytes {
            let piece = Piece::of(from, bytes, done);
            let (mut inner, Some(region)) = self.region(f, node, pe, piece.part) else { break };
            if !locked(&self.flows)[node].may_read() {
                break;
            }
            if locked(&self.flows)[node].must_settle_to_read() {
                inner = self.settle(f, inner, node);
            }
            // SAFETY: the caller guarantees the memory until the data are there.
            let started = unsafe {
                let to = NonNull::new_unchecked(to.add(done));
                inner.fabric.read(&region, piece.offset, to, piece.bytes)
            };
            if !waits {
                locked(&self.flows)[node].read();
            }
            self.started(f, inner, node, started, waits);
            done += piece.bytes;
        }
        done
    }

    /// Completes the one-sided operations on all nodes.
    pub fn settle_all(&self, f: &str) {
        let nodes = locked(&self.flows).len();
        for node in 0..nodes {
            let is_unsettled = locked(&self.flows)[node].unsettled().is_some();
            if is_unsettled {
                drop(self.settle(f, locked(&self.inner), node));
            }
        }
    }

    /// Completes the one-sided operations on a node.
    #[cold]
    pub(super) fn settle<'a>(
        &'a self,
        f: &str,
        mut inner: MutexGuard<'a, Inner>,
        node: usize,
    ) -> MutexGuard<'a, Inner> {
        let Some(last) = locked(&self.flows)[node].unsettled() else { return inner };
        let flushed = inner.peer(node).and_then(|peer| inner.fabric.flush(peer));
        let inner = self.finish(f, inner, node, flushed);
        locked(&self.flows)[node].settle(last);
        inner
    }

    /// Returns a part of a PE's memory. None if the network cannot read and write it.
    fn region<'a>(
        &'a self,
        f: &str,
        node: usize,
        pe: usize,
        part: Place,
    ) -> (MutexGuard<'a, Inner>, Option<Region>) {
        let inner = self.connect(f, node);
        let connection = &inner.connections[node];
        if !connection.is_one_sided {
            return (inner, None);
        }
        if let Some(&region) = connection.regions.get(&(pe, part)) {
            return (inner, region);
        }
        drop(inner);
        let asked = self.ask(f, node, pe, Action::Register { at: part }, Use::Key(pe, part));
        self.wait_for(f, node, asked);
        let inner = self.connect(f, node);
        let connection = &inner.connections[node];
        let region = connection.regions.get(&(pe, part)).copied().flatten();
        if settings::is_debug() && connection.regions.len() == 1 {
            let way = if region.is_some() { "RDMA" } else { "messages: no memory is registered" };
            proc::error_line!("nagaya-shmem: {} is reached by {way}", inner.names[node]);
        }
        (inner, region)
    }

    /// Waits for an operation if `waits`; otherwise it is complete when it is settled.
    fn started<'a>(
        &'a self,
        f: &str,
        mut inner: MutexGuard<'a, Inner>,
        node: usize,
        started: Result<Sending, FabricError>,
        waits: bool,
    ) {
        match started {
            Ok(Sending::Pending(id)) if !waits => drop(inner.unsent.insert(id)),
            started => drop(self.finish(f, inner, node, started)),
        }
    }
}

impl Inner {
    /// Returns the peer of a connection that stands.
    fn peer(&self, node: usize) -> Result<Peer, FabricError> {
        match self.connections[node].state {
            State::Open(peer) => Ok(peer),
            _ => Err(FabricError::Gone),
        }
    }
}
