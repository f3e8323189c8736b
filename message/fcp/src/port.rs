//! A port: one process's entry in a window, with a receive buffer. It reaches all other members, by
//! one of the three protocols.
//!
//! With FCP II the program computes the receiver's entry, and may name the member that it expects
//! there (its [`Card::id`], such as a PVM tid). With FCP and FCP plus that ID finds the receiver.
//!
//! Two members that send to each other with both buffers full do not wait for ever: while a port
//! waits for room, it hands over the messages that arrive for it.
//!
//! The calls of the fast path reach FCP II directly. All others, and the other protocols, go
//! through the trait [`Endpoint`].

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use crate::arrived::Arrived;
use crate::bell::Bell;
use crate::endpoint::Endpoint;
use crate::error::{Broken, Refused, WindowError};
use crate::fcp2::Fcp2;
use crate::hold::Peer;
use crate::inbox::First;
use crate::lend::{Block, Lendable};
use crate::loan::{Loan, Terms};
use crate::member::{Card, Members, Membership};
use crate::protocol::Protocol;
use sync::ring::Kind;

/// One process's entry in a window. Dropping it leaves the window.
#[derive(Debug)]
pub struct Port {
    // It is dropped before the membership, which keeps the window.
    end: End,
    membership: Arc<Membership>,
    capacity: usize,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "FCP II's fast path has no indirection")]
enum End {
    Fcp2(Fcp2),
    Other(Box<dyn Endpoint>),
}

impl End {
    fn endpoint(&self) -> &dyn Endpoint {
        match self {
            End::Fcp2(end) => end,
            End::Other(end) => &**end,
        }
    }
}

impl Port {
    /// Joins the window as a member that speaks FCP II, in entry `index` or in any.
    pub fn join(
        members: &Arc<Members>,
        card: Card,
        index: Option<u16>,
    ) -> Result<Self, WindowError> {
        Ok(Self::of(End::Fcp2(Fcp2::join(members, card, index)?)))
    }

    /// Returns the port of a member that has joined and speaks another protocol.
    pub fn new(endpoint: Box<dyn Endpoint>) -> Self {
        Self::of(End::Other(endpoint))
    }

    fn of(end: End) -> Self {
        let endpoint = end.endpoint();
        let (membership, capacity) = (endpoint.membership().clone(), endpoint.capacity());
        Self { end, membership, capacity }
    }

    /// Returns the protocol.
    pub fn protocol(&self) -> Protocol {
        self.end.endpoint().protocol()
    }

    /// Returns this member, with its generation.
    pub fn peer(&self) -> Peer {
        self.membership.peer()
    }

    /// Returns the membership, for locks and to learn of other members.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Returns the members of the window.
    pub fn members(&self) -> &Arc<Members> {
        self.membership.members()
    }

    /// Returns the bytes of a receive buffer.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the bell that ends a wait in [`Port::receive`] from another thread.
    pub fn bell(&self) -> Bell {
        self.end.endpoint().bell()
    }

    /// Returns the endpoint that lends and offers memory: FCP II's.
    fn fcp2(&mut self) -> Option<&mut Fcp2> {
        match &mut self.end {
            End::Fcp2(end) => Some(end),
            End::Other(_) => None,
        }
    }

    /// Returns the endpoint that has lent memory before.
    fn lender(&mut self) -> &mut Fcp2 {
        self.fcp2().expect("another port's memory")
    }

    /// Sends the concatenation of `parts` to the member in entry `to`, whose card has `id` if that
    /// is given. Fails with [`Refused::Full`] where [`Port::send`] would wait.
    #[inline]
    pub fn try_send(
        &mut self,
        to: u16,
        id: Option<u32>,
        kind: Kind,
        parts: &[&[u8]],
    ) -> Result<(), Refused> {
        match &mut self.end {
            End::Fcp2(end) => end.try_send(to, id, kind, parts),
            End::Other(end) => end.try_send(to, id, kind, parts),
        }
    }

    /// Sends as [`Port::try_send`] does, and waits for room until `until`. Gives the messages that
    /// arrive during the wait to `meanwhile`, in order.
    #[inline]
    pub fn send(
        &mut self,
        to: u16,
        id: Option<u32>,
        kind: Kind,
        parts: &[&[u8]],
        until: Option<Instant>,
        mut meanwhile: impl FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        match &mut self.end {
            End::Fcp2(end) => end.send(to, id, kind, parts, until, &mut meanwhile),
            End::Other(end) => end.send(to, id, kind, parts, until, &mut meanwhile),
        }
    }

    /// Returns memory for `length` bytes of a message that is to be lent. `None` if too much is
    /// lent, if the plan of the window has none, or if the protocol is not FCP II.
    pub fn block(&mut self, length: usize) -> Option<Block> {
        self.fcp2()?.block(length)
    }

    /// Sends a message of [`Kind::Lent`] as [`Port::send`] does: `parts`, and a loan of `range` of
    /// the memory. The memory may be lent to others, too.
    ///
    /// # Panics
    /// If the memory is not this port's, or the range not inside it.
    pub fn send_lent(
        &mut self,
        to: u16,
        id: Option<u32>,
        parts: &[&[u8]],
        lent: (&Lendable, Range<usize>),
        until: Option<Instant>,
        mut meanwhile: impl FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        self.lender().send_lent(to, id, parts, lent, until, &mut meanwhile)
    }

