//! A received message, in the receive buffer of any protocol.

use std::fmt;

use crate::advance::Advance;
use crate::loan::{self, Loan};
use crate::offer::{self, Offer};
use crate::ring_end::InRing;
use sync::ring::{Header, Kind};

/// A received message of a protocol without loans and offers, still in the receive buffer.
pub trait Pending: fmt::Debug + Send + Sync {
    /// Returns the message's header.
    fn header(&self) -> Header;

    /// Copies part of the message.
    fn read(&self, offset: usize, to: &mut [u8]);

    /// Removes the message from the buffer.
    fn consume(&mut self);
}

/// A received message, still in the receive buffer. Dropping it removes the message.
#[derive(Debug)]
pub struct Arrived<'a> {
    location: Location<'a>,
    /// The message's loan or offer was taken, or it cannot have one.
    taken: bool,
}

#[derive(Debug)]
enum Location<'a> {
    Ring(InRing<'a>),
    Other(&'a mut dyn Pending),
}

impl<'a> Arrived<'a> {
    #[inline]
    pub(crate) fn in_ring(message: InRing<'a>) -> Self {
        Self { location: Location::Ring(message), taken: false }
    }

    /// Returns a message of a protocol without loans and offers.
    pub fn pending(message: &'a mut dyn Pending) -> Self {
        Self { location: Location::Other(message), taken: true }
    }

    /// Returns the message's header. Its length is that of the data in the buffer.
    #[inline]
    pub fn header(&self) -> Header {
        match &self.location {
            Location::Ring(message) => {
                let header = message.header();
                Header { length: header.length - terms_size(header.kind), ..header }
            }
            Location::Other(message) => message.header(),
        }
    }

    /// Copies part of the data in the buffer.
    #[inline]
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        match &self.location {
            Location::Ring(message) => message.read(offset, to),
            Location::Other(message) => message.read(offset, to),
        }
    }

    /// Returns the memory that is lent with the message, once. `None` if the message lends none,
    /// if its terms are invalid, or if the loan is in advance.
    pub fn loan(&mut self) -> Option<Loan> {
        self.any_loan().filter(|loan| loan.terms().in_advance == 0)
    }

    /// Returns the memory that is lent in advance with the message, once. `None` if there is none,
    /// or if the sender has ended before it wrote all.
    pub fn advance(&mut self) -> Option<Advance> {
        let Location::Ring(message) = &self.location else { return None };
        let membership = message.member()?.clone();
        let header = self.header();
        if header.kind != Kind::Lent || self.taken {
            return None;
        }
        let mut terms = [0; loan::Terms::SIZE];
        self.read(header.length as usize, &mut terms);
        let terms = loan::Terms::parse(terms);
        if terms.in_advance == 0 {
            return None;
        }
        self.taken = true;
        Advance::new(&membership, Loan::new(&membership, terms)?)
    }

    fn any_loan(&mut self) -> Option<Loan> {
        let terms = self.terms(Kind::Lent)?;
        let Location::Ring(message) = &self.location else { return None };
        Loan::new(message.member()?, loan::Terms::parse(terms))
    }

    /// Returns the offer of a message that lies in the sender's memory, once. `None` if there is
    /// none, or if the sender has gone.
    pub fn offer(&mut self) -> Option<Offer> {
        let terms = self.terms(Kind::Remote)?;
        let Location::Ring(message) = &self.location else { return None };
        Offer::new(message.member()?, offer::Terms::parse(terms))
    }

    /// Returns the terms at the end of a message of this kind, once.
    fn terms<const SIZE: usize>(&mut self, kind: Kind) -> Option<[u8; SIZE]> {
        let header = self.header();
        if header.kind != kind || self.taken {
            return None;
        }
        self.taken = true;
        let mut terms = [0; SIZE];
        self.read(header.length as usize, &mut terms);
        Some(terms)
    }

    /// Leaves the message in the buffer: it is the next one again.
    pub fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for Arrived<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.taken {
            // A loan or an offer that nobody took goes back to the sender.
            match self.header().kind {
                Kind::Lent => drop(self.any_loan()),
                Kind::Remote => drop(self.offer()),
                _ => {}
            }
        }
        match &mut self.location {
            Location::Ring(message) => message.consume(),
            Location::Other(message) => message.consume(),
        }
    }
}

/// Returns the bytes at the end of a message of this kind that tell where the rest lies.
#[inline]
pub(crate) fn terms_size(kind: Kind) -> u32 {
    match kind {
        Kind::Lent => loan::Terms::SIZE as u32,
        Kind::Remote => offer::Terms::SIZE as u32,
        Kind::Inline | Kind::Part | Kind::Skip => 0,
    }
}
