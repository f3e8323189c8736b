//! The receiving end of a ring, and a message that lies in it.

use std::sync::Arc;

use crate::member::Membership;
use sync::futex;
use sync::mapped::Mapped;
use sync::ring::{Buffer, Header, Message, Receiver};

/// The receiving end of a ring.
#[derive(Debug)]
pub(crate) struct RingEnd {
    pub ring: Mapped,
    pub receiver: Receiver,
    /// The member that takes loans and offers, if the ring is a member's.
    pub member: Option<Arc<Membership>>,
}

/// A received message that still lies in the ring.
#[derive(Debug)]
pub(crate) struct InRing<'a> {
    pub end: &'a mut RingEnd,
    pub message: Message,
}

impl InRing<'_> {
    /// Returns the message's header.
    #[inline]
    pub fn header(&self) -> Header {
        self.message.header
    }

    /// Copies part of the message.
    #[inline]
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        self.end.receiver.read(&self.end.ring, &self.message, offset, to);
    }

    /// Returns the member that takes loans and offers.
    pub fn member(&self) -> Option<&Arc<Membership>> {
        self.end.member.as_ref()
    }

    /// Removes the message from the ring.
    #[inline]
    pub fn consume(&mut self) {
        if self.end.receiver.consume(&self.end.ring, &self.message) {
            futex::wake(self.end.ring.head());
        }
    }
}
