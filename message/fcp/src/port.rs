//! A port: one process's place in a window, with a receive buffer, from which it reaches all
//! other members, by any of the three protocols.
//!
//! By FCP II the receiver's place is computed by the program, which may say which member it
//! expects there (its [`Card::id`], such as a PVM tid). By FCP and FCP plus that ID is how it
//! is found. (`computed` and `classic` are the two.)
//!
//! Two who send to each other with both buffers full do not wait for ever: while a port
//! waits for room, it hands over all that comes for itself.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use crate::arrived::Arrived;
use crate::bell::Bell;
use crate::classic::Classic;
use crate::computed::Computed;
use crate::error::WindowError;
use crate::hold::Peer;
use crate::inbox::First;
use crate::lend::{Block, Lendable};
use crate::loan::{Loan, Terms};
use crate::member::{Card, Members, Membership};
use crate::protocol::Protocol;
use sync::ring::Kind;

/// Why a message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Longer than the receiver's buffer.
    TooLong,
    /// No room, now or until the given time.
    Full,
    /// The receiver has ended: noticed while waiting for room.
    Dead,
    /// There is no member in this entry, or another one than expected.
    Gone,
    /// The receiver cannot read our memory: what was offered must be sent in parts.
    OutOfReach,
    /// The port is the parent's: a forked child must join by itself.
    Forked,
}

/// Why nothing can be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// Some process has overwritten the buffer.
    Corrupt,
    /// The port is the parent's: a forked child must join by itself.
    Forked,
}

/// One process's place in a window. Dropping it leaves.
#[derive(Debug)]
pub struct Port {
    way: Way,
    protocol: Protocol,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "FCP II is to be reached at once")]
enum Way {
    Computed(Computed),
    Listed(Box<Classic>),
}

impl Port {
    /// Becomes a member that speaks FCP II, in entry `index` or in any.
    pub fn join(
        members: &Arc<Members>,
        card: Card,
        index: Option<u16>,
    ) -> Result<Self, WindowError> {
        Self::join_by(Protocol::Fcp2, members, card, index)
    }

    /// Becomes a member that speaks this protocol, for which the window must have been made,
    /// in entry `index` or in any.
    pub fn join_by(
        protocol: Protocol,
        members: &Arc<Members>,
        card: Card,
        index: Option<u16>,
    ) -> Result<Self, WindowError> {
        let cached = protocol == Protocol::FcpPlus;
        let way = match protocol.is_listed() {
            true => Way::Listed(Box::new(Classic::join(members, card, index, cached)?)),
            false => Way::Computed(Computed::join(members, card, index)?),
        };
        Ok(Self { way, protocol })
    }

    /// Which it speaks.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Which stay this is.
    pub fn peer(&self) -> Peer {
        self.membership().peer()
    }

    /// The place in the window: for locks, and to learn of other members.
    pub fn membership(&self) -> &Membership {
        match &self.way {
            Way::Computed(port) => port.membership(),
            Way::Listed(port) => port.membership(),
        }
    }

    /// The members of the window.
    pub fn members(&self) -> &Arc<Members> {
        self.membership().members()
    }

    /// Bytes of a receive buffer.
    pub fn capacity(&self) -> usize {
        match &self.way {
            Way::Computed(port) => port.capacity(),
            Way::Listed(port) => port.capacity(),
        }
    }

    /// What ends a wait in [`Port::receive`] from another thread.
    pub fn bell(&self) -> Bell {
        let window = self.members().window().clone();
        match &self.way {
            Way::Computed(port) => port.bell(window),
            Way::Listed(port) => port.bell(window),
        }
    }

    /// Sends the concatenation of `parts` to the member in entry `to`, whose card says `id`
    /// if that is given. Fails with [`Refused::Full`] where [`Port::send`] would wait.
    #[inline]
    pub fn try_send(
        &mut self,
        to: u16,
        id: Option<u32>,
        kind: Kind,
        parts: &[&[u8]],
    ) -> Result<(), Refused> {
        match &mut self.way {
            Way::Computed(port) => port.try_send(to, id, kind, parts),
            Way::Listed(port) => {
                let id = id.or_else(|| port.id_of(to)).ok_or(Refused::Gone)?;
                port.try_send(id, kind, parts)
            }
        }
    }

    /// Sends as [`Port::try_send`] does; waits for room until the given time. All that
    /// comes for ourselves meanwhile is given to `meanwhile`, in order.
    #[inline]
    pub fn send(
        &mut self,
        to: u16,
        id: Option<u32>,
        kind: Kind,
        parts: &[&[u8]],
        until: Option<Instant>,
        meanwhile: impl FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        match &mut self.way {
            Way::Computed(port) => port.send(to, id, kind, parts, until, meanwhile),
            Way::Listed(port) => {
                let id = id.or_else(|| port.id_of(to)).ok_or(Refused::Gone)?;
                port.send(id, kind, parts, until, meanwhile)
            }
        }
    }

    /// Memory for `length` bytes of a message that is to be lent. Nothing if too much is
    /// out, or the plan of the window has none, or the protocol is not FCP II.
    pub fn block(&mut self, length: usize) -> Option<Block> {
        match &mut self.way {
            Way::Computed(port) => port.block(length),
            Way::Listed(_) => None,
        }
    }

