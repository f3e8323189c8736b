//! The record of a request: one cache line in the requester's segment, into which the delegatee
//! writes the answer. Its ticket tells when the answer is there.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU32};

use sync::ticket::Ticket;

/// The part of a request that the delegatee changes.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Record {
    /// Ends when the result is there.
    pub ticket: Ticket,
    /// Not 0 if the requester has cancelled the request.
    pub cancel: AtomicU32,
    /// The result, or a negative errno.
    pub result: AtomicI64,
}

impl Record {
    /// Writes the answer. Afterwards the requester may free the record at any instant.
    #[inline]
    pub fn give(&self, result: i64) {
        self.result.store(result, Relaxed);
        self.ticket.finish();
    }

    /// Returns the answer, if it is there.
    #[inline]
    pub fn answer(&self) -> Option<i64> {
        self.ticket.is_done().then(|| self.result.load(Relaxed))
    }
}