    /// Sends as [`Port::send_lent`] does. Fails with [`Refused::Full`] where that would wait.
    ///
    /// # Panics
    /// As [`Port::send_lent`].
    pub fn try_send_lent(
        &mut self,
        to: u16,
        id: Option<u32>,
        parts: &[&[u8]],
        lent: (&Lendable, Range<usize>),
    ) -> Result<(), Refused> {
        self.lender().try_send_lent(to, id, parts, lent)
    }

    /// Sends a message of [`Kind::Lent`] as [`Port::send`] does: `parts`, and a loan in advance of
    /// memory. After the message is sent, it writes the concatenation of `pieces` into that memory.
    /// Returns when all is written, or when the receiver has returned the loan. Fails with
    /// [`Refused::OutOfReach`] if there is no memory to lend.
    pub fn send_in_advance(
        &mut self,
        to: u16,
        id: Option<u32>,
        parts: &[&[u8]],
        pieces: &[&[u8]],
        until: Option<Instant>,
        mut meanwhile: impl FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        let end = self.fcp2().ok_or(Refused::OutOfReach)?;
        end.send_in_advance(to, id, parts, pieces, until, &mut meanwhile)
    }

    /// Lends `range` of the memory to the member in entry `to`. That member gets the terms by other
    /// means than a message of this port, and takes the loan by [`Port::loan`].
    ///
    /// # Panics
    /// As [`Port::send_lent`].
    pub fn lend(
        &mut self,
        to: u16,
        id: Option<u32>,
        lent: (&Lendable, Range<usize>),
    ) -> Result<Terms, Refused> {
        self.lender().lend(to, id, lent)
    }

    /// Returns the loan to this member that has these terms, once. `None` if there is none.
    pub fn loan(&self, terms: Terms) -> Option<Loan> {
        match &self.end {
            End::Fcp2(end) => end.loan(terms),
            End::Other(_) => None,
        }
    }

    /// Sends a message of [`Kind::Lent`] as [`Port::try_send`] does: `parts`, and a loan that this
    /// member has. The loan is the receiver's from then on; if the call fails, it remains ours.
    pub fn try_hand_on(
        &mut self,
        to: u16,
        id: Option<u32>,
        parts: &[&[u8]],
        loan: &mut Loan,
    ) -> Result<(), Refused> {
        self.fcp2().ok_or(Refused::OutOfReach)?.try_hand_on(to, id, parts, loan)
    }

    /// Sends a message of [`Kind::Remote`] as [`Port::send`] does: `parts`, and an offer of
    /// `bytes`, which the receiver copies from this process's memory. Returns when it has copied
    /// them. If the time is over before it begins, the offer is withdrawn. Fails with
    /// [`Refused::OutOfReach`] if the protocol is not FCP II.
    pub fn send_remote(
        &mut self,
        to: u16,
        id: Option<u32>,
        parts: &[&[u8]],
        bytes: &[u8],
        until: Option<Instant>,
        mut meanwhile: impl FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        let end = self.fcp2().ok_or(Refused::OutOfReach)?;
        end.send_remote(to, id, parts, bytes, until, &mut meanwhile)
    }

    /// Returns the next message, if there is one. Drops a message that its sender did not finish
    /// before its death, as [`Port::receive`] does.
    #[inline]
    pub fn try_receive(&mut self) -> Result<Option<Arrived<'_>>, Broken> {
        match &mut self.end {
            End::Fcp2(end) => end.try_receive(),
            End::Other(end) => end.try_receive(),
        }
    }

    /// Returns the next message. Waits until `until`, or until the [`Bell`] rings: then there is
    /// none. Drops a message that its sender did not finish before its death.
    #[inline]
    pub fn receive(&mut self, until: Option<Instant>) -> Result<Option<Arrived<'_>>, Broken> {
        match &mut self.end {
            End::Fcp2(end) => end.receive(None, until),
            End::Other(end) => end.receive(None, until),
        }
    }

    /// Receives as [`Port::receive`] does. Copies the message if it is one of [`Kind::Inline`] and
    /// came by FCP II, as much as `to` holds: that takes less time than to hand the message over.
    #[inline]
    pub(crate) fn receive_into(
        &mut self,
        to: &mut [u8],
        until: Option<Instant>,
    ) -> Result<Option<First>, Broken> {
        match &mut self.end {
            End::Fcp2(end) => end.receive_into(to, until),
            End::Other(_) => Ok(Some(First::Other)),
        }
    }

    /// Receives as [`Port::receive`] does, and stops waiting when the word no longer has the value
    /// `is`. The caller that changes it wakes its sleepers ([`wake`](sync::futex::wake)).
    pub fn receive_while(
        &mut self,
        word: &AtomicU32,
        is: u32,
        until: Option<Instant>,
    ) -> Result<Option<Arrived<'_>>, Broken> {
        match &mut self.end {
            End::Fcp2(end) => end.receive(Some((word, is)), until),
            End::Other(end) => end.receive(Some((word, is)), until),
        }
    }
}