    /// Sends as [`Port::send`] does, a message of [`Kind::Lent`]: `parts`, and a loan of
    /// `range` of the memory. It may be lent to others, too.
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
        meanwhile: impl FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        match &mut self.way {
            Way::Computed(port) => port.send_lent(to, id, parts, lent, until, meanwhile),
            Way::Listed(_) => panic!("another port's memory"),
        }
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
        (memory, range): (&Lendable, Range<usize>),
    ) -> Result<(), Refused> {
        let terms = self.lend(to, id, (memory, range))?;
        let bytes = terms.bytes();
        let parts: Vec<&[u8]> = parts.iter().copied().chain([&bytes[..]]).collect();
        let sent = self.try_send(to, id, Kind::Lent, &parts);
        if sent.is_err() {
            memory.take_back(terms);
        }
        sent
    }

    /// Sends as [`Port::send`] does, a message of [`Kind::Lent`]: `parts`, and a loan in
    /// advance of memory into which the concatenation of `pieces` is written once word of it
    /// has gone. Returns when all is written, or is wanted no more. The receiver is
    /// [out of reach](Refused::OutOfReach) where there is no memory to be lent.
    pub fn send_in_advance(
        &mut self,
        to: u16,
        id: Option<u32>,
        parts: &[&[u8]],
        pieces: &[&[u8]],
        until: Option<Instant>,
        meanwhile: impl FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        match &mut self.way {
            Way::Computed(port) => port.send_in_advance(to, id, parts, pieces, until, meanwhile),
            Way::Listed(_) => Err(Refused::OutOfReach),
        }
    }

    /// Lends `range` of the memory to the member in entry `to`, which is told the terms by
    /// other means than a message of ours, and takes the loan by [`Port::loan`].
    ///
    /// # Panics
    /// As [`Port::send_lent`].
    pub fn lend(
        &mut self,
        to: u16,
        id: Option<u32>,
        lent: (&Lendable, Range<usize>),
    ) -> Result<Terms, Refused> {
        match &mut self.way {
            Way::Computed(port) => port.lend(to, id, lent),
            Way::Listed(_) => panic!("another port's memory"),
        }
    }

    /// The loan to us that is on these terms, once. Nothing if there is none.
    pub fn loan(&self, terms: Terms) -> Option<Loan> {
        match &self.way {
            Way::Computed(port) => port.loan(terms),
            Way::Listed(_) => None,
        }
    }

    /// Sends as [`Port::try_send`] does, a message of [`Kind::Lent`]: `parts`, and a loan that
    /// we have, which is the receiver's from then on. Refused, it still is ours.
    pub fn try_hand_on(
        &mut self,
        to: u16,
        id: Option<u32>,
        parts: &[&[u8]],
        loan: &mut Loan,
    ) -> Result<(), Refused> {
        match &mut self.way {
            Way::Computed(port) => port.try_hand_on(to, id, parts, loan),
            Way::Listed(_) => Err(Refused::OutOfReach),
        }
    }

    /// Sends as [`Port::send`] does, a message of [`Kind::Remote`]: `parts`, and an offer of
    /// `bytes`, which the receiver copies straight from here. Returns when it has; if the
    /// time is over before it begins, the offer is withdrawn. Only by FCP II: else the
    /// receiver is [out of reach](Refused::OutOfReach).
    pub fn send_remote(
        &mut self,
        to: u16,
        id: Option<u32>,
        parts: &[&[u8]],
        bytes: &[u8],
        until: Option<Instant>,
        meanwhile: impl FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        match &mut self.way {
            Way::Computed(port) => port.send_remote(to, id, parts, bytes, until, meanwhile),
            Way::Listed(_) => Err(Refused::OutOfReach),
        }
    }

    /// The next message, if one is there. What a sender did not finish before its death is
    /// dropped, as by [`Port::receive`].
    #[inline]
    pub fn try_receive(&mut self) -> Result<Option<Arrived<'_>>, Broken> {
        match &mut self.way {
            Way::Computed(port) => port.try_receive(),
            Way::Listed(port) => Ok(port.try_receive()?.map(Arrived::by_classic)),
        }
    }

    /// The next message. Waits for one until the given time, or until the [`Bell`] rings:
    /// then there is none. What a sender did not finish before its death is dropped.
    #[inline]
    pub fn receive(&mut self, until: Option<Instant>) -> Result<Option<Arrived<'_>>, Broken> {
        match &mut self.way {
            Way::Computed(port) => port.receive(until),
            Way::Listed(port) => Ok(port.receive(None, until)?.map(Arrived::by_classic)),
        }
    }

    /// As [`Port::receive`]. If the next message is one of [`Kind::Inline`], and came by FCP
    /// II, it is copied, as much as there is room for: that takes less time than to hand
    /// it over.
    #[inline]
    pub(crate) fn receive_into(
        &mut self,
        to: &mut [u8],
        until: Option<Instant>,
    ) -> Result<Option<First>, Broken> {
        match &mut self.way {
            Way::Computed(port) => port.receive_into(to, until),
            Way::Listed(_) => Ok(Some(First::Other)),
        }
    }

    /// As [`Port::receive`], and waits no longer once the word is not `is` any more. Who
    /// changes it wakes those who sleep on it ([`wake`](sync::futex::wake)).
    pub fn receive_while(
        &mut self,
        word: &AtomicU32,
        is: u32,
        until: Option<Instant>,
    ) -> Result<Option<Arrived<'_>>, Broken> {
        match &mut self.way {
            Way::Computed(port) => port.receive_while(word, is, until),
            Way::Listed(port) => {
                Ok(port.receive(Some((word, is)), until)?.map(Arrived::by_classic))
            }
        }
    }
}
